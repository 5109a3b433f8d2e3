"""A node's versions against what a NIM image needs."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.filter.engine_checks import FilterModule
from ansible_collections.inferack.rack.plugins.plugin_utils._nim_needs import judge_needs

NEEDS = {"driver": "580", "docker": "24.0", "toolkit": "1.14.0", "glibc": "2.35"}
NODE: dict[str, Any] = {
    "driver": {"loaded_version": "580.95.05"},
    "docker": {"version": "26.1.5+dfsg1"},
    "toolkit": {"version": "1.20.0"},
    "glibc": "2.41",
}


def test_a_node_that_has_all() -> None:
    assert [(check.id, check.status) for check in judge_needs(NODE, NEEDS)] == [
        ("driver.version", "pass"),
        ("container.engine", "pass"),
        ("container.toolkit", "pass"),
        ("node.os", "pass"),
    ]


@pytest.mark.parametrize(
    ("changes", "check", "found"),
    [
        ({"driver": {"loaded_version": "535.309.01"}}, "driver.version", "driver 535.309.01"),
        ({"driver": {"loaded_version": None}}, "driver.version", "no driver"),
        ({"driver": None}, "driver.version", "no driver"),
        ({"docker": {"version": "20.10.24+dfsg1"}}, "container.engine", "Docker Engine 20.10.24+dfsg1"),
        ({"docker": {"version": "9.0"}}, "container.engine", "Docker Engine 9.0"),
        ({"toolkit": {"version": "1.13.5"}}, "container.toolkit", "container toolkit 1.13.5"),
        ({"glibc": "2.31"}, "node.os", "glibc 2.31"),
    ],
)
def test_a_node_that_lacks_something(changes: dict[str, Any], check: str, found: str) -> None:
    failed = [one for one in judge_needs({**NODE, **changes}, NEEDS) if one.status == "fail"]
    assert [(one.id, one.found) for one in failed] == [(check, found)]
    assert failed[0].remedy.endswith("and run again.")


def test_what_comes_later_is_skipped_but_what_is_too_old_is_not() -> None:
    checks = judge_needs({**NODE, "driver": None, "docker": {"version": "20.10"}}, NEEDS, later=True)
    assert [check.status for check in checks] == ["skip", "fail", "pass", "pass"]


def test_an_empty_need_is_not_judged() -> None:
    assert judge_needs({}, {"driver": "", "docker": None}) == []


def test_an_unknown_need_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown keys: gpu"):
        judge_needs(NODE, {"gpu": 1})


@pytest.mark.parametrize(
    ("message", "check"),
    [
        (
            "Error starting container 1f: 500 Server Error for http+docker://localhost/v1.41/containers/1f/start: "
            'Internal Server Error ("could not select device driver "nvidia" with capabilities: [[gpu]]")',
            "container.toolkit",
        ),
        (
            'Error starting container 1f: 500 ("driver failed programming external connectivity: port is already allocated")',
            "engine.port",
        ),
        ('Error creating container: 400 Client Error ("unknown or invalid runtime name: nvidia")', "container.runtime"),
        ("Failed to import the required Python library (requests) on node's Python", "container.engine"),
        ("something else", "engine.ready"),
    ],
)
def test_why_a_container_does_not_start(message: str, check: str) -> None:
    (found,) = FilterModule().filters()["engine_start_checks"](message, "triton")
    assert (found["id"], found["status"]) == (check, "fail")
    assert found["found"].startswith("container triton does not start: ")
    assert "http+docker" not in found["found"]
    assert found["remedy"]


def test_filter_for_needs() -> None:
    assert FilterModule().filters()["nim_needs_checks"](NODE, {"glibc": "2.35"})[0]["status"] == "pass"
