"""Whether a node's state allows its plan."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.module_utils._checks import Check, sentence
from ansible_collections.inferack.rack.plugins.plugin_utils import _compat as compat
from ansible_collections.inferack.rack.plugins.plugin_utils import _node

from .nodes import bare, finished

DATA = compat.load()
DRIVER: dict[str, Any] = {"source": "distribution", "version": "", "branch": "535"}


def conflicts(node: dict[str, Any], source: str = "distribution", system: str = "debian-12") -> list[Check]:
    return _node.conflicts(node, {**DRIVER, "source": source}, DATA["distributions"][system], DATA)


@pytest.mark.parametrize(
    ("state", "accepted", "status"),
    [
        ("unsupported", False, "pass"),
        ("disabled", False, "pass"),
        (None, False, "skip"),
        ("enabled", False, "fail"),
        ("enabled", True, "warn"),
    ],
)
def test_secure_boot(state: str | None, accepted: bool, status: str) -> None:
    assert _node.secure_boot(bare(secure_boot=state), accepted).status == status


@pytest.mark.parametrize(
    ("free", "finish", "status"),
    [
        (50_000_000_000, False, "pass"),
        (2_000_000_000, False, "warn"),
        (100_000_000, False, "fail"),
        (100_000_000, True, "warn"),
    ],
)
def test_disk(free: int, finish: bool, status: str) -> None:
    node = finished() if finish else bare()
    node["disk"] = {"/": free, "/var": None}
    (check,) = _node.disk(node, DRIVER, DATA)
    assert (check.status, check.subject) == (status, "/")
    if status == "fail":
        assert "found 100 MB free, expected at least 1.5 GB" in sentence(check)


def test_a_clean_node_has_no_conflict() -> None:
    (check,) = conflicts(bare())
    assert (check.id, check.status) == ("node.conflicts", "pass")


def test_the_installer_beside_packages() -> None:
    node = bare()
    node["driver"].update(runfile=True, library_version="570.1")
    (check,) = conflicts(node)
    assert check.status == "fail"
    assert "installer ran here (version 570.1)" in sentence(check)
    assert "nvidia-uninstall" in sentence(check)


def test_packages_beside_the_installer() -> None:
    (check,) = conflicts(bare(packages={"nvidia-kernel-dkms": "535", "nvidia-container-toolkit": "1.20"}), "runfile")
    assert check.status == "fail"
    assert check.found == "driver packages nvidia-kernel-dkms"
    assert conflicts(bare(packages={"nvidia-container-toolkit": "1.20"}), "runfile")[0].status == "pass"


def test_docker_from_snap() -> None:
    (check,) = conflicts(bare(docker={"snap": True}))
    assert (check.status, check.subject) == ("fail", "docker")


def test_repository_lists_left_behind_warn() -> None:
    (check,) = conflicts(bare(sources=[{"file": "/etc/apt/sources.list.d/nvidia-docker.list"}]))
    assert (check.status, check.subject) == ("warn", "repositories")
