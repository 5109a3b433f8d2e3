# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""The rack's report as data: what every node showed in this run, judged, and nothing that was not looked at.

Pure functions; runs on the control node only. docs/report.md describes the document, docs/report.schema.json is its schema.
"""

from __future__ import annotations

import copy
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._checks import (
    FAIL,
    PASS,
    SEVERITY,
    SKIP,
    Check,
    as_dict,
    failing,
    from_dict,
    merge,
    sentence,
    worst,
)

#: Version of the document's layout; raised when a key changes its meaning or goes away.
LAYOUT = 1

ACCEPTED = "accepted"
FAILED = "failed"
UNREACHABLE = "unreachable"
NOT_LOOKED_AT = "not_looked_at"

MISSING = "missing"
UNKNOWN = "unknown"

_REACHABLE = "node.reachable"
_BUS_ID = re.compile(r"\b(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]\b", re.IGNORECASE)
_UUID = re.compile(r"\bGPU-[0-9a-f][0-9a-f-]{7,}", re.IGNORECASE)


@dataclass(frozen=True)
class Gpu:
    """One GPU of a node.

    index: number that the driver gives it; None when the driver does not see it.
    bus_id: PCI address `0000:07:00.0`, empty when unknown.
    product, uuid: as the driver says them, empty when unknown.
    """

    index: int | None = None
    bus_id: str = ""
    product: str = ""
    uuid: str = ""


@dataclass(frozen=True)
class Node:
    """What this run knows of one node.

    rack_unit: lowest unit it occupies, None when the inventory does not say; rack_units: its height in units.
    looked_at: the node was a target of this run.
    verified: all its checks were gathered; without it the node cannot be accepted.
    reached: the node answered whenever the run spoke to it.
    phase: the last role that began on it, empty when none did.
    failure: `{role, task, sentence}` of the role that failed, else None.
    gpus: the GPUs that are there; gpu_expected: `{count, product}` as the inventory has it.
    versions: name of a component (`driver`, `docker`, …) to its version or None.
    """

    name: str
    rack_unit: int | None = None
    rack_units: int = 1
    looked_at: bool = True
    verified: bool = False
    reached: bool = True
    phase: str = ""
    failure: Mapping[str, Any] | None = None
    checks: Sequence[Check] = ()
    gpus: Sequence[Gpu] = ()
    gpu_expected: Mapping[str, Any] = field(default_factory=dict)
    versions: Mapping[str, Any] = field(default_factory=dict)


def bus_id(text: str) -> str:
    """A PCI address as sysfs writes it: four digits of domain, lower case (`00000000:07:00.0` is nvidia-smi's way)."""
    parts = text.strip().lower().split(":")
    if len(parts) == 2:
        parts.insert(0, "0000")
    if len(parts) == 3:
        parts[0] = parts[0][-4:].rjust(4, "0")
    return ":".join(parts)


def concerns(check: Check, gpu: Gpu) -> bool:
    """Whether the check's subject names this GPU: by PCI address, UUID, or number (`GPU 3`)."""
    addresses = {bus_id(found) for found in _BUS_ID.findall(check.subject)}
    if addresses:
        return bool(gpu.bus_id) and bus_id(gpu.bus_id) in addresses
    uuids = {found.lower() for found in _UUID.findall(check.subject)}
    if uuids:
        return bool(gpu.uuid) and gpu.uuid.lower() in uuids
    return gpu.index is not None and bool(re.fullmatch(rf"GPU\s*#?{gpu.index}", check.subject.strip(), re.IGNORECASE))


def unreachable_check(node: Node) -> Check:
    """The failing check of a node that stopped answering, or never did."""
    where = f"the last phase begun was {node.phase}" if node.phase else "no phase was begun"
    return Check(
        id=_REACHABLE,
        status=FAIL,
        found=f"no answer; {where}",
        expected="an answer over SSH during the whole run",
        remedy="Bring the node back (power, network, SSH), then run again; what is already right is skipped.",
        evidence=[f"phase: {node.phase or 'none'}"],
    )


def not_looked_at_check() -> Check:
    """The skipped check of a node that this run left out."""
    return Check(
        id=_REACHABLE,
        status=SKIP,
        found="not looked at in this run",
        expected="an answer over SSH",
        remedy="Run the acceptance without --limit.",
    )


def not_verified_check(node: Node) -> Check:
    """The failing check of a node that answered and whose verification did not finish."""
    return Check(
        id="node.verified",
        status=FAIL,
        found=f"verification did not finish; the last phase begun was {node.phase or 'none'}",
        expected="every check gathered",
        remedy="Run the acceptance again and read what its last task on this node said.",
    )


def node_checks(node: Node) -> list[Check]:
    """The node's checks, completed by the one that says why they are incomplete.

    A role that failed without a failing check (its checks were lost with the connection, say) gets one of its own, so that
    no node is refused without a check that names the reason.
    """
    if not node.looked_at:
        return [not_looked_at_check()]
    checks = list(node.checks)
    if not node.reached:
        return merge(checks, [unreachable_check(node)])
    if node.failure and not failing(checks):
        failed = Check(
            id="role.failed",
            status=FAIL,
            subject=f"role {node.failure.get('role', '')}".strip(),
            found=str(node.failure.get("sentence") or "no message was given"),
            expected=f"the task “{node.failure.get('task', '')}” ends well",
            remedy="Mend what the task names and run again; what is already right is skipped.",
        )
        return merge(checks, [failed])
    if not node.verified and not node.failure and not failing(checks):
        return merge(checks, [not_verified_check(node)])
    return checks


def status_of(node: Node, checks: Sequence[Check]) -> str:
    """`accepted`, `failed`, `unreachable` or `not_looked_at`.

    Accepted is only a node that this run reached, whose checks were all gathered, of which one at least passed and none
    failed.
    """
    if not node.looked_at:
        return NOT_LOOKED_AT
    if not node.reached:
        return UNREACHABLE
    proven = any(check.status == PASS for check in checks)
    return ACCEPTED if node.verified and proven and not node.failure and not failing(checks) else FAILED


def sentence_of(node: Node, status: str, checks: Sequence[Check]) -> str:
    """Why the node is not accepted, in one sentence; empty for an accepted node."""
    if status == ACCEPTED:
        return ""
    if status == NOT_LOOKED_AT:
        return "This run did not look at the node; run the acceptance without --limit to judge it."
    if status == UNREACHABLE:
        return sentence(unreachable_check(node))
    if node.failure and node.failure.get("sentence"):
        return str(node.failure["sentence"])
    failed = failing(checks)
    if failed:
        return sentence(failed[0])
    return "No check passed, so nothing is proven; run the acceptance again."


def gpu_cells(node: Node, status: str, checks: Sequence[Check]) -> list[dict[str, Any]]:
    """The node's GPUs with their status, in the order of their addresses, then one `missing` entry for each absent one.

    A GPU has the worst status of the checks that name it. One that no check names has the worst status of the checks about all
    GPUs that the driver answered for, and is `unknown` without those: that a device is on the bus does not say that it works.
    """
    general = [check for check in checks if not check.subject and check.id in ("driver.smi", "gpu.product", "gpu.state")]
    cells: list[dict[str, Any]] = []
    for gpu in sorted(node.gpus, key=lambda gpu: (bus_id(gpu.bus_id), gpu.index if gpu.index is not None else -1)):
        own = [check for check in checks if concerns(check, gpu)]
        looked = worst(own) if own else worst(general)
        if status == NOT_LOOKED_AT or looked == SKIP:
            looked = UNKNOWN
        cells.append({"index": gpu.index, "bus_id": gpu.bus_id, "product": gpu.product, "uuid": gpu.uuid, "status": looked})
    expected = node.gpu_expected.get("count")
    absent = int(expected) - len(cells) if isinstance(expected, (int, str)) and str(expected).isdigit() else 0
    # Nobody counted the GPUs of a node that did not show any: they are unknown there, not missing.
    nothing_seen = not cells and (
        status in (NOT_LOOKED_AT, UNREACHABLE) or not any(check.id == "gpu.count" for check in checks)
    )
    word = UNKNOWN if nothing_seen else MISSING
    product = str(node.gpu_expected.get("product") or "")
    cells += [{"index": None, "bus_id": "", "product": product, "uuid": "", "status": word} for _ in range(max(absent, 0))]
    return cells


def tally(checks: Iterable[Check]) -> dict[str, int]:
    """How many checks have each status."""
    counts = dict.fromkeys(reversed(SEVERITY), 0)
    for check in checks:
        counts[check.status] += 1
    return counts


def last_look(previous: Mapping[str, Any] | None, name: str) -> dict[str, Any] | None:
    """What an earlier report says of a node that this run does not look at: `{time, status, sentence, gpus, checks}` or None.

    It is kept beside the node, never among the checks of this run.
    """
    if not previous:
        return None
    node = next((entry for entry in previous.get("nodes") or [] if entry.get("name") == name), None)
    if node is None:
        return None
    if node.get("status") == NOT_LOOKED_AT:
        earlier: dict[str, Any] | None = copy.deepcopy(node.get("last"))
        return earlier
    return {
        "time": previous.get("rack", {}).get("time", ""),
        "status": node["status"] if node.get("status") in (ACCEPTED, UNREACHABLE) else FAILED,
        "sentence": node.get("sentence", ""),
        "gpus": copy.deepcopy(node.get("gpus") or []),
        "checks": [
            as_dict(from_dict({key: value for key, value in copy.deepcopy(check).items() if key != "node"}))
            for check in previous.get("checks") or []
            if check.get("node") == name
        ],
    }


def _rack_sentence(nodes: Sequence[Mapping[str, Any]]) -> str:
    """The rack's verdict in one sentence."""
    if not nodes:
        return "The rack has no nodes; add some to its group in the inventory."
    names = {
        status: [str(node["name"]) for node in nodes if node["status"] == status]
        for status in (ACCEPTED, FAILED, UNREACHABLE, NOT_LOOKED_AT)
    }
    total = len(nodes)
    if len(names[ACCEPTED]) == total:
        return "The only node is accepted." if total == 1 else f"All {total} nodes are accepted."
    parts = [f"{len(names[ACCEPTED])} of {total} {'node' if total == 1 else 'nodes'} accepted"]
    words = {FAILED: "failed", UNREACHABLE: "unreachable", NOT_LOOKED_AT: "not looked at in this run"}
    parts += [f"{word}: {', '.join(names[status])}" for status, word in words.items() if names[status]]
    return "; ".join(parts) + "."


def build(
    rack: Mapping[str, Any],
    nodes: Sequence[Node],
    versions: Mapping[str, Any],
    time: str,
    previous: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The report.

    Args:
        rack: `name` and `height` (in units).
        nodes: all nodes of the rack, also those that failed, did not answer, or were left out.
        versions: `collection` and `ansible`.
        time: when the run ended, ISO 8601 in UTC.
        previous: the report that this one replaces; only used to say when a node left out was last looked at.
    """
    entries: list[dict[str, Any]] = []
    flat: list[dict[str, Any]] = []
    everything: list[Check] = []
    for node in nodes:
        checks = node_checks(node)
        status = status_of(node, checks)
        everything += checks
        flat += [{"node": node.name, **as_dict(check)} for check in checks]
        entries.append(
            {
                "name": node.name,
                "rack_unit": node.rack_unit,
                "units": node.rack_units,
                "status": status,
                "accepted": status == ACCEPTED,
                "sentence": sentence_of(node, status, checks),
                "failure": {key: str(node.failure.get(key) or "") for key in ("role", "task", "sentence")}
                if node.failure
                else None,
                "phase": node.phase,
                "gpus": gpu_cells(node, status, checks),
                "gpu_expected": {key: node.gpu_expected[key] for key in ("count", "product") if key in node.gpu_expected},
                "versions": dict(node.versions),
                "counts": tally(checks),
                "last": None if node.looked_at else last_look(previous, node.name),
            }
        )
    accepted = bool(entries) and all(entry["accepted"] for entry in entries)
    return {
        "rack": {
            "name": str(rack.get("name") or "rack"),
            "height": int(rack.get("height") or 42),
            "time": time,
            "sentence": _rack_sentence(entries),
            "counts": {
                "nodes": len(entries),
                "accepted": sum(entry["accepted"] for entry in entries),
                "gpus": sum(cell["status"] not in (MISSING, UNKNOWN) for entry in entries for cell in entry["gpus"]),
                "checks": tally(everything),
            },
        },
        "accepted": accepted,
        "nodes": entries,
        "checks": flat,
        "versions": {
            "report": LAYOUT,
            "collection": versions.get("collection"),
            "ansible": versions.get("ansible"),
            "nodes": {node.name: dict(node.versions) for node in nodes},
        },
    }


def node_from(data: Mapping[str, Any]) -> Node:
    """A node as the module's option `nodes` describes it. Raises ValueError that names the node and the faulty key."""
    name = str(data.get("name") or "")
    if not name:
        raise ValueError(f"a node needs a name, found {dict(data)!r}")
    unit = data.get("rack_unit")
    try:
        return Node(
            name=name,
            rack_unit=None if unit in (None, "") else int(str(unit)),
            rack_units=max(int(data.get("rack_units") or 1), 1),
            looked_at=bool(data.get("looked_at", True)),
            verified=bool(data.get("verified", False)),
            reached=bool(data.get("reached", True)),
            phase=str(data.get("phase") or ""),
            failure=dict(data["failure"]) if data.get("failure") else None,
            checks=[from_dict(check) for check in data.get("checks") or []],
            gpus=[
                Gpu(
                    index=None if gpu.get("index") is None else int(gpu["index"]),
                    bus_id=str(gpu.get("bus_id") or ""),
                    product=str(gpu.get("product") or ""),
                    uuid=str(gpu.get("uuid") or ""),
                )
                for gpu in data.get("gpus") or []
            ],
            gpu_expected=dict(data.get("gpu_expected") or {}),
            versions=dict(data.get("versions") or {}),
        )
    except (TypeError, ValueError, AttributeError) as error:
        raise ValueError(f"node {name}: {error}") from error


def without_time(report: Mapping[str, Any]) -> dict[str, Any]:
    """The report without the moment it was made, so that two can be compared."""
    bare = copy.deepcopy(dict(report))
    bare.get("rack", {}).pop("time", None)
    return bare
