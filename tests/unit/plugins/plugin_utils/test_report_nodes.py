"""What a run left about its hosts: failed, lost, left out, verified."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.plugin_utils._report import build, node_from
from ansible_collections.inferack.rack.plugins.plugin_utils._report_nodes import (
    node_sentence,
    proxy_answers,
    rack_nodes,
    report_racks,
)

PASSED = {"id": "driver.version", "status": "pass", "found": "1"}
NODE = {
    "os": {"distribution": "Debian", "version": "12"},
    "kernel": {"release": "6.1.0"},
    "gpus": [{"bus_id": "0000:07:00.0"}, {"bus_id": "0000:41:00.0"}],
    "driver": {"loaded_version": "535.309.01", "flavour": "open"},
    "docker": {"version": "20.10.24"},
    "toolkit": None,
}
SEEN = [{"index": 0, "bus_id": "00000000:07:00.0", "product": "H100", "uuid": "GPU-1"}]


@pytest.mark.parametrize(
    ("host", "targeted", "status"),
    [
        pytest.param(
            {"inferack_acceptance": {"checks": [PASSED]}, "inferack_phase": "acceptance"}, True, "accepted", id="verified"
        ),
        pytest.param(
            {"inferack_phase": "nouveau", "inferack_failure": {"role": "nouveau", "sentence": "s"}}, True, "failed", id="failed"
        ),
        pytest.param({"inferack_phase": "nvidia_driver"}, True, "unreachable", id="stopped answering"),
        pytest.param({}, True, "unreachable", id="never answered"),
        pytest.param({}, False, "not_looked_at", id="left out"),
        pytest.param(
            {"ansible_facts": {"inferack_checks": [PASSED]}}, False, "not_looked_at", id="left out, facts from a cache"
        ),
        pytest.param(
            {"inferack_phase": "preflight"}, False, "unreachable", id="a trace of this run counts although the limit hides it"
        ),
    ],
)
def test_status(host: dict[str, Any], targeted: bool, status: str) -> None:
    nodes = rack_nodes({"n": host}, ["n"], ["n"] if targeted else [])
    report = build({"name": "r"}, [node_from(node) for node in nodes], {}, "t")
    assert report["nodes"][0]["status"] == status


def test_everything_a_node_left() -> None:
    host = {
        "rack_unit": 3,
        "rack_units": 2,
        "gpu_expected": {"count": 2},
        "ansible_facts": {
            "inferack_node": NODE,
            "inferack_checks": [{"id": "driver.version", "status": "fail"}, {"id": "a.b", "status": "pass"}],
        },
        "inferack_plan": {"engine": "triton"},
        "inferack_phase": "acceptance",
        "inferack_acceptance": {"checks": [PASSED], "gpus": SEEN, "engine": "triton 2.51"},
    }
    (node,) = rack_nodes({"n": host}, ["n"], ["n"])
    assert {check["id"]: check["status"] for check in node["checks"]} == {"driver.version": "pass", "a.b": "pass"}
    assert node["gpus"] == [
        {"index": 0, "bus_id": "0000:07:00.0", "product": "H100", "uuid": "GPU-1"},
        {"index": None, "bus_id": "0000:41:00.0", "product": "", "uuid": ""},
    ]
    assert node["versions"] == {
        "os": "Debian 12",
        "kernel": "6.1.0",
        "driver": "535.309.01",
        "flavour": "open",
        "docker": "20.10.24",
        "toolkit": None,
        "engine": "triton 2.51",
    }
    assert (node["rack_unit"], node["rack_units"], node["verified"], node["reached"]) == (3, 2, True, True)


def test_failed_checks_of_a_failure_are_in_the_report() -> None:
    failed = {"id": "engine.port", "status": "fail"}
    host = {"inferack_failure": {"role": "triton", "task": "t", "sentence": "s", "checks": [failed]}}
    (node,) = rack_nodes({"n": host}, ["n"], ["n"])
    assert [check["id"] for check in node["checks"]] == ["engine.port"]
    assert node["failure"] == {"role": "triton", "task": "t", "sentence": "s"}


def test_order_of_the_inventory_is_kept() -> None:
    assert [node["name"] for node in rack_nodes({"b": {}, "a": {}}, ["b", "a"], [])] == ["b", "a"]


def test_racks_without_a_target_keep_their_report() -> None:
    hosts = {
        "a1": {"inferack_rack_name": "a", "inferack_rack_height": 24},
        "a2": {"inferack_rack_name": "a"},
        "b1": {"inferack_rack_name": "b", "inferack_report_dir": "/srv/b"},
        "head": {"inferack_rack_name": "a"},
    }
    groups = {"gpu_nodes": ["a1", "a2", "b1"], "proxy_nodes": ["a1"], "head_nodes": ["head"], "all": ["else"]}
    (rack,) = report_racks(hosts, groups, ["a2", "localhost"])
    assert (rack["name"], rack["height"], rack["path"]) == ("a", 24, None)
    assert [(node["name"], node["looked_at"]) for node in rack["nodes"]] == [("a1", False), ("a2", True), ("head", False)]
    assert [(rack["name"], rack["path"]) for rack in report_racks(hosts, groups, ["a1", "b1"])] == [
        ("a", None),
        ("b", "/srv/b"),
    ]
    assert report_racks(hosts, groups, ["localhost"]) == []


@pytest.mark.parametrize(
    ("host", "words"),
    [
        ({"inferack_acceptance": {"checks": [PASSED]}}, ""),
        ({"inferack_failure": {"role": "nouveau", "task": "t", "sentence": "It failed; mend it."}}, "It failed; mend it."),
        (
            {"inferack_acceptance": {"checks": [PASSED, {"id": "engine.ready", "status": "fail", "found": "dead"}]}},
            "engine.ready: found dead",
        ),
    ],
)
def test_recap_and_report_say_the_same(host: dict[str, Any], words: str) -> None:
    said = node_sentence({"n": host}, "n")
    assert said.startswith(words)
    report = build({"name": "r"}, [node_from(rack_nodes({"n": host}, ["n"], ["n"])[0])], {}, "t")
    assert report["nodes"][0]["sentence"] == said


READY = {"engines": [{"name": "e1", "ready": True}, {"name": "e2", "ready": False}]}
ENGINES = [{"name": "e1", "models": ["up"]}, {"name": "e2", "models": ["down"]}]
DEAD = {"id": "engine.ready", "status": "fail", "found": "connection refused", "evidence": ["line"]}


@pytest.mark.parametrize(
    ("result", "status", "found"),
    [
        (
            {
                "item": "up",
                "answer": "A rack.",
                "checks": [{"id": "engine.answer", "status": "pass"}],
                "timings": {"total_s": 1},
            },
            "pass",
            "A rack.",
        ),
        ({"item": "up", "answer": None, "checks": [DEAD]}, "fail", "connection refused"),
        ({"item": "down", "answer": None, "checks": [DEAD]}, "warn", "connection refused"),
        ({"item": "unheard", "msg": "boom"}, "warn", "boom"),
        ({"item": "up", "answer": "text", "checks": [DEAD]}, "fail", "connection refused"),
    ],
)
def test_proxy_answers(result: dict[str, Any], status: str, found: str) -> None:
    (check,) = proxy_answers([result], ENGINES, READY)
    assert (check["id"], check["subject"], check["status"], check["found"]) == (
        "proxy.answer",
        f"model {result['item']}",
        status,
        found,
    )
    assert bool(check["remedy"]) is (status != "pass")
