"""What the rack does after site.yml, and still does after every node was rebooted."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
BENCH = int(os.environ.get("BENCH", "0"))
PROXY = f"http://172.31.{200 + BENCH}.11:8080"
REPORT = ROOT / "reports" / (f"bench-{BENCH}" if BENCH else "bench") / "report.json"
READY_WITHIN_S = 240


def ask() -> subprocess.CompletedProcess[str]:
    return subprocess.run([ROOT / "tests/bench/ask", PROXY], capture_output=True, text=True, timeout=180, check=False)


@pytest.fixture(scope="module")
def report() -> dict:
    return json.loads(REPORT.read_text())


def test_the_report_accepts_the_node_with_evidence(host, report) -> None:
    name = host.backend.get_hostname()
    node = next(node for node in report["nodes"] if node["name"] == name)
    checks = {check["id"]: check["status"] for check in report["checks"] if check["node"] == name}
    assert node["accepted"], node
    assert report["accepted"]
    for check in ("gpu.count", "nouveau.loaded", "nouveau.initramfs", "driver.version", "container.gpu_uuid", "engine.answer"):
        assert checks[check] == "pass", (check, checks)


@pytest.fixture(scope="module")
def rebooted() -> None:
    names = ["debian-12", "ubuntu-24.04", "openeuler-24.03"]
    subprocess.run([ROOT / "tests/bench/bench", "reboot", *names], check=True, capture_output=True, timeout=300)


def test_every_engine_answers_through_the_proxy(report) -> None:
    answered = ask()
    assert answered.returncode == 0, answered.stdout + answered.stderr
    for engine in ("debian-12-triton", "openeuler-24.03-triton", "ubuntu-24.04-nim", "lpu"):
        assert engine in answered.stdout


def test_the_driver_is_back_after_a_reboot_and_nouveau_is_not(host, rebooted) -> None:
    assert host.file("/sys/module/nvidia/version").exists, host.run("journalctl -b -t kernel --no-pager | tail -n 20").stdout
    assert not host.file("/sys/module/nouveau").exists
    assert host.run("nvidia-smi -L").stdout.count("GPU ") >= 2


def test_every_engine_is_back_after_a_reboot(rebooted) -> None:
    deadline = time.monotonic() + READY_WITHIN_S
    while (answered := ask()).returncode and time.monotonic() < deadline:
        time.sleep(5)
    assert answered.returncode == 0, answered.stdout + answered.stderr
