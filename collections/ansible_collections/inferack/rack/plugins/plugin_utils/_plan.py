# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""The plan for a node: what will be installed on it, or why nothing can be (docs/architecture.md, `inferack_plan`).

Pure: facts, the operator's request and the data in; the plan out. Impossible requests come back as failing checks that name
both sides of the conflict and the nearest choice that works, never as an exception. Runs on the control node only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, WARN, Check, as_dicts
from ansible_collections.inferack.rack.plugins.plugin_utils import _compat as compat
from ansible_collections.inferack.rack.plugins.plugin_utils._driver_source import (
    DISTRIBUTION,
    RUNFILE,
    Choice,
    planned_driver,
    refusal,
)
from ansible_collections.inferack.rack.plugins.plugin_utils._node import check_node


@dataclass(frozen=True)
class Request:
    """What the operator said. Empty text: not said.

    branch: a number, or `latest`. version: an exact one; `latest` is read as the branch's newest.
    """

    branch: str = ""
    version: str = ""
    flavour: str = ""
    source: str = ""
    runfile: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "triton"
    images: Sequence[str] = ()
    gpu_expected: Mapping[str, Any] = field(default_factory=dict)
    gpu_node: bool = False
    reboot_ok: bool = False
    secure_boot_ok: bool = False
    today: date = date.min

    @classmethod
    def read(cls, raw: Mapping[str, Any]) -> Request:
        """From a dictionary with these keys, all optional; `today` as an ISO date. Raises ValueError for a wrong value."""
        unknown = sorted(set(raw) - set(cls.__dataclass_fields__))
        if unknown:
            raise ValueError(f"node_plan: unknown keys in the request: {', '.join(unknown)}")
        for name in ("gpu_node", "reboot_ok", "secure_boot_ok"):
            # The text "false" is true to Python, and would reboot a node that nobody allowed to.
            if not isinstance(raw.get(name, False), bool):
                raise ValueError(f"node_plan: {name} must be true or false, found {raw[name]!r}")
        today = raw.get("today") or date.min
        branch, version = _wanted(str(raw.get("branch") or ""), str(raw.get("version") or ""))
        return cls(
            branch=branch,
            version=version,
            flavour=str(raw.get("flavour") or ""),
            source=str(raw.get("source") or ""),
            runfile=dict(raw.get("runfile") or {}),
            engine=str(raw.get("engine") or "triton"),
            images=[str(image) for image in raw.get("images") or [] if image],
            gpu_expected=dict(raw.get("gpu_expected") or {}),
            gpu_node=bool(raw.get("gpu_node")),
            reboot_ok=bool(raw.get("reboot_ok")),
            secure_boot_ok=bool(raw.get("secure_boot_ok")),
            today=today if isinstance(today, date) else date.fromisoformat(str(today)),
        )

    @property
    def latest(self) -> bool:
        """Whether the newest branch is asked for, whichever that is today."""
        return self.branch == compat.LATEST

    @property
    def wanted_branch(self) -> str:
        """The branch asked for, directly or through an exact version; empty for `latest`."""
        return "" if self.latest else self.branch or compat.branch_of(self.version)


def _wanted(branch: str, version: str) -> tuple[str, str]:
    """Branch and version as the rest reads them: `R580` is `580`; `latest` of a named branch is what its newest release is."""
    branch, version = branch.strip().lower(), version.strip()
    if re.fullmatch(r"r\d+", branch):
        branch = branch[1:]
    if version.lower() == compat.LATEST:
        branch, version = branch or compat.LATEST, ""
    return branch, version


