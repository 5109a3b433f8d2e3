"""Racks to draw, and a real browser to draw them in."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from ansible_collections.inferack.rack.plugins.plugin_utils._report import build, node_from
from ansible_collections.inferack.rack.plugins.plugin_utils._report_page import page

HOSTILE = """</script><script>window.owned=1</script><img src=x onerror="window.owned=1">'"&lt;\u202e\x00\x1b[31m]]>"""
FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--hide-scrollbars",
)


def check(id_: str, status: str = "pass", **rest: Any) -> dict[str, Any]:
    failed = status in ("fail", "warn")
    rest.setdefault("found", "something" if failed else "as expected")
    rest.setdefault("expected", "something else" if failed else "as expected")
    rest.setdefault("remedy", "Mend it, then run again." if failed else "")
    rest.setdefault("evidence", [f"line of {id_}"])
    return {"id": id_, "status": status, **rest}


def gpus(count: int, product: str = "NVIDIA H100 80GB HBM3") -> list[dict[str, Any]]:
    return [
        {
            "index": number,
            "bus_id": f"0000:{7 + number:02x}:00.0",
            "product": product,
            "uuid": f"GPU-{number:08d}-aaaa-bbbb-cccc-0123456789ab",
        }
        for number in range(count)
    ]


def gpu_checks(count: int, statuses: dict[int, str] | None = None) -> list[dict[str, Any]]:
    listed = [check("gpu.count", found=count, expected=count)]
    for number in range(count):
        status = (statuses or {}).get(number, "pass")
        subject = f"GPU 0000:{7 + number:02x}:00.0"
        listed.append(check("gpu.state", "pass", subject=subject))
        listed.append(check("gpu.ecc.uncorrectable", status, subject=subject, found=3 if status == "fail" else 0, expected=0))
    return listed


VERSIONS = {
    "os": "Debian 12",
    "kernel": "6.1.0-38-amd64",
    "driver": "535.309.01",
    "docker": "20.10.24",
    "toolkit": "1.20.0",
    "engine": "triton",
}
REST = [
    check("node.reachable"),
    check("nouveau.loaded"),
    check("driver.version", found="535.309.01", expected="535.309.01"),
    check("engine.ready"),
]


def accepted_node(name: str, unit: int | None, units: int = 1, count: int = 2, **rest: Any) -> dict[str, Any]:
    return {
        "name": name,
        "rack_unit": unit,
        "rack_units": units,
        "verified": True,
        "phase": "acceptance",
        "checks": gpu_checks(count) + REST,
        "gpus": gpus(count),
        "gpu_expected": {"count": count},
        "versions": VERSIONS,
        **rest,
    }


