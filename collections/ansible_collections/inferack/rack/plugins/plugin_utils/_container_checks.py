# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Judges what `node_info` says of the container engine and of NVIDIA's container toolkit.

Pure functions; runs on the control node only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, Check, as_dict, as_dicts

Facts = Mapping[str, Any]
Checks = list[dict[str, Any]]

ENGINE = "container.engine"
DAEMON_JSON = "container.daemon_json"
TOOLKIT = "container.toolkit"
RUNTIME = "container.runtime"

#: What `nvidia-ctk runtime configure --runtime=docker` writes.
NVIDIA_RUNTIME: dict[str, Any] = {"path": "nvidia-container-runtime", "args": []}

#: What dockerd writes when it cannot start, most telling first. Sources: moby/moby daemon/config and cmd/dockerd; its issues
#: 44905 and 41268.
_REFUSALS = tuple(
    re.compile(pattern)
    for pattern in (
        r"unable to configure the Docker daemon with file [^:]+: (?P<what>.+)",
        r"failed to start daemon: (?P<what>.+)",
        r"failed to start containerd: (?P<what>.+)",
        r"level=fatal msg=\"?(?P<what>.+?)\"?$",
        r"^(?P<what>(?:unknown flag|invalid argument|Status): .+)",
    )
)


def dockerd_error(lines: Sequence[str]) -> str:
    """dockerd's own error in the unit's journal: the last line of the most telling kind; empty when there is none."""
    for pattern in _REFUSALS:
        for line in reversed(lines):
            match = pattern.search(line.strip())
            if match:
                return match["what"].strip()
    return ""


def dockerd_refused(lines: Sequence[str], path: str, put_back: bool, running: bool) -> Checks:
    """The failing check of an engine that did not start.

    Args:
        lines: the unit's journal, newest last.
        path: its configuration file.
        put_back: the file had been changed and is as it was before.
        running: it runs again on the old file.
    """
    said = dockerd_error(lines) or next((line.strip() for line in reversed(lines) if line.strip()), "nothing in its journal")
    evidence = [line for line in lines if line.strip()][-15:]
    if put_back:
        state = "and the engine runs" if running else "but the engine does not run with that either: read journalctl -u docker"
        check = Check(
            id=DAEMON_JSON,
            status=FAIL,
            found=f"dockerd does not start with the merged {path}: {said}",
            expected="an engine that starts with the merged settings",
            remedy=f"Correct the settings that are merged and run again; {path} is as it was before {state}",
            evidence=evidence,
        )
    else:
        check = Check(
            id=ENGINE,
            status=FAIL,
            found=f"dockerd does not start: {said}",
            expected="a running Docker Engine",
            remedy="Mend what dockerd complains about (journalctl -u docker), then run again",
            evidence=evidence,
        )
    return [as_dict(check)]


def engine_conflicts(node: Facts, conflicts: Iterable[str], wanted: Iterable[str]) -> Checks:
    """What keeps the engine from being installed: Docker from snap, or packages that exclude the wanted ones.

    Args:
        node: the fact `inferack_node`.
        conflicts: names of packages that exclude the engine's.
        wanted: the engine's packages; once the first is there, its package manager has settled the matter.
    """
    docker = node.get("docker") or {}
    installed = node.get("packages") or {}
    first = next(iter(wanted), "")
    if docker.get("snap"):
        return as_dicts(
            [
                Check(
                    id=ENGINE,
                    status=FAIL,
                    found=f"Docker from snap ({docker.get('path')})",
                    expected="Docker Engine from packages, since the one from snap cannot use NVIDIA's container toolkit",
                    remedy="Save its containers' data, remove it with `snap remove --purge docker`, then run again",
                )
            ]
        )
    excluding = [] if first in installed else sorted(set(conflicts) & set(installed))
    if excluding:
        return as_dicts(
            [
                Check(
                    id=ENGINE,
                    status=FAIL,
                    found=f"{', '.join(excluding)} installed",
                    expected=f"none of the packages that exclude {first}",
                    remedy=f"Remove {', '.join(excluding)}, then run again",
                )
            ]
        )
    return []


def engine_checks(node: Facts) -> Checks:
    """`container.engine`: the engine answers, and is not snap's."""
    docker = node.get("docker") or {}
    if docker.get("running") and not docker.get("snap"):
        return [
            as_dict(
                Check(
                    id=ENGINE, status=PASS, found=f"Docker Engine {docker.get('version')}", expected="a running Docker Engine"
                )
            )
        ]
    if docker:
        found = f"Docker {docker.get('version') or 'of unknown version'} at {docker.get('path')} that does not answer"
        remedy = "Start it with `systemctl start docker` and read journalctl -u docker, then run again"
    else:
        found, remedy = "no Docker Engine", "Run the role container_runtime on this node"
    if docker.get("snap"):
        return engine_conflicts(node, [], [])
    return [as_dict(Check(id=ENGINE, status=FAIL, found=found, expected="a running Docker Engine", remedy=remedy))]


def upstream(version: str) -> str:
    """The upstream part of a package's version: `1.20.0` of `1:1.20.0-1` and of `1.20.0-1.x86_64`."""
    return version.split(":")[-1].split("-")[0]


def _installed(node: Facts, names: Iterable[str]) -> dict[str, str | None]:
    """Upstream version of each package; None where it isn't installed."""
    packages = node.get("packages") or {}
    return {name: upstream(str(packages[name])) if packages.get(name) else None for name in names}


def toolkit_right(node: Facts, names: Iterable[str], version: str = "") -> bool:
    """Whether all packages are installed at one version, and at `version` when that is given."""
    found = set(_installed(node, names).values())
    return len(found) == 1 and None not in found and (not version or found == {version})