def plan(node: Mapping[str, Any], raw: Mapping[str, Any], data: compat.Data) -> dict[str, Any]:
    """The plan of docs/architecture.md for a node. Failing entries in its `checks` mean that nothing may be changed.

    node: the fact `inferack_node`. raw: see `Request.read`, which raises ValueError for a request of the wrong form.
    """
    request = Request.read(raw)
    for part in ("os", "kernel", "gpus", "nouveau", "driver"):
        if node.get(part) is None:
            raise ValueError(f"the node's {part} could not be read; see `unread` in the result of inferack.rack.node_info")
    system = node["os"]
    row = compat.distribution(system["distribution"], str(system["major"]), data)
    gpus = compat.identify(node.get("gpus") or [], data)
    checks = [_os_check(system, row, data), *_gpu_checks(gpus, request)]
    result: dict[str, Any] = {
        "gpus": {
            "count": len(gpus),
            "products": [gpu.name for gpu in gpus],
            "architectures": sorted({gpu.architecture or "unknown" for gpu in gpus}),
        },
        "driver": None,
        "initramfs": (node.get("initramfs") or {}).get("tool") or (row or {}).get("initramfs"),
        "container": dict((row or {}).get("container") or {}),
        "engine": request.engine,
        "images": {"triton": None},
        "reboot_ok": request.reboot_ok,
        "warnings": [],
        "checks": [],
    }
    if row is not None and gpus:
        choice, driver_checks = choose(row, gpus, request, data)
        checks.extend(driver_checks)
        if choice is not None:
            driver, more = planned_driver(node, row, choice, request.version, request.runfile, data)
            result["driver"] = driver
            result["images"]["triton"] = compat.newest_triton(driver["version"] or driver["branch"], data, gpus)
            checks.extend(more)
            checks.extend(_latest_checks(choice, request, data))
            checks.extend(_life_checks(choice, gpus, request, data))
            checks.extend(_image_checks(node, row, driver, gpus, request, data))
            checks.extend(check_node(node, driver, row, data, secure_boot_ok=request.secure_boot_ok))
    checks.extend(_unknown_gpus(gpus))
    result["checks"] = as_dicts(checks)
    result["warnings"] = [f"{check.id}: {check.found}; {check.remedy}" for check in checks if check.status == WARN]
    return result


def choose(
    row: Mapping[str, Any], gpus: Sequence[compat.Gpu], request: Request, data: compat.Data
) -> tuple[Choice | None, list[Check]]:
    """The first choice that satisfies both the request and the GPUs, or a refusal."""
    contradiction = _contradiction(request)
    if contradiction is not None:
        return None, [contradiction]
    for choice in _choices(row, gpus, request, data):
        return choice, [Check("driver.plan", PASS, _words(choice), None)]
    return None, [_refuse(row, gpus, request, data)]


def _contradiction(request: Request) -> Check | None:
    """What is wrong with branch and version by themselves. A misspelled version would otherwise count as none."""
    branch, version = request.branch, request.version
    if branch and not request.latest and not branch.isdigit():
        return refusal(f"inferack_driver_branch {branch}", "a number such as 580, or latest", "Correct it, or leave it empty.")
    if version and not re.fullmatch(r"\d{3,4}(\.\d{1,3}){1,2}", version):
        remedy = "Name the release, or leave it empty for the branch's newest."
        return refusal(f"inferack_driver_version {version}", "an exact version such as 580.95.05", remedy)
    if branch and version and compat.branch_of(version) != branch:
        remedy = "Leave one of the two out"
        if not request.latest:
            remedy += f", or name a version that begins with {branch}"
        found = f"inferack_driver_branch {branch} and inferack_driver_version {version}"
        return refusal(found, "a version of that branch", f"{remedy}.")
    return None


def _words(choice: Choice) -> str:
    where = "distribution's packages" if choice.source == DISTRIBUTION else "NVIDIA's installer"
    return f"R{choice.branch}, {choice.flavour} modules, {where}"


def _sources(row: Mapping[str, Any], request: Request) -> list[str]:
    if request.source:
        return [request.source]
    default = str(row["driver"]["default_source"])
    return list(dict.fromkeys((default, RUNFILE)))


def _choices(row: Mapping[str, Any], gpus: Sequence[compat.Gpu], request: Request, data: compat.Data) -> Iterator[Choice]:
    """All that satisfies request and GPUs, best first."""
    for source in _sources(row, request):
        offered = _offered(source, row, data)
        for branch in _branch_order(source, row, request, data):
            for flavour in compat.flavours(_driver_of(source, branch, request, data), gpus, data):
                if request.flavour in ("", flavour) and (branch, flavour) in offered:
                    yield Choice(source, branch, flavour, offered[branch, flavour])


