# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Naming the cause of a failed installation from what package manager, DKMS, compiler and installer printed.

Pure functions over texts; they run on the control node only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils import _dkms_log
from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, Check, as_dict

#: How many lines of the output a check keeps as evidence.
EVIDENCE = 12

#: How much of a line it keeps: compilers print commands of several thousand characters.
WIDTH = 300


@dataclass(frozen=True)
class Cause:
    """A pattern in the output and the check that it means. `{1}` in texts is the pattern's first group."""

    pattern: str
    id: str
    found: str
    expected: str
    remedy: str
    subject: str = ""


#: First match wins; the order goes from what hides everything else (locks, disk) to what is a mere consequence.
#: Sources of the wordings: apt 2.6 and 2.9, dpkg 1.21, dnf 4.14, rpm 4.18, dkms 3.0 and 3.2, NVIDIA's installer 535 to 580.
CAUSES: tuple[Cause, ...] = (
    Cause(
        r"No space left on device|needs [\d.]+ ?[kMG]?i?B (?:more space )?on the .* filesystem|not have enough free space",
        "node.disk",
        "a full disk while installing",
        "room for the driver",
        "Make room (old kernels, package caches, container images) and run again.",
        "installation",
    ),
    Cause(
        r"((?:Could not get lock|Unable to (?:acquire|lock)|Failed to lock apt|Waiting for process with pid)[^\n]*)",
        "node.package_manager",
        "another package manager at work: {1}",
        "a free package manager",
        "Wait until it has finished, or end it, and run again.",
    ),
    Cause(
        r"dpkg was interrupted",
        "node.package_manager",
        "an installation that was interrupted",
        "a consistent package database",
        "Run `dpkg --configure -a` on the node, then run again.",
    ),
    Cause(
        r"(Conflicting values set for option Signed-By[^\n]*)",
        "node.conflicts",
        "{1}",
        "one Signed-By for each source",
        "Remove the older of the two lists under /etc/apt/sources.list.d and run again.",
        "repositories",
    ),
    Cause(
        r"(EXPKEYSIG [^\n]*|NO_PUBKEY \w+|[^\n]*GPG check FAILED|[^\n]*is not signed[^\n]*)",
        "driver.plan",
        "a repository whose signature is not accepted: {1}",
        "a valid signature",
        "Install the repository's current key and run again.",
        "repositories",
    ),
    Cause(
        r"(?:Unable to locate package|No package matching|No match for argument:?|No package) '?([\w.+*:-]+)'?"
        r"|Package '?([\w.+*:-]+)'? has no installation candidate"
        r"|E: Version '[^']*' for '([\w.+*:-]+)' was not found|no available installation candidate for ([\w.+*:=-]+)",
        "driver.plan",
        "no package {1} in the node's repositories",
        "a package of that name and version",
        "Enable the repository that has it, or choose another branch, version or source.",
        "packages",
    ),
    Cause(
        r"Held packages were changed|you have held broken packages|versionlock plugin"
        r"|(?:is|are) filtered out by exclude filtering",
        "driver.plan",
        "held packages that the change would touch",
        "no hold on driver packages",
        "Lift the hold (apt-mark unhold, dnf versionlock delete) and run again.",
        "packages",
    ),
    Cause(
        r"(Failed to fetch [^\n]*|[^\n]*Temporary failure resolving[^\n]*|[^\n]*Could not (?:resolve host|connect)[^\n]*"
        r"|Curl error[^\n]*|[^\n]*Failed to download metadata[^\n]*)",
        "driver.plan",
        "a repository that does not answer: {1}",
        "all repositories within reach",
        "Check the node's network, proxy and mirror, then run again.",
        "repositories",
    ),
    Cause(
        r"(?:unmet dependencies|Depends: [^\n]*but [^\n]*)",
        "driver.plan",
        "packages that cannot be installed together",
        "one consistent set of driver packages",
        "Remove packages of other driver branches and repositories, then run again.",
        "packages",
    ),
    Cause(
        r"(?:integrity|checksum)[^\n]*(?:fail|mismatch|did not match)",
        "driver.plan",
        "an installer that is not the expected file",
        "the sha256 in inferack_driver_runfile",
        "Correct the sha256, or replace the file.",
        "installer",
    ),
)

#: What DKMS, dpkg's hook and NVIDIA's installer print when a module did not build.
BUILD_FAILED = re.compile(
    r"Bad return status for module build|Bad exit status: 10|bad exit status: 10|Error! .*(?:build|Build)"
    r"|Failed to (?:build|run|install the kernel module)|[Uu]nable to build the (?:NVIDIA )?kernel module"
    r"|dkms.*(?:failed|status: 10)"
)


def dkms_failure(log: str, node: Mapping[str, Any], driver: Mapping[str, Any]) -> Check:
    """The check for a module that did not build, from make.log."""
    what = f"{driver['dkms_name']} of R{driver['branch']}"
    both = _dkms_log.compilers_of(log)
    return _dkms_log.verdict(_dkms_log.read(log), what, node["kernel"]["release"], both, evidence=_tail(log))


def install_failure(
    result: Mapping[str, Any], node: Mapping[str, Any], driver: Mapping[str, Any], log: str = ""
) -> list[dict[str, Any]]:
    """The one check that names why an installation failed.

    result: the failed task's result. log: text of DKMS's make.log, where the node has one; only read when the output
    speaks of a failed build.
    """
    text = output(result)
    if log and BUILD_FAILED.search(text):
        return [as_dict(dkms_failure(log, node, driver))]
    for cause in CAUSES:
        match = re.search(cause.pattern, text)
        if not match:
            continue
        group = next((part for part in match.groups() if part), "")
        identifier, subject, remedy = cause.id, cause.subject, cause.remedy
        if identifier == "driver.plan" and group in driver["headers"]:
            identifier, subject = "driver.headers", ""
            remedy = "Update the kernel and reboot into it, or add a mirror that still has the running one's headers."
        found = cause.found.replace("{1}", " ".join(group.split()))
        return [as_dict(Check(identifier, FAIL, found, cause.expected, remedy, _tail(text), subject))]
    if BUILD_FAILED.search(text):
        return [as_dict(dkms_failure(log or text, node, driver))]
    last = next((line for line in reversed(text.splitlines()) if line.strip()), "no output")
    return [
        as_dict(
            Check(
                "driver.plan",
                FAIL,
                f"an installation that failed: {' '.join(last.split())[:300]}",
                "the driver installed",
                "Read the evidence, mend it on the node, and run again.",
                _tail(text),
                "installation",
            )
        )
    ]


def output(result: Mapping[str, Any]) -> str:
    """All text of a task's result: message, both streams, and those of a loop's items."""
    parts: list[str] = []
    for key in ("msg", "stdout", "stderr", "module_stderr", "module_stdout"):
        value = result.get(key)
        if isinstance(value, str) and value.strip():
            parts.append(value)
        elif isinstance(value, (list, tuple)):
            parts.extend(str(line) for line in value)
    failures = result.get("failures")
    if isinstance(failures, Sequence) and not isinstance(failures, str):
        parts.extend(str(line) for line in failures)
    for item in result.get("results") or []:
        if isinstance(item, Mapping):
            parts.append(output(item))
    return "\n".join(dict.fromkeys(parts))


def _tail(text: str) -> list[str]:
    return [line.rstrip()[:WIDTH] for line in text.splitlines() if line.strip()][-EVIDENCE:]