def toolkit_settings(node: Facts, cdi: str, default_runtime: bool, cdi_since: str) -> dict[str, Any]:
    """What the toolkit needs in Docker's daemon.json.

    Args:
        node: the fact `inferack_node`.
        cdi: `auto` (where Docker knows CDI), `always` or `never`.
        default_runtime: make NVIDIA's runtime the default one.
        cdi_since: Docker's first major version with CDI.
    """
    settings: dict[str, Any] = {"runtimes": {"nvidia": NVIDIA_RUNTIME}}
    if default_runtime:
        settings["default-runtime"] = "nvidia"
    major = re.match(r"\d+", str((node.get("docker") or {}).get("version") or ""))
    if cdi == "always" or (cdi == "auto" and major is not None and int(major[0]) >= int(cdi_since)):
        settings["features"] = {"cdi": True}
    return settings


def toolkit_checks(node: Facts, names: Sequence[str], version: str = "") -> Checks:
    """`container.toolkit`: all packages are there, of one version. `container.runtime`: the engine lists the runtime."""
    installed = _installed(node, names)
    missing = [name for name, found in installed.items() if found is None]
    versions = sorted({found for found in installed.values() if found is not None})
    wanted = f"{', '.join(names)} of version {version}" if version else f"{', '.join(names)} of one version"
    evidence = [f"{name} {found or 'not installed'}" for name, found in installed.items()]
    if missing:
        toolkit = Check(
            id=TOOLKIT,
            status=FAIL,
            found=f"{', '.join(missing)} not installed",
            expected=wanted,
            remedy="Run the role nvidia_container_toolkit on this node; it installs what is missing",
            evidence=evidence,
        )
    elif not toolkit_right(node, names, version):
        toolkit = Check(
            id=TOOLKIT,
            status=FAIL,
            found="; ".join(evidence),
            expected=wanted,
            remedy="Run the role nvidia_container_toolkit on this node; it makes the versions equal",
            evidence=evidence,
        )
    else:
        toolkit = Check(id=TOOLKIT, status=PASS, found=f"version {versions[0]}", expected=wanted, evidence=evidence)
    return as_dicts([toolkit, _runtime(node)])


def _runtime(node: Facts) -> Check:
    docker = node.get("docker") or {}
    runtimes = docker.get("runtimes") or []
    expected = "nvidia among Docker's runtimes"
    if not docker.get("running"):
        remedy = "Start Docker (systemctl start docker), then run again"
        return Check(id=RUNTIME, status=FAIL, found="no Docker Engine that answers", expected=expected, remedy=remedy)
    if "nvidia" in runtimes:
        return Check(id=RUNTIME, status=PASS, found=runtimes, expected=expected)
    return Check(
        id=RUNTIME,
        status=FAIL,
        found=runtimes or "no runtimes",
        expected=expected,
        remedy="Run the role nvidia_container_toolkit; if daemon.json has the runtime already, restart Docker",
        evidence=[f"docker info: runtimes {', '.join(runtimes) or 'none'}"],
    )


#: What package managers say, and what to do. Sources: apt 2.6 and 2.9, dnf 4.14, Ansible's apt and dnf modules.
_PACKAGE_TROUBLE = (
    (re.compile(r"(?i)no package|unable to (?:locate package|find a match)|no available .*candidate|version .* was not found"),
     "Enable a repository that has it on this node, then run again"),
    (re.compile(r"(?i)could not get lock|is locked|lock(?:file)? .*held|failed to lock"),
     "Wait until the other package manager has finished, then run again"),
    (re.compile(r"(?i)conflicting values set for option signed-by"),
     "Keep one of the files that name this repository, then run again"),
    (re.compile(r"(?i)NO_PUBKEY|not signed|gpg|signature"),
     "Correct the repository's key, then run again"),
    (re.compile(r"(?i)unmet dependencies|nothing provides|conflicts? with|held broken packages"),
     "Remove or update the packages that it names, then run again"),
    (re.compile(r"(?i)failed to (?:fetch|download)|could not resolve|cannot download|connection|timed out|curl error"),
     "Bring the repository within reach of this node, then run again"),
    (re.compile(r"(?i)no space left|not enough free space"),
     "Free space on this node, then run again"),
)  # fmt: skip


def _telling_lines(result: Mapping[str, Any]) -> list[str]:
    """The lines of a failed package task that name the cause, most telling first."""
    lines = [str(line).strip() for line in result.get("failures") or []]
    for key in ("stderr", "msg", "module_stderr", "stdout"):
        lines += [line.strip() for line in str(result.get(key) or "").splitlines() if line.strip()]
    own = [line for line in lines if line.startswith(("E: ", "Error: "))]
    empty = ("Failed to install some of the specified packages", "Depsolve Error occurred:", "MODULE FAILURE")
    return list(dict.fromkeys([*own, *(line for line in lines if line not in empty)])) or lines


def package_failure(result: Mapping[str, Any], check: str, packages: Iterable[str]) -> Checks:
    """The failing check of a package task that failed.

    Args:
        result: `ansible_failed_result`.
        check: id of the check that the packages matter for.
        packages: what was to be installed.
    """
    lines = _telling_lines(result)
    first = lines[0] if lines else "no message"
    remedy = next(
        (text for pattern, text in _PACKAGE_TROUBLE for line in lines if pattern.search(line)),
        "Mend what the package manager names, then run again",
    )
    return [
        as_dict(
            Check(
                id=check,
                status=FAIL,
                found=f"the package manager refused: {first.rstrip('.')}",
                expected=f"{', '.join(packages)} installed",
                remedy=remedy,
                evidence=lines[:20],
            )
        )
    ]
