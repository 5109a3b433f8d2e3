# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Where a planned driver comes from: packages and headers, apt components, NVIDIA's installer.

Pure; runs on the control node only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, WARN, Check
from ansible_collections.inferack.rack.plugins.plugin_utils import _compat as compat
from ansible_collections.inferack.rack.plugins.plugin_utils._node import ready

DISTRIBUTION = "distribution"
RUNFILE = "runfile"

#: The file in which the driver role enables further apt components: our own, so that it never counts as the node's.
COMPONENTS_FILE = "inferack-driver.sources"


@dataclass(frozen=True)
class Choice:
    """A driver that can be installed and drives the GPUs. offer: packages, module_name, dkms_name, persistenced."""

    source: str
    branch: str
    flavour: str
    offer: Mapping[str, Any]


def refusal(found: str, expected: str, remedy: str, subject: str = "") -> Check:
    """A failing `driver.plan`."""
    return Check("driver.plan", FAIL, found, expected, remedy, subject=subject)


def planned_driver(
    node: Mapping[str, Any],
    row: Mapping[str, Any],
    choice: Choice,
    version: str,
    given: Mapping[str, Any],
    data: compat.Data,
) -> tuple[dict[str, Any], list[Check]]:
    """The plan's `driver`, and the checks on where it comes from.

    version: exact version asked for, or empty. given: `inferack_driver_runfile`.
    """
    checks: list[Check] = []
    runfile = None
    if choice.source == RUNFILE:
        runfile, checks = _runfile(node, choice, version, given, data)
        version = version or (runfile["version"] if runfile else "")
    packaged = row["driver"]["distribution"] or {}
    packages = list(choice.offer["packages"])
    if version and choice.source == DISTRIBUTION:
        unpinned = packaged.get("unpinned") or []
        packages = [name if name in unpinned else f"{name}={version}*" for name in packages]
    components = list(packaged.get("components") or []) if choice.source == DISTRIBUTION else []
    driver = {
        "branch": choice.branch,
        "version": version,
        "flavour": choice.flavour,
        "source": choice.source,
        "packages": packages,
        "headers": _headers(node, row),
        "build": list(row["build"]),
        "components": components,
        "apt_sources": _apt_sources(node, row, components),
        "remove": [],
        "module_name": choice.offer["module_name"],
        "dkms_name": choice.offer["dkms_name"],
        "persistenced": choice.offer["persistenced"],
        "runfile": runfile,
    }
    driver["ready"] = ready(node, driver)
    driver["reboot"] = reboot_needed(node, driver)
    inlined = [entry["uris"][0] for entry in driver["apt_sources"] if entry["signed_by"] == "inline"]
    if inlined:
        checks.append(
            refusal(
                f"the key of {', '.join(inlined)} written into the source itself",
                f"components {', '.join(components)} enabled",
                "Add the components to that source by hand: a second entry for it would need the same key.",
                "apt components",
            )
        )
    return driver, checks


def reboot_needed(node: Mapping[str, Any], driver: Mapping[str, Any]) -> str:
    """Whether the node has to boot before it runs the planned driver: `yes`, `no`, or `in use`.

    `in use`: another NVIDIA module is loaded. It is exchanged without a reboot unless something uses it, which only the
    attempt shows.
    """
    if (node.get("nouveau") or {}).get("loaded"):
        return "yes"
    facts = node["driver"]
    loaded = facts.get("loaded_version")
    if loaded and not (driver["ready"] and loaded == facts.get("module_version")):
        return "in use"
    return "no"


def _headers(node: Mapping[str, Any], row: Mapping[str, Any]) -> list[str]:
    """Header packages of exactly the running kernel.

    The first is left out where the kernel's headers are there without the package: a kernel that somebody built himself.
    """
    release = node["kernel"]["release"]
    names = [pattern.replace("{release}", release) for pattern in row["headers"]]
    first = row["headers"][0].replace("-{release}", "")
    installed = node.get("packages") or {}
    if node["kernel"]["headers"] and names[0] not in installed and first not in installed:
        return names[1:]
    return names