def _driver_of(source: str, branch: str, request: Request, data: compat.Data) -> str:
    """The exact version that a branch would be installed in, where that is known already, else the branch.

    A product may need more than a branch's first releases, so that the branch alone does not decide.
    """
    if request.version:
        return request.version
    if source != RUNFILE:
        return branch
    given = str(request.runfile.get("version") or "")
    known = str(data["runfile"]["versions"].get(branch, {}).get("version") or "")
    return next((version for version in (given, known) if compat.branch_of(version) == branch), branch)


def _offered(source: str, row: Mapping[str, Any], data: compat.Data) -> dict[tuple[str, str], dict[str, Any]]:
    """(branch, flavour) → what a source has of it."""
    if source == DISTRIBUTION:
        return compat.offers(row)
    installer = {
        "packages": [],
        "module_name": data["runfile"]["module_name"],
        "dkms_name": data["runfile"]["dkms_name"],
        "persistenced": None,
    }
    return {(branch, flavour): installer for branch, entry in data["branches"].items() for flavour in entry["flavours"]}


def _branch_order(source: str, row: Mapping[str, Any], request: Request, data: compat.Data) -> list[str]:
    if request.wanted_branch:
        return [request.wanted_branch]
    given = compat.branch_of(request.runfile.get("version")) if source == RUNFILE else ""
    if given:
        return [given]
    if request.latest:
        branches = compat.newest_first(request.today, data)
        return branches if source != RUNFILE else [name for name in branches if name in data["runfile"]["versions"]]
    if source == RUNFILE:
        first = str(data["runfile"]["default_branch"])
    else:
        first = str((row["driver"]["distribution"] or {}).get("default_branch", ""))
    return [branch for branch in dict.fromkeys((first, *data["recommended"])) if branch]


def _refuse(row: Mapping[str, Any], gpus: Sequence[compat.Gpu], request: Request, data: compat.Data) -> Check:
    """Why nothing satisfies the request, and the nearest that would."""
    source = _sources(row, request)[0]
    branch = next(iter(_branch_order(source, row, request, data)), "")
    driver = _driver_of(source, branch, request, data)
    name = compat.LATEST if request.latest else request.version or (f"R{branch}" if branch else "")
    asked = [name, f"{request.flavour} modules" if request.flavour else ""]
    found = f"{' with '.join(part for part in asked if part) or source} for {compat.describe(gpus)} on {row['name']}"
    reason = compat.why_not(driver, request.flavour, gpus, data) if branch else ""
    if not reason:
        reason = _not_offered(source, branch, request.flavour, gpus, row, data)
    nearest = next(_relaxed(row, gpus, request, data), None)
    if nearest is None:
        return refusal(found, f"a driver that runs them all: {reason}", "Put these GPUs into different nodes.")
    if request.version and nearest.branch == branch and nearest.flavour == (request.flavour or nearest.flavour):
        return refusal(found, f"a driver that fits ({reason})", f"Set inferack_driver_version to a later release of R{branch}.")
    remedy = (
        f"Set inferack_driver_branch to {nearest.branch} and inferack_driver_flavour to {nearest.flavour}"
        f"{f' and inferack_driver_source to {nearest.source}' if request.source not in ('', nearest.source) else ''}, "
        "or leave them empty."
    )
    return refusal(found, f"a driver that fits ({reason})", remedy)


def _relaxed(row: Mapping[str, Any], gpus: Sequence[compat.Gpu], request: Request, data: compat.Data) -> Iterator[Choice]:
    """What works instead, nearest first: another release of the branch, another branch, another source."""
    for source in dict.fromkeys((request.source, "")):
        if request.version:
            same = Request(branch=compat.branch_of(request.version), flavour=request.flavour, source=source)
            yield from _choices(row, gpus, same, data)
        yield from _choices(row, gpus, Request(source=source), data)


