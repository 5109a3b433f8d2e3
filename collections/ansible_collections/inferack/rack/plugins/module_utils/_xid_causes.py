# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""From Xid lines to causes: one per GPU and number, the root before what followed it.

Pure functions; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from ansible_collections.inferack.rack.plugins.module_utils import _xid
from ansible_collections.inferack.rack.plugins.module_utils._cause import EVIDENCE, WIDTH, Cause


@dataclass
class _Xids:
    """Xid lines of one GPU and number: the first event, the last recovery action, lines, and how grave the gravest text was."""

    event: _xid.Event
    line: int
    evidence: list[str]
    count: int = 1


class XidCollector:
    """Takes a log line by line and keeps what its Xid lines say; bounded by GPUs and numbers, not by lines."""

    #: Different (GPU, number) pairs that are kept: more than any node has, fewer than a hostile text could make.
    MOST = 2000

    def __init__(self) -> None:
        self.groups: dict[tuple[bool, str, int], _Xids] = {}

    def line(self, number: int, line: str, low: str) -> None:
        """Look at one line."""
        if "xid" not in low:
            return
        key = _xid.key(line)
        if key is None:
            return
        group = self.groups.get(key)
        if group is not None and len(group.evidence) == EVIDENCE and not group.event.switch and key[2] not in _xid.VARIES:
            group.count += 1
            return
        event = _xid.parse(line)
        if event is None:
            return
        shown = line.strip()[:WIDTH]
        if group is None:
            if len(self.groups) < self.MOST:
                self.groups[key] = _Xids(event, number, [shown])
            return
        group.count += 1
        graver = _xid.worst_text([group.event.text, event.text]) != group.event.text
        if event.number == 154 or graver or (event.caused_by and not group.event.caused_by):
            group.event = event
            group.evidence = [*group.evidence[: EVIDENCE - 1], shown]
        elif len(group.evidence) < EVIDENCE:
            group.evidence.append(shown)

    def causes(self, source: str) -> list[Cause]:
        """The causes: one per GPU and number, each with what explains it."""
        groups = list(self.groups.values())
        events = [group.event for group in groups]
        actions = {event.bus: event.action for event in events if event.number == 154 and event.action}
        seen = {(event.switch, event.bus, event.number) for event in events}
        found: list[Cause] = []
        for at, group in enumerate(groups):
            event = group.event
            root = _xid.explained_by(events, at)
            if event.switch:
                found.append(_sxid(group, source))
                continue
            if event.caused_by is not None and (False, event.bus, event.caused_by) not in seen:
                # the root was pushed out of the log, its number is in this line
                named = _Xids(_xid.Event(event.caused_by, event.bus, "", process=event.process), group.line, group.evidence)
                found.append(_xid_cause(named, source, "", actions.get(event.bus, ""), f", named by Xid {event.number}"))
                seen.add((False, event.bus, event.caused_by))
            found.append(_xid_cause(group, source, f"xid-{root}" if root is not None else "", actions.get(event.bus, "")))
        return found


def _xid_cause(group: _Xids, source: str, consequence_of: str, action: str, note: str = "") -> Cause:
    event = group.event
    name, what = _xid.kind_of(event.number, event.text)
    kind = _xid.KINDS[name]
    severity, remedy = kind.severity, kind.remedy
    found = f"Xid {event.number}{note}: {what}"
    if kind.blames == _xid.LINK:
        link = re.search(r"\blink\s+(-?\d+)", event.text, re.IGNORECASE)
        if re.search(r"\bfatal\b", event.text, re.IGNORECASE) and name == "nvlink":
            found = found.replace("an NVLink error", "a fatal NVLink error")
        found += f", link {int(link.group(1))}" if link and int(link.group(1)) >= 0 else ""
    if event.number == 154:
        wanted = event.action or "an action that the line does not name"
        found = f"Xid 154: the driver asks for {wanted}"
        remedy = _xid.ACTIONS.get(wanted.lower(), f"Do what the driver asks for: {wanted}")
        if not remedy:
            found, remedy, severity = "Xid 154: the driver asks for nothing any more", "Nothing: the GPU recovered", "notice"
    elif action and _xid.ACTIONS.get(action.lower(), action) and not consequence_of:
        remedy += f"; the driver asks for: {action}"
    if event.process and name in ("application", "engine", "follow_on"):
        found += f" ({event.process})"
    return Cause(
        id=f"xid-{event.number}",
        found=found,
        remedy=remedy,
        confidence="low" if name in ("unknown", "reserved") else "high",
        severity=severity,
        blames=kind.blames,
        affects=[{"kind": "gpu", "name": event.bus}],
        evidence=group.evidence,
        source=source,
        line=group.line,
        count=group.count,
        consequence_of=consequence_of,
        order=(kind.order,),
    )


def _sxid(group: _Xids, source: str) -> Cause:
    event = group.event
    harmless = bool(re.search(r"\bnon-?fatal\b", event.text, re.IGNORECASE))
    fatal = bool(re.search(r"\bfatal\b", event.text, re.IGNORECASE)) and not harmless
    remedy = (
        "Drain the node, then reset all GPUs and NVSwitches of it together; have the switch checked if it comes back"
        if fatal
        else "Nothing at once: watch the switch, and read the fabric manager's log"
    )
    return Cause(
        id=f"sxid-{event.number}",
        found=f"SXid {event.number}: {'a fatal' if fatal else 'an'} NVSwitch error{'' if fatal else ' that was not fatal'}",
        remedy=remedy,
        confidence="high" if fatal or harmless else "medium",
        severity="fault" if fatal else "notice",
        blames="nvlink",
        affects=[{"kind": "nvswitch", "name": event.bus}],
        evidence=group.evidence,
        source=source,
        line=group.line,
        count=group.count,
        order=(4,),
    )