def _apt_sources(node: Mapping[str, Any], row: Mapping[str, Any], components: Sequence[str]) -> list[dict[str, Any]]:
    """The distribution's own sources again, with the components that they lack.

    URIs and Signed-By are those of the node's entries: apt refuses two different Signed-By for one source, and a rack's mirror
    has to stay the mirror. Backports and other people's repositories are left alone.
    """
    codename = row.get("codename")
    if not components or not codename:
        return []
    suites = [codename, f"{codename}-updates", f"{codename}-security", f"{codename}/updates"]
    own: dict[tuple[str, tuple[str, ...], str | None], set[str]] = {}
    have: dict[tuple[str, str], set[str]] = {}
    for source in node.get("sources") or []:
        if str(source.get("file", "")).endswith(COMPONENTS_FILE) or "deb" not in str(source.get("type", "deb")).split():
            continue
        for uri in source.get("uris") or []:
            for suite in source.get("suites") or []:
                if suite not in suites or "main" not in (source.get("components") or []):
                    continue
                have.setdefault((uri, suite), set()).update(source.get("components") or [])
                own.setdefault((uri, tuple(source["suites"]), source.get("signed_by")), set()).add(suite)
    entries: list[dict[str, Any]] = []
    for (uri, _listed, signed_by), found in own.items():
        lacking: dict[tuple[str, ...], list[str]] = {}
        for suite in sorted(found, key=suites.index):
            missing = tuple(name for name in components if name not in have[uri, suite])
            if missing:
                lacking.setdefault(missing, []).append(suite)
        entries.extend(
            {"uris": [uri], "suites": names, "components": list(missing), "signed_by": signed_by}
            for missing, names in lacking.items()
        )
    return entries


def _runfile(
    node: Mapping[str, Any], choice: Choice, version: str, given: Mapping[str, Any], data: compat.Data
) -> tuple[dict[str, Any] | None, list[Check]]:
    """Address, sha256 and version of NVIDIA's installer, and what is missing of them."""
    known = data["runfile"]
    version_asked = version
    version = version or str(given.get("version") or "") or known["versions"].get(choice.branch, {}).get("version", "")
    if not version:
        return None, [
            refusal(
                f"no version of R{choice.branch} for NVIDIA's installer",
                "an exact version",
                "Set inferack_driver_runfile with url, sha256 and version, or inferack_driver_version.",
                "installer",
            )
        ]
    if given.get("version") and not version_asked and compat.branch_of(str(given["version"])) != choice.branch:
        return None, [
            refusal(
                f"inferack_driver_runfile of version {given['version']}",
                f"a version of R{choice.branch}",
                "Change url, sha256 and version of inferack_driver_runfile to one of that branch, or ask for its own branch.",
                "installer",
            )
        ]
    if given.get("version") and str(given["version"]) != version:
        return None, [
            refusal(
                f"inferack_driver_runfile of version {given['version']}",
                f"version {version}",
                "Make inferack_driver_version and the version of inferack_driver_runfile the same.",
                "installer",
            )
        ]
    architecture = str(node["os"]["architecture"])
    url = str(given.get("url") or known["url"]).format(version=version, architecture=architecture)
    sha256 = str(given.get("sha256") or known["sha256"].get(f"{version}-{architecture}") or "").lower()
    checks = []
    if sha256 == known["accept"]:
        sha256 = ""
        checks.append(
            Check(
                "driver.plan",
                WARN,
                f"an installer that nobody checked ({url})",
                "a sha256",
                "Put the file's sha256 into inferack_driver_runfile.",
                subject="installer",
            )
        )
    elif len(sha256) != 64 or set(sha256) - set("0123456789abcdef"):
        checks.append(
            refusal(
                f"{'no sha256' if not sha256 else 'no valid sha256'} for {url}",
                "64 hexadecimal digits in inferack_driver_runfile.sha256",
                f"Take it from a copy you trust (sha256sum), or write {known['accept']} there to run the file unchecked.",
                "installer",
            )
        )
    return {"url": url, "sha256": sha256, "version": version, "arguments": _arguments(choice, known)}, checks


def _arguments(choice: Choice, known: Mapping[str, Any]) -> list[str]:
    """The installer's arguments; the newest spelling of the flavour's option that the branch understands, if any."""
    arguments = list(known["arguments"])
    for first, options in sorted(known["flavour_options"].items(), reverse=True):
        if int(choice.branch) >= int(first):
            return [*arguments, options[choice.flavour]]
    return arguments