def _not_offered(
    source: str, branch: str, flavour: str, gpus: Sequence[compat.Gpu], row: Mapping[str, Any], data: compat.Data
) -> str:
    packaged = row["driver"]["distribution"]
    if packaged is None:
        return f"{row['name']} packages no NVIDIA driver"
    refused = (packaged.get("refused") or {}).get(branch, {})
    for wanted in [flavour] if flavour else compat.flavours(branch, gpus, data):
        if wanted in refused:
            return str(refused[wanted])
    have = ", ".join(f"R{number} {kind}" for number, kind in _offered(source, row, data))
    return f"{row['name']} packages {have}"


def _os_check(system: Mapping[str, Any], row: Mapping[str, Any] | None, data: compat.Data) -> Check:
    name = f"{system['distribution']} {system['version']} on {system['architecture']}"
    supported = [entry["name"] for entry in data["distributions"].values()]
    if row is None:
        return Check("node.os", FAIL, name, supported, "Install one of these, or add its file to the collection's data.")
    if system["architecture"] not in row["architectures"]:
        return Check(
            "node.os", FAIL, name, f"{row['name']} on {' or '.join(row['architectures'])}", "Use a node of that architecture."
        )
    return Check("node.os", PASS, name)


def _gpu_checks(gpus: Sequence[compat.Gpu], request: Request) -> list[Check]:
    """What the bus shows against what the inventory says is in the node."""
    checks = []
    expected = request.gpu_expected.get("count")
    evidence = [f"{gpu.bus_id} {gpu.name}" for gpu in gpus]
    if gpus:
        checks.append(Check("gpu.present", PASS, f"{len(gpus)} on the PCI bus", evidence=evidence))
    elif request.gpu_node or expected:
        checks.append(
            Check(
                "gpu.present",
                FAIL,
                "no NVIDIA GPU on the PCI bus",
                f"{expected} GPUs" if expected else "at least one GPU",
                "Check that the GPUs are seated, powered and enabled in the firmware, or take the node out of gpu_nodes.",
            )
        )
    if expected is None or not gpus:
        return checks
    if len(gpus) < int(expected):
        remedy = (
            f"Reseat or replace what is missing (the bus shows only {', '.join(gpu.bus_id for gpu in gpus)}), "
            "or correct gpu_expected, then run again."
        )
        checks.append(Check("gpu.count", FAIL, len(gpus), f"{expected} GPUs", remedy, evidence))
    elif len(gpus) > int(expected):
        checks.append(
            Check("gpu.count", WARN, len(gpus), f"{expected} GPUs", "Correct gpu_expected: the node has more.", evidence)
        )
    else:
        checks.append(Check("gpu.count", PASS, len(gpus), int(expected), evidence=evidence))
    return checks


def _unknown_gpus(gpus: Iterable[compat.Gpu]) -> list[Check]:
    return [
        Check(
            "gpu.product",
            WARN,
            f"device id 10de:{gpu.device_id}, which this collection does not know",
            None,
            "Make sure that branch and flavour suit it, and add its id to the collection's data/gpus.yml.",
            subject=f"GPU {gpu.bus_id}",
        )
        for gpu in gpus
        if gpu.architecture is None
    ]


def _latest_checks(choice: Choice, request: Request, data: compat.Data) -> list[Check]:
    """`latest` is another driver another day: what it means today, and how long that is supported."""
    if not request.latest:
        return []
    until = compat.life(choice.branch, data)
    return [
        Check(
            "driver.plan",
            WARN,
            f"latest, which is R{choice.branch} on {request.today.isoformat()}"
            f" ({f'life ends {until}' if until else 'no end of life announced'})",
            "a branch that the inventory names",
            f"Set inferack_driver_branch to {choice.branch}, so that a later run installs the same driver.",
            subject="latest",
        )
    ]


def _life_checks(choice: Choice, gpus: Sequence[compat.Gpu], request: Request, data: compat.Data) -> list[Check]:
    ended = compat.end_of_life(choice.branch, request.today, data)
    if not ended:
        return []
    working = (branch for branch, _flavour in compat.working_branches(gpus, data))
    following = next((branch for branch in working if not compat.end_of_life(branch, request.today, data)), "")
    remedy = f"Plan the move to R{following} (inferack_driver_branch)." if following else "Plan to replace these GPUs."
    return [
        Check(
            "driver.plan",
            WARN,
            f"R{choice.branch}, whose life ended {ended}",
            "a branch that gets security updates",
            remedy,
            subject="life cycle",
        )
    ]


