"""The report as data: who is accepted, what a GPU's status is, what is never claimed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils._checks import Check
from ansible_collections.inferack.rack.plugins.plugin_utils._report import (
    Gpu,
    build,
    bus_id,
    concerns,
    node_from,
    without_time,
)

SCHEMA = json.loads((Path(__file__).parents[4] / "docs" / "report.schema.json").read_text(encoding="utf-8"))
TIME = "2026-11-30T13:40:05Z"
PASSED = {"id": "driver.version", "status": "pass", "found": "580.95.05"}
FAILED = {"id": "gpu.count", "status": "fail", "found": 3, "expected": 4, "remedy": "Reseat it, then run again."}
WARNED = {"id": "gpu.memory", "status": "warn", "found": "1 GiB in use"}
SKIPPED = {"id": "engine.ready", "status": "skip"}
FAILURE = {"role": "triton", "task": "Wait", "sentence": "engine.port: found taken; free port 8000."}


def report(*nodes: dict[str, Any], previous: dict[str, Any] | None = None, time: str = TIME) -> dict[str, Any]:
    made = build(
        {"name": "r", "height": 12},
        [node_from(node) for node in nodes],
        {"collection": "0.1.0", "ansible": "2.19"},
        time,
        previous,
    )
    jsonschema.validate(made, SCHEMA, cls=jsonschema.Draft202012Validator)
    assert json.loads(json.dumps(made)) == made, "nothing but JSON"
    return made


def node(name: str = "n", **rest: Any) -> dict[str, Any]:
    return {"name": name, "verified": True, "checks": [PASSED], **rest}


@pytest.mark.parametrize(
    ("given_node", "status", "sentence"),
    [
        pytest.param(node(), "accepted", "", id="accepted"),
        pytest.param(node(checks=[PASSED, WARNED, SKIPPED]), "accepted", "", id="a warning does not refuse"),
        pytest.param(node(checks=[PASSED, FAILED]), "failed", "gpu.count: found 3, expected 4;", id="a failing check"),
        pytest.param(node(failure=FAILURE), "failed", FAILURE["sentence"], id="a failed role's sentence comes first"),
        pytest.param(node(checks=[PASSED, FAILED], failure=FAILURE), "failed", FAILURE["sentence"], id="also before a check's"),
        pytest.param(node(checks=[]), "failed", "No check passed", id="no checks prove nothing"),
        pytest.param(node(checks=[SKIPPED]), "failed", "No check passed", id="skipped checks prove nothing"),
        pytest.param(node(checks=[WARNED]), "failed", "No check passed", id="warnings prove nothing"),
        pytest.param(node(verified=False), "failed", "node.verified:", id="checks without the acceptance's end"),
        pytest.param(
            node(verified=False, reached=False, phase="nvidia_driver"), "unreachable", "begun was nvidia_driver", id="lost"
        ),
        pytest.param(node(verified=False, reached=False, checks=[]), "unreachable", "no phase was begun", id="never answered"),
        pytest.param(node(looked_at=False), "not_looked_at", "did not look at", id="left out, whatever it carries"),
    ],
)
def test_verdict(given_node: dict[str, Any], status: str, sentence: str) -> None:
    made = report(given_node)
    (entry,) = made["nodes"]
    assert entry["status"] == status
    assert entry["accepted"] is made["accepted"] is (status == "accepted")
    assert sentence in entry["sentence"]
    if status == "failed" and entry["failure"]:
        assert any(check["status"] == "fail" for check in made["checks"]), "a refused node has a check that names the reason"


def test_unreachable_keeps_what_was_seen_and_adds_the_check() -> None:
    made = report(node(verified=False, reached=False, phase="triton"))
    assert [(check["id"], check["status"]) for check in made["checks"]] == [
        ("driver.version", "pass"),
        ("node.reachable", "fail"),
    ]


def test_rack_needs_every_node() -> None:
    assert report(node("a"), node("b"))["rack"]["sentence"] == "All 2 nodes are accepted."
    made = report(node("a"), node("b", checks=[FAILED]), node("c", verified=False, reached=False), node("d", looked_at=False))
    assert made["accepted"] is False
    assert made["rack"]["sentence"] == "1 of 4 nodes accepted; failed: b; unreachable: c; not looked at in this run: d."
    assert made["rack"]["counts"]["nodes"] == 4
    assert made["rack"]["counts"]["checks"] == {"pass": 2, "warn": 0, "fail": 2, "skip": 1}
    assert report()["accepted"] is False, "a rack without nodes proves nothing"


def test_left_out_node_keeps_its_last_look_apart() -> None:
    first = report(node("a"), node("b", gpus=[{"index": 0, "bus_id": "0000:07:00.0"}]), time="2026-11-29T00:00:00Z")
    second = report(node("a"), node("b", looked_at=False), previous=first)
    entry = second["nodes"][1]
    assert entry["accepted"] is False
    assert entry["last"]["status"] == "accepted"
    assert entry["last"]["time"] == "2026-11-29T00:00:00Z"
    assert [check["id"] for check in entry["last"]["checks"]] == ["driver.version"]
    assert [(check["node"], check["id"], check["status"]) for check in second["checks"]] == [
        ("a", "driver.version", "pass"),
        ("b", "node.reachable", "skip"),
    ]
    third = report(node("a"), node("b", looked_at=False), previous=second)
    assert third["nodes"][1]["last"] == entry["last"], "the time is that of the look, not of the run that left it out"
    assert report(node("a"), node("b"), previous=second)["nodes"][1]["last"] is None


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0000:07:00.0", "0000:07:00.0"),
        ("00000000:07:00.0", "0000:07:00.0"),
        ("07:00.0", "0000:07:00.0"),
        ("0000:C1:00.0", "0000:c1:00.0"),
        ("00010001:00:00.0", "0001:00:00.0"),
        ("", ""),
    ],
)
def test_bus_id(text: str, expected: str) -> None:
    assert bus_id(text) == expected


@pytest.mark.parametrize(
    ("subject", "mine"),
    [
        ("GPU 0000:07:00.0", True),
        ("GPU 00000000:07:00.0", True),
        ("GPU 0000:07:00.1", False),
        ("GPU 0000:17:00.0", False),
        ("GPU-12345678-aaaa-bbbb-cccc-123456789abc", True),
        ("GPU-99999999-aaaa-bbbb-cccc-123456789abc", False),
        ("GPU 1", True),
        ("GPU 11", False),
        ("model text_model", False),
        ("", False),
    ],
)
def test_concerns(subject: str, mine: bool) -> None:
    gpu = Gpu(1, "0000:07:00.0", "H100", "GPU-12345678-AAAA-bbbb-cccc-123456789abc")
    assert concerns(Check(id="gpu.state", status="pass", subject=subject), gpu) is mine


def gpu_state(status: str, subject: str = "", id_: str = "gpu.state") -> dict[str, Any]:
    return {"id": id_, "status": status, "subject": subject}


@pytest.mark.parametrize(
    ("checks", "extra", "statuses"),
    [
        ([PASSED, gpu_state("fail", "GPU 0000:07:00.0")], {}, ["fail", "unknown"]),
        ([gpu_state("pass", "GPU 0000:07:00.0"), gpu_state("warn", "GPU 0000:07:00.0", "gpu.memory")], {}, ["warn", "unknown"]),
        ([PASSED, gpu_state("pass", id_="driver.smi")], {}, ["pass", "pass"]),
        ([PASSED, gpu_state("fail", id_="driver.smi")], {}, ["fail", "fail"]),
        ([PASSED, gpu_state("pass", id_="gpu.present")], {}, ["unknown", "unknown"]),
        ([PASSED], {}, ["unknown", "unknown"]),
        (
            [PASSED, gpu_state("pass", id_="driver.smi"), FAILED],
            {"gpu_expected": {"count": 4}},
            ["pass", "pass", "missing", "missing"],
        ),
        ([gpu_state("skip", "GPU 0000:07:00.0")], {}, ["unknown", "unknown"]),
        ([gpu_state("pass", "GPU 0000:07:00.0")], {"looked_at": False}, ["unknown", "unknown"]),
        ([PASSED, FAILED], {"gpus": [], "gpu_expected": {"count": 2}}, ["missing", "missing"]),
        ([PASSED], {"gpus": [], "gpu_expected": {"count": 2}}, ["unknown", "unknown"]),
        ([], {"gpus": [], "gpu_expected": {"count": 2}, "verified": False, "reached": False}, ["unknown", "unknown"]),
        ([PASSED], {"gpus": [], "gpu_expected": {"product": "H100"}}, []),
    ],
)
def test_gpu_status(checks: list[dict[str, Any]], extra: dict[str, Any], statuses: list[str]) -> None:
    two = [{"index": 1, "bus_id": "0000:41:00.0"}, {"index": 0, "bus_id": "0000:07:00.0"}]
    made = report(node(checks=checks, **{"gpus": two, **extra}))
    assert [cell["status"] for cell in made["nodes"][0]["gpus"]] == statuses


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ({}, "needs a name"),
        ({"name": "n", "checks": [{"id": "x"}]}, "node n: "),
        ({"name": "n", "rack_unit": "top"}, "node n: "),
        ({"name": "n", "checks": [{"id": "driver.version", "status": "fine"}]}, "node n: "),
    ],
)
def test_faulty_node_is_named(entry: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        node_from(entry)


@given(
    looked_at=st.booleans(),
    verified=st.booleans(),
    reached=st.booleans(),
    failed=st.booleans(),
    statuses=st.lists(st.sampled_from(["pass", "warn", "fail", "skip"]), max_size=4),
)
def test_accepted_is_never_claimed_without_proof(
    looked_at: bool, verified: bool, reached: bool, failed: bool, statuses: list[str]
) -> None:
    checks = [{"id": "a.b", "status": status, "subject": str(number)} for number, status in enumerate(statuses)]
    made = report(
        node(looked_at=looked_at, verified=verified, reached=reached, failure=FAILURE if failed else None, checks=checks)
    )
    proven = looked_at and verified and reached and not failed and "pass" in statuses and "fail" not in statuses
    assert made["accepted"] is proven
    assert bool(made["nodes"][0]["sentence"]) is not proven


def test_without_time_compares_content() -> None:
    assert without_time(report(node(), time="2026-01-01T00:00:00Z")) == without_time(report(node()))
    assert without_time(report(node())) != without_time(report(node(checks=[PASSED, WARNED])))
