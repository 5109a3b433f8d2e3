# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""A cause that was found: its shape, several as one, and their order.

Pure functions; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._cause_rule import CONFIDENCE

#: What the whole says: `cause` (a root is named), `symptom` (what fails is named, why is not in the texts), `notice` (nothing
#: has to be done at once), `none` (nothing wrong in what was read), `unknown` (errors that no rule knows, or nothing to read).
CAUSE, SYMPTOM, NOTICE, NONE, UNKNOWN = "cause", "symptom", "notice", "none", "unknown"

#: How many lines prove a cause, and how long one may be.
EVIDENCE, WIDTH = 8, 400

_SEVERITY = {"fault": 0, "application": 1, "symptom": 2, "notice": 3}


@dataclass(frozen=True)
class Text:
    """What is read. name: where it comes from; container: whose log it is, if it is one's."""

    name: str
    text: str
    container: str = ""


@dataclass(frozen=True)
class Cause:
    """What is wrong.

    id: of a rule, or `xid-<number>`, `sxid-<number>`, or of SMI_CAUSES.
    confidence: `high`, `medium`, `low`. severity: `fault`, `application`, `notice`, `symptom`.
    blames: whom; an application's fault is never the hardware's.
    affects: `{kind, name}`: `gpu` with its bus id, `model`, `container`, `image`, `nvswitch`, or a kind and an empty name.
    evidence: lines as they stand; source and line: where the first of them is; count: how often it was seen.
    consequence_of: id of the cause that explains this one, else empty.
    """

    id: str
    found: str
    remedy: str
    confidence: str = "high"
    severity: str = "fault"
    blames: str = "node"
    affects: list[dict[str, str]] = field(default_factory=list)
    evidence: list[str] = field(default_factory=list)
    source: str = ""
    line: int = 0
    count: int = 1
    consequence_of: str = ""
    order: tuple[int, ...] = (0,)

    @property
    def subjects(self) -> tuple[str, ...]:
        """What tells it from another cause of the same id."""
        return tuple(sorted(f"{item['kind']} {item['name']}" for item in self.affects if item["name"]))


def as_dict(cause: Cause) -> dict[str, Any]:
    """The cause as the dictionary that the module returns."""
    return {
        "id": cause.id,
        "found": cause.found,
        "confidence": cause.confidence,
        "severity": cause.severity,
        "blames": cause.blames,
        "affects": list(cause.affects),
        "remedy": cause.remedy,
        "evidence": list(cause.evidence),
        "source": cause.source,
        "line": cause.line,
        "count": cause.count,
        "consequence_of": cause.consequence_of,
    }


def verdict_of(causes: Sequence[Cause]) -> str:
    """What the causes amount to; `none` when there are none."""
    severities = {cause.severity for cause in causes}
    if severities & {"fault", "application"}:
        return CAUSE
    if "symptom" in severities:
        return SYMPTOM
    return NOTICE if severities else NONE


def merge(causes: Iterable[Cause]) -> list[Cause]:
    """Causes of the same id and subjects as one, with the evidence of all."""
    merged: dict[tuple[str, tuple[str, ...]], Cause] = {}
    for cause in causes:
        key = (cause.id, cause.subjects)
        first = merged.get(key)
        if first is None:
            merged[key] = cause
            continue
        evidence = list(dict.fromkeys([*first.evidence, *cause.evidence]))[:EVIDENCE]
        better = first if len(first.found) >= len(cause.found) else cause
        merged[key] = replace(
            first, found=better.found, remedy=better.remedy, evidence=evidence, count=first.count + cause.count
        )
    named: dict[tuple[str, str], set[str]] = {}
    for cause in merged.values():
        if cause.subjects:
            named.setdefault((cause.id, cause.source), set()).update(cause.evidence)

    def said(cause: Cause) -> bool:
        """A message that names nothing, where another one of the same kind, or the same line, named something."""
        lines = named.get((cause.id, cause.source))
        return not cause.subjects and lines is not None and (cause.severity == "symptom" or bool(lines & set(cause.evidence)))

    return [cause for cause in merged.values() if not said(cause)]


def rank(causes: Sequence[Cause], sources: Sequence[str]) -> list[Cause]:
    """The root first: what nothing explains, faults before the rest, sure before unsure, then as the texts have them."""
    place = {name: at for at, name in reversed(list(enumerate(sources)))}

    def key(cause: Cause) -> tuple[Any, ...]:
        return (
            bool(cause.consequence_of),
            _SEVERITY[cause.severity],
            CONFIDENCE.index(cause.confidence),
            cause.order,
            place.get(cause.source, len(place)),
            cause.line,
        )

    return sorted(causes, key=key)
