"""What the role says of each node is what the node shows, and the rack's report says the same."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from testinfra.host import Host

BENCH = int(os.environ.get("BENCH", "0"))
REPORTS = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "reports" / (f"bench-{BENCH}" if BENCH else "bench")


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    return json.loads((REPORTS / "report.json").read_text(encoding="utf-8"))


@pytest.fixture
def node(host: Host, report: dict[str, Any]) -> dict[str, Any]:
    name = host.backend.get_hostname()
    (entry,) = [entry for entry in report["nodes"] if entry["name"] == name]
    return {**entry, "checks": {(check["id"], check["subject"]): check for check in report["checks"] if check["node"] == name}}


def test_the_node_is_accepted(node: dict[str, Any]) -> None:
    assert node["accepted"], node["sentence"]
    assert {check["status"] for check in node["checks"].values()} <= {"pass", "warn", "skip"}


@pytest.mark.parametrize("area", ["node.", "gpu.", "driver.", "nouveau.", "container.", "engine."])
def test_every_area_was_looked_at(node: dict[str, Any], area: str) -> None:
    assert [key for key, check in node["checks"].items() if key[0].startswith(area) and check["status"] == "pass"]


def test_the_kernel_that_runs_would_have_its_module_at_the_next_boot(host: Host, node: dict[str, Any]) -> None:
    check = node["checks"]["driver.next_boot", f"kernel {host.check_output('uname -r')}"]
    assert check["status"] == "pass"
    assert node["versions"]["driver"] in check["found"]


def test_gpus_are_those_of_the_node(host: Host, node: dict[str, Any]) -> None:
    with host.sudo():
        listed = host.check_output("nvidia-smi -L")
    assert [cell["uuid"] for cell in node["gpus"]] == [
        line.rsplit("UUID: ", 1)[1].rstrip(")") for line in listed.splitlines() if "UUID: " in line
    ]
    assert {cell["status"] for cell in node["gpus"]} == {"pass"}


def test_versions_are_those_of_the_node(host: Host, node: dict[str, Any]) -> None:
    with host.sudo():
        assert node["versions"]["driver"] in host.file("/proc/driver/nvidia/version").content_string
        assert node["versions"]["docker"] == host.check_output("docker version --format '{{.Server.Version}}'")
    assert node["versions"]["kernel"] == host.check_output("uname -r")


def test_the_engine_answered_with_text(node: dict[str, Any]) -> None:
    answers = [check for key, check in node["checks"].items() if key[0] == "engine.answer"]
    assert answers
    assert all(check["status"] == "pass" and check["found"] for check in answers)


def test_the_rack_is_the_sum_of_its_nodes(report: dict[str, Any]) -> None:
    assert report["accepted"] is all(entry["accepted"] for entry in report["nodes"])
    assert len(report["nodes"]) == 3


def test_junit_says_the_same(report: dict[str, Any]) -> None:
    suites = ElementTree.parse(REPORTS / "junit.xml").getroot().findall("testsuite")
    assert [suite.get("name") for suite in suites] == [entry["name"] for entry in report["nodes"]]
    for suite, entry in zip(suites, report["nodes"], strict=True):
        assert int(suite.get("failures", "-1")) == entry["counts"]["fail"]
        assert int(suite.get("tests", "-1")) == sum(entry["counts"].values())


def test_the_page_is_whole_and_holds_no_secret(report: dict[str, Any]) -> None:
    page = (REPORTS / "index.html").read_text(encoding="utf-8")
    assert page.endswith("</html>\n")
    for entry in report["nodes"]:
        assert f'data-node="{entry["name"]}"' in page
    keys = Path(os.environ["MOLECULE_PROJECT_DIRECTORY"]) / "tests/bench/services"
    for name in ("registry_key", "lpu_key"):
        secret = (keys / name).read_text(encoding="utf-8").strip()
        assert len(secret) > 5
        for file in REPORTS.glob("*.*"):
            assert secret not in file.read_text(encoding="utf-8"), file.name
