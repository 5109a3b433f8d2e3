# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Whether a node is in a state in which its plan can be carried out: disk, Secure Boot, conflicting installations.

Pure; runs on the control node only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePosixPath
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, SKIP, WARN, Check
from ansible_collections.inferack.rack.plugins.plugin_utils import _compat as compat


def check_node(
    node: Mapping[str, Any],
    driver: Mapping[str, Any],
    row: Mapping[str, Any],
    data: compat.Data,
    *,
    secure_boot_ok: bool,
) -> list[Check]:
    """All checks of this file for a planned driver."""
    return [
        secure_boot(node, secure_boot_ok),
        *disk(node, driver, data),
        *conflicts(node, driver, row, data),
    ]


def secure_boot(node: Mapping[str, Any], accepted: bool) -> Check:
    """Modules built on the node are refused at load under Secure Boot unless their key is enrolled."""
    state = node.get("secure_boot")
    if state != "enabled":
        return Check("node.secure_boot", PASS if state else SKIP, state or "unknown")
    if accepted:
        remedy = "Keep the machine-owner key that signs DKMS modules enrolled."
        return Check("node.secure_boot", WARN, state, "a key enrolled for DKMS", remedy)
    return Check(
        "node.secure_boot",
        FAIL,
        state,
        "disabled, or a machine-owner key enrolled for DKMS",
        "Disable Secure Boot in the firmware, or enrol DKMS's key (mokutil --import) and set preflight_secure_boot_ok.",
    )


def ready(node: Mapping[str, Any], driver: Mapping[str, Any]) -> bool:
    """Whether the planned driver and its headers are there for the running kernel, so that nothing has to be fetched."""
    version = (node.get("driver") or {}).get("module_version")
    if not version or not node["kernel"]["headers"]:
        return False
    if driver["version"]:
        return bool(version == driver["version"])
    return bool(compat.branch_of(version) == driver["branch"])


def disk(node: Mapping[str, Any], driver: Mapping[str, Any], data: compat.Data) -> list[Check]:
    """Free bytes against what an installation needs. Where the driver is installed already, low space only warns."""
    checks = []
    free = node.get("disk") or {}
    there = ready(node, driver)
    for path, limits in data["disk"].items():
        have = free.get(path)
        subject = path
        if have is None:
            continue
        if have >= limits["warn"]:
            checks.append(Check("node.disk", PASS, size(have), subject=subject))
            continue
        short = have < limits["fail"] and not there
        needed = limits["fail"] if short else limits["warn"]
        checks.append(
            Check(
                "node.disk",
                FAIL if short else WARN,
                f"{size(have)} free",
                f"at least {size(needed)}",
                f"Make room under {path}: old kernels, package caches and container images first.",
                subject=subject,
            )
        )
    return checks


def size(number: int) -> str:
    """Bytes in words: `1.5 GB`, `90 MB` (decimal)."""
    return f"{number / 1e9:.1f} GB" if number >= 1e9 else f"{number / 1e6:.0f} MB"


def conflicts(node: Mapping[str, Any], driver: Mapping[str, Any], row: Mapping[str, Any], data: compat.Data) -> list[Check]:
    """Installations that the planned one cannot live with."""
    checks = []
    facts = node.get("driver") or {}
    packages = node.get("packages") or {}
    if driver["source"] == "distribution" and facts.get("runfile"):
        checks.append(
            _conflict(
                "driver",
                f"NVIDIA's installer ran here (version {facts.get('library_version') or 'unknown'})",
                "no files of it beside the distribution's packages",
                "Run `nvidia-uninstall` on the node, or set inferack_driver_source to runfile.",
            )
        )
    beside = sorted(name for name in packages if any(re.search(pattern, name) for pattern in row["driver"]["conflicts"]))
    if driver["source"] == "runfile" and beside:
        checks.append(
            _conflict(
                "driver",
                f"driver packages {', '.join(beside)}",
                "no driver packages beside NVIDIA's installer",
                "Remove these packages, or set inferack_driver_source to distribution.",
            )
        )
    if (node.get("docker") or {}).get("snap"):
        checks.append(
            _conflict(
                "docker",
                "Docker from snap",
                "Docker from packages: the snap's confinement hides the GPUs",
                "Move its containers elsewhere and run `snap remove docker` on the node.",
            )
        )
    old = sorted(
        str(source["file"])
        for source in node.get("sources") or []
        if PurePosixPath(str(source.get("file", ""))).name in data["leftover_lists"]
    )
    if old:
        checks.append(
            Check(
                "node.conflicts",
                WARN,
                f"repository lists of an earlier set-up: {', '.join(old)}",
                "one list for NVIDIA's repository",
                "Remove these files: apt refuses two Signed-By for one source.",
                subject="repositories",
            )
        )
    return checks or [Check("node.conflicts", PASS, "none")]


def _conflict(subject: str, found: str, expected: str, remedy: str) -> Check:
    return Check("node.conflicts", FAIL, found, expected, remedy, subject=subject)
