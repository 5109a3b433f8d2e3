"""The bad days that a rack must survive: one sentence with cause and remedy, the check in the report, other nodes go on.

A run takes one to two minutes, so each carries a fault on every node that can carry one, and is the proof that the
faults of the run before it are mended. The tests build on each other in this order.
"""

from __future__ import annotations

import json
import subprocess
import threading
import time

import pytest
from runs import BENCH, INVENTORY, REPORT, ROOT, bench, fault, last_report, on, playbook

DEBIAN, UBUNTU, OPENEULER = "debian-12", "ubuntu-24.04", "openeuler-24.03"
DAEMON_JSON = "/etc/docker/daemon.json"


def assert_failed(run, node: str, check: str, *words: str) -> None:
    """The node failed, the report names the check, and the sentence names cause and remedy."""
    assert run.recap[node]["failed"] == 1, run.output[-6000:]
    assert not run.node(node)["accepted"]
    assert check in run.failing(node), (run.failing(node), run.output[-6000:])
    sentence = run.node(node)["sentence"]
    assert spoken(sentence) in spoken(run.output), (sentence, run.output[-6000:])
    for word in words:
        assert word.lower() in sentence.lower(), sentence
    remedy = next(c["remedy"] for c in run.report["checks"] if c["node"] == node and c["id"] == check and c["status"] == "fail")
    assert len(remedy.split()) >= 3, remedy


def spoken(text: str) -> str:
    """Text without the quotes and line breaks that YAML output puts into it."""
    return " ".join(text.replace("'", "").replace('"', "").split())


def assert_accepted(run, *names: str) -> None:
    for name in names:
        assert run.node(name)["accepted"], (name, run.failing(name), run.output[-6000:])
        assert run.recap[name]["failed"] == 0


@pytest.fixture(scope="module", autouse=True)
def accepted_rack() -> None:
    """Every node accepted: what a bad day begins with. A rack that was left so is not run again."""
    if not last_report().get("accepted"):
        assert_accepted(playbook("site.yml"), DEBIAN, UBUNTU, OPENEULER)


def settings(node: str) -> dict:
    """What daemon.json of the node says."""
    return json.loads(on(node, f"cat {DAEMON_JSON}").stdout)


def test_fewer_gpus_and_a_daemon_json_that_is_invalid_or_empty() -> None:
    with fault(DEBIAN, "gpu-missing"), fault(UBUNTU, "daemon-json-invalid"), fault(OPENEULER, "daemon-json-empty"):
        before = on(UBUNTU, f"sha256sum {DAEMON_JSON}").stdout
        run = playbook("site.yml")
        assert on(UBUNTU, f"sha256sum {DAEMON_JSON}").stdout == before, "an invalid file was changed"
        assert "nvidia" in settings(OPENEULER)["runtimes"]
    assert_failed(run, DEBIAN, "gpu.count", "1", "2")
    assert_failed(run, UBUNTU, "container.daemon_json", "line 3")
    assert_accepted(run, OPENEULER)


def test_nouveau_back_and_versions_that_differ_and_runtime_and_toolkit_gone() -> None:
    # Not on debian-12: its driver's own modprobe aliases keep nouveau out even where the initramfs lacks the blacklist.
    bench("fault", UBUNTU, "nouveau-back")
    assert on(UBUNTU, "test -d /sys/module/nouveau").returncode == 0, "the fault did not bring nouveau back"
    without_runtime = {key: value for key, value in settings(OPENEULER).items() if key != "runtimes"}
    on(OPENEULER, f"echo '{json.dumps(without_runtime)}' > {DAEMON_JSON} && systemctl restart docker")
    with fault(DEBIAN, "version-mismatch"):
        found = playbook("verify.yml")
        assert_failed(found, UBUNTU, "nouveau.loaded", "nouveau")
        assert "nouveau.initramfs" in found.failing(UBUNTU)
        assert_failed(found, DEBIAN, "driver.library", "999.01")
        assert_failed(found, OPENEULER, "container.runtime", "nvidia")
        held = playbook("site.yml", "-e", '{"inferack_reboot_ok": false}')
        assert_failed(held, UBUNTU, "node.reboot", "nouveau", "reboot")
        assert_failed(held, DEBIAN, "driver.library", "999.01")
        assert_accepted(held, OPENEULER)
    on(DEBIAN, "apt-get remove -y nvidia-container-toolkit nvidia-container-toolkit-base")
    found = playbook("verify.yml", "--limit", DEBIAN)
    assert_failed(found, DEBIAN, "container.toolkit", "nvidia-container-toolkit")
    assert_accepted(playbook("site.yml"), DEBIAN, UBUNTU, OPENEULER)
    assert on(UBUNTU, "test -d /sys/module/nouveau").returncode == 1


