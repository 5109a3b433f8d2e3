# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""A node's versions against the lowest ones that a NIM image needs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, SKIP, Check
from ansible_collections.inferack.rack.plugins.plugin_utils._compat import version_key


@dataclass(frozen=True)
class Need:
    """One thing that has a lowest version: its key, the check, its name, where inferack_node has it, and what mends it."""

    key: str
    check: str
    name: str
    path: tuple[str, ...]
    remedy: str


NEEDS = (
    Need("driver", "driver.version", "driver", ("driver", "loaded_version"), "Set inferack_driver_branch to {lowest} or later"),
    Need("docker", "container.engine", "Docker Engine", ("docker", "version"), "Install Docker Engine {lowest} or later"),
    Need(
        "toolkit",
        "container.toolkit",
        "container toolkit",
        ("toolkit", "version"),
        "Install container toolkit {lowest} or later",
    ),
    Need("glibc", "node.os", "glibc", ("glibc",), "Take a release of the operating system with glibc {lowest} or later"),
)


def value_at(node: Mapping[str, Any], path: tuple[str, ...]) -> str | None:
    """The text at a path of nested dictionaries; None where a part is absent or null."""
    value: Any = node
    for key in path:
        value = value.get(key) if isinstance(value, Mapping) else None
    return str(value) if value else None


def judge_needs(node: Mapping[str, Any], needs: Mapping[str, Any], later: bool = False) -> list[Check]:
    """A check for each lowest version in `needs` that is not empty.

    later: what is absent will come later, so that its check is skipped.
    Raises ValueError for a key that is none of NEEDS.
    """
    unknown = sorted(set(needs) - {need.key for need in NEEDS})
    if unknown:
        raise ValueError(
            f"nim_requirements has unknown keys: {', '.join(unknown)}; known are {', '.join(n.key for n in NEEDS)}"
        )
    checks = []
    for need in NEEDS:
        lowest = str(needs.get(need.key) or "")
        if not lowest:
            continue
        found, expected = value_at(node, need.path), f"{need.name} {lowest} or later"
        subject = f"NIM needs {need.name}"
        if found and version_key(found) >= version_key(lowest):
            checks.append(Check(need.check, PASS, found=f"{need.name} {found}", expected=expected, subject=subject))
        elif not found and later:
            checks.append(Check(need.check, SKIP, found=f"no {need.name} yet", expected=expected, subject=subject))
        else:
            remedy = f"{need.remedy.format(lowest=lowest)}, or choose another engine for this node, and run again."
            shown = f"{need.name} {found}" if found else f"no {need.name}"
            checks.append(Check(need.check, FAIL, found=shown, expected=expected, remedy=remedy, subject=subject))
    return checks