RACKS: dict[str, tuple[dict[str, Any], list[dict[str, Any]]]] = {
    "accepted": (
        {"name": "bench", "height": 12},
        [accepted_node("debian-12", 1, 2), accepted_node("ubuntu-24.04", 3, 2, 4), accepted_node("openeuler-24.03", 6, 1)],
    ),
    "failed": (
        {"name": "rack-a", "height": 12},
        [
            accepted_node("node-01", 1, 2, 4, checks=gpu_checks(4, {1: "warn"}) + REST),
            accepted_node("node-02", 4, 2, 4, checks=gpu_checks(4, {2: "fail"}) + REST),
            accepted_node(
                "node-03",
                7,
                2,
                3,
                gpu_expected={"count": 4, "product": "H100"},
                checks=[
                    *gpu_checks(3)[1:],
                    check("gpu.count", "fail", found=3, expected=4, remedy="Reseat the missing GPU, then run again."),
                ],
                failure={
                    "role": "nvidia_driver",
                    "task": "Verify the GPUs",
                    "sentence": "gpu.count: found 3, expected 4; reseat the missing GPU, then run again.",
                },
            ),
        ],
    ),
    "unreachable": (
        {"name": "rack-b", "height": 8},
        [
            accepted_node("alive", 1, 1),
            {
                "name": "dead",
                "rack_unit": 3,
                "rack_units": 2,
                "reached": False,
                "phase": "nvidia_driver",
                "gpu_expected": {"count": 2},
            },
            {"name": "left-out", "rack_unit": 6, "looked_at": False, "gpu_expected": {"count": 2}},
        ],
    ),
    "full": (
        {"name": "rack 42", "height": 42},
        [
            *(accepted_node(f"dgx-{number:02d}", 1 + 8 * number, 8, 8) for number in range(4)),
            *(accepted_node(f"very-long-node-name-{number:02d}.rack.example.org", 33 + number, 1, 8) for number in range(9)),
            accepted_node("node-without-unit", None, 1, 2),
            accepted_node("node-on-taken-unit", 5, 1, 2),
            accepted_node("node-outside", 42, 3, 2),
        ],
    ),
    "hostile": (
        {"name": HOSTILE, "height": 6},
        [
            accepted_node(
                HOSTILE,
                2,
                2,
                gpus=[{"index": 0, "bus_id": "0000:07:00.0", "product": HOSTILE, "uuid": HOSTILE}],
                gpu_expected={"count": 2, "product": HOSTILE},
                versions={"os": HOSTILE, HOSTILE: HOSTILE},
                checks=[
                    check(
                        "gpu.state",
                        "fail",
                        subject=f"GPU 0000:07:00.0 {HOSTILE}",
                        found=HOSTILE,
                        expected=[HOSTILE],
                        remedy=HOSTILE,
                        evidence=[HOSTILE],
                    ),
                    check("gpu.count", "fail", found={HOSTILE: HOSTILE}, expected=2, evidence=[HOSTILE]),
                ],
                failure={"role": HOSTILE, "task": HOSTILE, "sentence": HOSTILE},
            )
        ],
    ),
}


def report(name: str) -> dict[str, Any]:
    rack, nodes = RACKS[name]
    return build(
        rack, [node_from(node) for node in nodes], {"collection": "0.1.0", "ansible": "2.19.14"}, "2026-11-30T13:40:05Z"
    )


@pytest.fixture(scope="session")
def racks() -> dict[str, dict[str, Any]]:
    return {name: report(name) for name in RACKS}


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory, racks: dict[str, dict[str, Any]]) -> dict[str, Path]:
    folder = tmp_path_factory.mktemp("pages")
    files = {}
    for name, document in racks.items():
        files[name] = folder / f"{name}.html"
        files[name].write_text(page(document), encoding="utf-8")
    return files


@pytest.fixture(scope="session")
def chrome(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    """Debian's Chromium. Absence is a failure and not a skip: a page nobody looked at is not tested."""
    browser, driver = (shutil.which(name) for name in ("chromium", "chromedriver"))
    assert browser, "chromium is not installed; install the package chromium"
    assert driver, "chromedriver is not installed; install the package chromium-driver"
    options = Options()
    options.binary_location = browser
    for flag in (*FLAGS, f"--user-data-dir={tmp_path_factory.mktemp('chromium')}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    running = webdriver.Chrome(options=options, service=Service(driver, env={**os.environ, "SE_OFFLINE": "true"}))
    yield running
    running.quit()


@pytest.fixture
def show(chrome: webdriver.Chrome, pages: dict[str, Path]) -> Iterator[Callable[..., webdriver.Chrome]]:
    """Open a rack's page: `show(name, width=…, dark=…)`. Every page must end without a word in the browser's console."""

    def opened(name: str, width: int = 1280, height: int = 900, dark: bool = False) -> webdriver.Chrome:
        chrome.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600},
        )
        scheme = "dark" if dark else "light"
        chrome.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
        chrome.get("about:blank")
        chrome.get_log("browser")
        chrome.get(pages[name].as_uri())
        return chrome

    yield opened
    told = chrome.get_log("browser")
    assert told == [], f"the browser's console: {told}"