def _image_checks(
    node: Mapping[str, Any],
    row: Mapping[str, Any],
    driver: Mapping[str, Any],
    gpus: Sequence[compat.Gpu],
    request: Request,
    data: compat.Data,
) -> list[Check]:
    """Engine images against driver, GPUs and libc. An image that the data does not know is not judged."""
    checks = []
    for image in request.images if request.engine != "none" else ():
        needs = compat.image_needs(image, data)
        if needs is not None:
            found = _image_check(node, row, driver, gpus, request, needs, data)
            checks.append(replace(found, subject=f"image {image}"))
    return checks


def _image_check(
    node: Mapping[str, Any],
    row: Mapping[str, Any],
    driver: Mapping[str, Any],
    gpus: Sequence[compat.Gpu],
    request: Request,
    needs: compat.ImageNeeds,
    data: compat.Data,
) -> Check:
    have = driver["version"] or driver["branch"]
    wants = f"CUDA {needs.cuda}" if needs.cuda else needs.kind
    if needs.cuda and not needs.known:
        wants = f"{needs.kind} {needs.release} (CUDA {needs.cuda} or later)"
    conflict = compat.image_conflict(needs, gpus, data)
    if conflict:
        older = compat.newest_triton(have, data, gpus) if needs.kind == "Triton" else None
        remedy = f"Use Triton {older} or an earlier release on this node." if older else "Use an older image on this node."
        compute = compat.lowest_compute(gpus, data)
        return Check("engine.image", FAIL, f"compute capability {compute} ({compat.describe(gpus)})", conflict, remedy)
    if needs.driver and not compat.driver_at_least(have, needs.driver):
        remedy = _newer_driver(row, driver, gpus, request, needs, data)
        return Check("engine.image", FAIL, f"driver R{have}", f"{needs.driver} or later for {wants}", remedy)
    if needs.glibc and node.get("glibc") and compat.version_key(node["glibc"]) < compat.version_key(needs.glibc):
        expected = f"{needs.glibc} or later for {needs.kind}"
        return Check("engine.image", FAIL, f"glibc {node['glibc']}", expected, "Install a newer distribution on this node.")
    first = compat.image_too_old(needs, gpus, data)
    if first:
        found = f"{wants}, older than {compat.describe(gpus)}"
        return Check("engine.image", WARN, found, f"CUDA {first} or later", "Use a newer image: this one has no code for them.")
    if not needs.known:
        found = f"{needs.kind} {needs.release}, a release that this collection does not know"
        remedy = "Compare its release notes with the driver, and add it to the collection's data."
        return Check("engine.image", WARN, found, f"driver R{have} for it", remedy)
    return Check("engine.image", PASS, f"driver R{have} for {wants}")


def _newer_driver(
    row: Mapping[str, Any],
    driver: Mapping[str, Any],
    gpus: Sequence[compat.Gpu],
    request: Request,
    needs: compat.ImageNeeds,
    data: compat.Data,
) -> str:
    """The ways out for a driver that is too old for an image: an image that it runs, a driver that runs the image."""
    triton = compat.newest_triton(driver["version"] or driver["branch"], data, gpus) if needs.kind == "Triton" else None
    other = f"Use Triton {triton}" if triton else "Use an older image"
    for branch, _flavour in compat.working_branches(gpus, data):
        choices = [
            choice
            for source in dict.fromkeys((request.source, ""))
            for choice in _choices(row, gpus, Request(branch=branch, source=source, runfile=request.runfile), data)
        ]
        if needs.driver and choices and compat.driver_at_least(branch, needs.driver):
            where = "" if choices[0].source == driver["source"] else f" (from the {choices[0].source})"
            return f"{other}, or set inferack_driver_branch to {branch}{where}."
    return f"{other}: no later driver drives {compat.describe(gpus)} on {row['name']}."