def configurations(node: str) -> str:
    """Names and sums of the models' configurations on the node."""
    return on(node, "find /var/lib/triton -name config.pbtxt -exec sha256sum {} +").stdout


def answers(node: str, path: str, within_s: float = 60) -> bool:
    """Whether the node's Triton answers; the engine's restart may have restarted it."""
    deadline = time.monotonic() + within_s
    while on(node, f"curl -sf http://127.0.0.1:8000{path}").returncode:
        if time.monotonic() > deadline:
            return False
        time.sleep(2)
    return True


def test_models_that_cannot_be_served_and_a_registry_that_refuses() -> None:
    listed = subprocess.run(
        ["ansible-inventory", "-i", str(INVENTORY), "--host", DEBIAN], capture_output=True, text=True, check=True
    )
    (model,) = json.loads(listed.stdout)["triton_models"]
    mistyped = [{"name": "text", "data_type": "TYPE_STRNG", "dims": [1]}]
    models = {
        DEBIAN: [{**model, "source": "/nowhere/text_model"}],
        OPENEULER: [{**model, "inputs": mistyped}],
        UBUNTU: [model],
    }
    before = {node: configurations(node) for node in (DEBIAN, OPENEULER)}
    assert all(before.values())
    with fault(DEBIAN, "daemon-json-foreign"), fault(UBUNTU, "registry-refuses"):
        foreign = settings(DEBIAN)
        on(UBUNTU, "docker rm -f $(docker ps -aq); docker image prune -af; rm -rf /root/.docker")
        each = {"models_of": models, "triton_models": "{{ models_of[inventory_hostname] }}"}
        run = playbook("site.yml", "-e", json.dumps(each))
        merged = settings(DEBIAN)
    for key, value in foreign.items():
        if key == "runtimes":
            assert merged["runtimes"].items() >= value.items()
        else:
            assert merged[key] == value
    assert "nvidia" in merged["runtimes"]
    assert_failed(run, DEBIAN, "engine.models", "/nowhere/text_model")
    assert_failed(run, OPENEULER, "engine.config", "TYPE_STRNG")
    for node, sums in before.items():
        assert configurations(node) == sums, "half-written"
        assert answers(node, "/v2/models/text_model/ready"), "what ran before must run on"
    assert_failed(run, UBUNTU, "engine.registry", "registry.bench.test:5000")
    key = (ROOT / "tests/bench/services/registry_key").read_text().strip()
    assert key not in run.output, "the key was printed"
    assert key not in json.dumps(run.report), "the key is in the report"


def test_engine_port_taken() -> None:
    on(DEBIAN, "docker rm -f $(docker ps -aq)")
    with fault(DEBIAN, "port-taken"):
        run = playbook("site.yml", "--limit", DEBIAN, "--tags", "triton,acceptance")
    assert_failed(run, DEBIAN, "engine.port", "8000", "python3")


def test_no_headers_on_a_fresh_node_and_a_node_that_dies_half_way() -> None:
    bench("reset", UBUNTU)
    died = threading.Event()
    REPORT.unlink(missing_ok=True)
    with fault(UBUNTU, "headers-gone"):
        command = ["ansible-playbook", "-i", str(INVENTORY), str(ROOT / "playbooks/site.yml")]
        process = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        assert process.stdout is not None
        lines: list[str] = []
        for line in process.stdout:
            lines.append(line)
            if not died.is_set() and line.startswith("TASK [inferack.rack.container_runtime"):
                died.set()
                subprocess.run([str(BENCH), "fault", OPENEULER, "unreachable"], cwd=ROOT, check=True, capture_output=True)
        process.wait(timeout=60)
    bench("repair", OPENEULER, "unreachable")
    output = "".join(lines)
    assert died.is_set(), output[-6000:]
    report = last_report()
    failing = {(check["node"], check["id"]) for check in report["checks"] if check["status"] == "fail"}
    assert (OPENEULER, "node.reachable") in failing, output[-6000:]
    assert (UBUNTU, "driver.headers") in failing, output[-6000:]
    nodes = {node["name"]: node for node in report["nodes"]}
    assert nodes[DEBIAN]["accepted"]
    assert not nodes[OPENEULER]["accepted"]
    assert not nodes[UBUNTU]["accepted"]
    assert "headers" in nodes[UBUNTU]["sentence"]
    assert "container_runtime" in nodes[OPENEULER]["sentence"]
    assert on(UBUNTU, "dpkg -l | grep -c nvidia-").stdout.strip() == "0", "the driver was touched without headers"
    assert_accepted(playbook("site.yml"), DEBIAN, UBUNTU, OPENEULER)
