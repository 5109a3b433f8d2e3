# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""From texts to causes: read what people and tools said about a node, and name what is wrong, the root before its consequences.

Rules are data (`_causes_node.py`, `_causes_container.py`, `_causes_engine.py`, `_xid.py`); this file applies them. Where no
rule fits it says so: a text may end without a cause, but never with an invented one.

Pure functions; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils import (
    _log_lines,
    _nvidia_smi,
    _smi_reading,
    _smi_topology,
    _xid,
)
from ansible_collections.inferack.rack.plugins.module_utils._cause_rule import CONFIDENCE, SUBJECTS, Harmless, Rule
from ansible_collections.inferack.rack.plugins.module_utils._causes_container import CONTAINER_HARMLESS, CONTAINER_RULES
from ansible_collections.inferack.rack.plugins.module_utils._causes_engine import ENGINE_HARMLESS, ENGINE_RULES
from ansible_collections.inferack.rack.plugins.module_utils._causes_node import NODE_HARMLESS, NODE_RULES
from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, WARN, Check
from ansible_collections.inferack.rack.plugins.module_utils._log_lines import Joined, Line

RULES: tuple[Rule, ...] = (*NODE_RULES, *CONTAINER_RULES, *ENGINE_RULES)
HARMLESS: tuple[Harmless, ...] = (*NODE_HARMLESS, *CONTAINER_HARMLESS, *ENGINE_HARMLESS)

#: What the whole says: `cause` (a root is named), `symptom` (what fails is named, why is not in the texts), `notice` (nothing
#: has to be done at once), `none` (nothing wrong in what was read), `unknown` (errors that no rule knows, or nothing to read).
CAUSE, SYMPTOM, NOTICE, NONE, UNKNOWN = "cause", "symptom", "notice", "none", "unknown"

#: How many lines prove a cause, and how long one may be.
EVIDENCE, WIDTH = 8, 400

#: How many places of an anchor are tried, how many in vain, and how far in front of one a pattern may begin, in characters.
#: They bound what one rule can cost.
MOST_PLACES, MOST_MISSES, BEFORE = 200, 50, 400

#: How many lines are searched for errors that no rule explains, and how much of each.
MOST_SUSPECTS, SUSPECT = 2000, 600

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


@dataclass(frozen=True)
class Reading:
    """What one text was. form: such as `smi.xml`, `kernel`, `other`, `empty`; read: facts in it; verdict: as above."""

    name: str
    form: str
    verdict: str
    read: dict[str, Any] = field(default_factory=dict)
    truncated: bool = False
    unexplained: list[str] = field(default_factory=list)
    harmless: list[dict[str, str]] = field(default_factory=list)


@dataclass(frozen=True)
class Diagnosis:
    """All of it: the verdict, the causes with the root first, and what each text was."""

    verdict: str
    causes: list[Cause]
    texts: list[Reading]


@dataclass(frozen=True)
class SmiCause:
    """How a check on nvidia-smi's output becomes a cause: the check's id, words in what it found, and lines that prove it."""

    id: str
    check: str
    words: str
    lines: str
    what: str
    blames: str = "hardware"
    severity: str = ""


#: First fit wins.
SMI_CAUSES: tuple[SmiCause, ...] = (
    SmiCause(
        "gpu-dead",
        "gpu.state",
        r"answers nothing",
        r"ERR!|\blost\b|fallen off|Unknown Error",
        "nvidia-smi lists the GPU, but it answers nothing any more",
    ),
    SmiCause(
        "gpu-fabric",
        "gpu.state",
        r"fabric",
        r"<(?:state|status|summary)>[^<]+<|nhealthy>True|^\s+(?:State|Status|Summary|Route Unhealthy)\s+: [^N]",
        "the GPU's NVLink fabric is not up, or unhealthy, whatever the other counters say",
        "driver",
    ),
    SmiCause(
        "gpu-recovery-action",
        "gpu.state",
        r"the driver asks for",
        r"ecovery_action>|Recovery Action|equired>Yes|recommended>Yes|(?:Required|Recommended)\s+: Yes",
        "the driver asks for a reset, or more",
    ),
    SmiCause(
        "gpu-inforom",
        "gpu.state",
        r"infoROM",
        r"infoROM is corrupted",
        "the GPU's infoROM is corrupted; it may go on working",
        severity="fault",
    ),
    SmiCause(
        "gpu-braked",
        "gpu.state",
        r"clocks braked",
        r"(?:lowdown|hermal\w*|rake\w*)(?:>Active|[^:\n]*: Active)",
        "heat or power supply brakes the GPU's clocks",
    ),
    SmiCause(
        "gpu-trouble",
        "gpu.state",
        r".",
        r"ERR!|Unknown Error|\blost\b|requires? reset|Timeout|access blocked",
        "a value that the GPU does not give; one sensor alone often comes back",
    ),
    SmiCause(
        "gpu-memory-errors",
        "gpu.ecc.uncorrectable",
        r".",
        r"(?:ncorrect|ouble|emapp|etire|epair|xceeded|ending|ailure)\w*[^<>\n:]*(?:>|:\s)\s*(?:[1-9]\d*|Yes)\b",
        "uncorrectable errors of the GPU's memory, or repairs that wait or failed",
    ),
    SmiCause("gpu-memory-missing", "gpu.memory", r".", r"<total>|Total\s+: |MiB /", "the GPU shows no memory"),
    SmiCause(
        "gpu-count",
        "gpu.count",
        r".",
        r"attached_gpus>|Attached GPUs|^GPU [0-9A-F]|<gpu id",
        "fewer GPUs answer than the driver has attached",
    ),
    SmiCause("smi-cut-off", "driver.smi", r"cut off|piece", r"\S", "the output is a piece of a longer one", "node", "notice"),
)

_WRONG = re.compile(
    r"\b(?:error|err|fail(?:ed|s|ure)?|fatal|panic|critical|denied|refused|cannot|can't|could not|couldn't|unable|rejected"
    r"|invalid|exception|not found|timed out|unauthorized)\b|ERR!|^[EF]\d{4} \d\d:",
    re.IGNORECASE,
)
#: What harmless lines speak of that have no word of error.
_TELLING = re.compile(r"nvidia|nvrm|nvlink|taint|pkcs|warning|compiler|vgaarb|initialized|dcgm|pinned", re.IGNORECASE)
_OURS = re.compile(r"NVRM|nvidia|nouveau|nvlink|\bgsp\b|\bgpu\b|cuda", re.IGNORECASE)
_KERNEL = re.compile(
    r"^\s*(?:<\d+>)?\[\s*\d+\.\d+\]|^\s*\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}\]"
    r"|^[^\n]{0,60}(?:^|\s)kernel: (?:\[|\w[\w-]*:)|\bNVRM: |^[^\n]{0,60} systemd\[1\]: |\bmodprobe: ",
    re.MULTILINE,
)
_SMI_MARK = re.compile(r"<nvidia_smi_log|=NVSMI LOG=|\| NVIDIA-SMI |UUID: GPU-|pci\.bus_id")
_SMI = re.compile(
    r"NVIDIA-SMI has failed|Failed to initialize NVML|Unable to determine the device handle|\bNo devices were found"
    r"|find libnvidia-ml\.so|GPUs could not be reset"
)
_DOCKER = re.compile(
    r"response from daemon|\bdockerd\b|\bOCI runtime\b|nvidia-container-cli|^(?:INFO|WARN|ERRO)\[\d{4}\]|docker: ", re.MULTILINE
)
_ENGINE = re.compile(
    r"^[IWEF]\d{4} \d\d:\d\d:\d\d|\[libprotobuf|\btritonserver\b|\bvllm\b|\bnimlib\b|\"level\": ?\"", re.MULTILINE
)
_BUILD = re.compile(
    r"\bdkms\b|\bDKMS\b|nvidia-installer|Kernel source path|CC sanity check|\bmake\[\d\]|\bdpkg: ", re.MULTILINE
)
_SERVICE = re.compile(r"Cannot start service (?P<name>[\w.-]{1,80}):?")


def fill(template: str, groups: dict[str, str | None]) -> str:
    """A template with its groups: `{name}` the group or nothing, `{ name}` the same with a space in front of it."""

    def group(match: re.Match[str]) -> str:
        value = " ".join((groups.get(match.group(2)) or "").split()).strip(" \"'")
        return f"{match.group(1)}{value}" if value else ""

    text = re.sub(r"\{( ?)(\w+)\}", group, template)
    return " ".join(re.sub(r"\s*\(\s*\)", "", text).split()).rstrip(" ,;:")


def places(rule: Rule, joined: Joined) -> Iterator[re.Match[str]]:
    """Where a rule's pattern fits, in the order of the text, each place once."""
    offsets: set[int] = set()
    for anchor in rule.anchors:
        at = joined.lower.find(anchor)
        for _count in range(MOST_PLACES):
            if at < 0:
                break
            offsets.add(at)
            at = joined.lower.find(anchor, at + len(anchor))
    if not offsets:
        return
    pattern = rule.compiled()
    done = misses = 0
    for at in sorted(offsets):
        if at < done:
            continue
        match = pattern.search(joined.text, max(done, at - BEFORE), at + rule.reach)
        if match and match.end() > match.start():
            yield match
            done = match.end()
        else:
            misses += 1
            if misses == MOST_MISSES:
                return


def _evidence(match: re.Match[str], joined: Joined) -> tuple[list[str], int]:
    """The lines that a match stands on, and the number of the first. Of a very long line the part around the match."""
    lines = joined.span(match.start(), match.end())
    texts = [line.raw.strip() for line in lines]
    if any(len(text) > WIDTH for text in texts):
        start, end = match.start(), min(match.end(), match.start() + WIDTH)
        cut = joined.text[max(0, start - 60) : end + 60].split("\n")
        texts = ["…" + max(cut, key=len)[: WIDTH + 120] + "…"]
    return texts[:EVIDENCE], lines[0].number if lines else 0


def _affects(rule: Rule, groups: dict[str, str | None], text: Text, lines: Sequence[str]) -> list[dict[str, str]]:
    """What a match affects: what its groups name, else the rule's own word."""
    named = []
    for group, kind in SUBJECTS.items():
        value = groups.get(group) or (groups.get("second") if group == "bus" and rule.affects == "gpu" else None)
        if not value:
            continue
        name = (_xid.bus_id(value) or value) if kind == "gpu" else value
        named.append({"kind": kind, "name": name})
    if rule.affects in ("container", "engine"):
        service = next((found.group("name") for line in lines for found in [_SERVICE.search(line)] if found), text.container)
        if service:
            named.append({"kind": "container", "name": service})
    if rule.affects == "model" and not named and groups.get("name"):
        named.append({"kind": "model", "name": str(groups["name"])})
    return named or [{"kind": rule.affects, "name": ""}]


def rule_causes(rules: Sequence[Rule], joined: Joined, text: Text) -> list[Cause]:
    """The causes that the rules find in a text."""
    found: list[Cause] = []
    for rule in rules:
        matches = list(places(rule, joined))
        if not matches:
            continue
        if rule.needs and not re.search(rule.needs, joined.text, re.IGNORECASE):
            continue
        if rule.unless and re.search(rule.unless, joined.text, re.IGNORECASE):
            continue
        for match in matches:
            groups = match.groupdict()
            lines, number = _evidence(match, joined)
            found.append(
                Cause(
                    id=rule.id,
                    found=fill(rule.found, groups),
                    remedy=fill(rule.remedy, groups),
                    confidence=rule.confidence,
                    severity=rule.severity,
                    blames=rule.blames,
                    affects=_affects(rule, groups, text, lines),
                    evidence=lines,
                    source=text.name,
                    line=number,
                )
            )
    return found


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
        found += f", link {link.group(1)}" if link and int(link.group(1)) >= 0 else ""
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


#: Rules' causes that an Xid of these kinds explains on the same GPU.
_XID_EXPLAINS: dict[str, tuple[str, ...]] = {
    "bus": ("gpu-off-bus", "smi-gpu-lost", "gpu-dead", "gsp-stuck", "gsp-boot-failed", "gsp-init-failed", "gpu-init-failed",
            "gpu-probe-failed", "no-gpu-found", "smi-no-devices", "cuda-busy", "gpu-needs-reset"),
    "firmware": ("gsp-stuck", "gsp-boot-failed", "gsp-init-failed", "gpu-init-failed", "gpu-probe-failed", "no-gpu-found",
                 "smi-no-devices", "gpu-needs-reset", "cuda-busy", "smi-gpu-lost", "gpu-dead"),
    "memory": ("cuda-ecc",),
    "memory_contained": ("cuda-ecc",),
    "application": ("cuda-application-error",),
    "nvlink": ("gpu-fabric", "fabric-not-ready"),
}  # fmt: skip


def explains() -> dict[str, frozenset[str]]:
    """Ids of causes, and those that they explain."""
    table = {rule.id: frozenset(rule.explains) - {rule.id} for rule in RULES}
    for number, (kind, _what) in _xid.CATALOGUE.items():
        if kind in _XID_EXPLAINS:
            table[f"xid-{number}"] = frozenset(_XID_EXPLAINS[kind])
    return table


_EXPLAINS = explains()


def _gpus(cause: Cause) -> set[str]:
    return {item["name"] for item in cause.affects if item["kind"] == "gpu" and item["name"]}


def relate(causes: Sequence[Cause]) -> list[Cause]:
    """The causes with `consequence_of` set, and roots that name no GPU given those of their consequences."""
    related: list[Cause] = []
    heirs: dict[int, list[dict[str, str]]] = {}
    for cause in causes:
        if cause.consequence_of:
            related.append(cause)
            continue
        root = None
        for at, other in enumerate(causes):
            if other is cause or other.id == cause.id or cause.id not in _EXPLAINS.get(other.id, frozenset()):
                continue
            mine, theirs = _gpus(cause), _gpus(other)
            if mine and theirs and not mine & theirs:
                continue
            if root is None or (other.severity != "symptom" and causes[root].severity == "symptom"):
                root = at
        if root is None:
            related.append(cause)
            continue
        heirs.setdefault(root, []).extend(item for item in cause.affects if item["kind"] == "gpu" and item["name"])
        related.append(replace(cause, consequence_of=causes[root].id))
    for at, items in heirs.items():
        cause = related[at]
        if not _gpus(cause) and cause.affects and cause.affects[0]["kind"] in ("gpu", "node"):
            unique = list({item["name"]: item for item in items}.values())
            if unique:
                related[at] = replace(cause, affects=unique)
    return related


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


def _smi_lines(text: str, name: str, wanted: str, most: int) -> tuple[list[str], int]:
    """Lines of one GPU's part of nvidia-smi's output that prove something, behind the one that names it; the first's number."""
    pattern = re.compile(wanted)
    bus = name if name.count(":") == 2 else ""
    heading, found = (0, ""), []
    inside = not bus
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > 20_000:
            continue
        other = _smi_reading.bus_id(line) if bus else None
        if other:
            inside = other == bus
            if inside and not heading[0]:
                heading = (number, line.strip()[:WIDTH])
        if inside and pattern.search(line) and not re.search(r"\bN/A\b|Not Active", line):
            found.append((number, line.strip()[:WIDTH]))
            if len(found) == most:
                break
    if heading[0]:
        found.insert(0, heading)
    return list(dict.fromkeys(line for _number, line in found))[:EVIDENCE], found[0][0] if found else 0


def smi_causes(reading: _smi_reading.Reading, text: Text) -> list[Cause]:
    """The causes in what nvidia-smi says about GPUs that answer it."""
    found: list[Cause] = []
    for check in _nvidia_smi.judge(reading, _nvidia_smi.Outcome(None, "", text.text), _nvidia_smi.Expected()):
        if check.status not in (FAIL, WARN):
            continue
        row = _smi_row(check)
        if row is None:
            continue
        name = check.subject.removeprefix("GPU ") if check.subject else ""
        lines, number = _smi_lines(text.text, name, row.lines, 1 if row.id == "smi-cut-off" else EVIDENCE)
        # a piece of the output that names no GPU is about some GPU, and its place in the piece is not its index
        if reading.partial and name.isdigit() and reading.form == "query":
            name = ""
        words = check.found if isinstance(check.found, str) else f"{row.what}: {check.found}, expected {check.expected}"
        found.append(
            Cause(
                id=row.id,
                found=words,
                remedy=check.remedy,
                confidence="high" if check.status == FAIL else "medium",
                severity=row.severity or ("fault" if check.status == FAIL else "notice"),
                blames=row.blames,
                affects=[{"kind": "gpu" if check.subject else "node", "name": name}],
                evidence=lines or list(check.evidence)[:EVIDENCE],
                source=text.name,
                line=number,
            )
        )
    return found


def _smi_row(check: Check) -> SmiCause | None:
    return next((row for row in SMI_CAUSES if row.check == check.id and re.search(row.words, str(check.found))), None)


def _cut_topology(topology: _smi_topology.Topology, source: str) -> Cause:
    return Cause(
        id="smi-cut-off",
        found=f"a matrix whose heading names {len(topology.gpus)} GPUs, with rows for {len(topology.rows)}",
        remedy="Give the whole output, so that every GPU is in it",
        severity="notice",
        affects=[{"kind": "node", "name": ""}],
        evidence=[line for line in (topology.heading.strip()[:WIDTH], topology.last.strip()[:WIDTH]) if line],
        source=source,
    )


def _facts(reading: _smi_reading.Reading, text: str) -> dict[str, Any]:
    """What nvidia-smi's output says, in short."""
    facts: dict[str, Any] = {
        "driver_version": reading.driver_version,
        "cuda_version": reading.cuda_version,
        "attached": reading.attached,
        "gpus": [
            {"bus_id": gpu.bus_id, "index": gpu.index, "minor": gpu.minor, "product": gpu.product, "uuid": gpu.uuid}
            for gpu in reading.gpus
        ],
        "partial": reading.partial,
    }
    links = _smi_topology.ports(text) if reading.form == "list" else {}
    if links:
        facts["links"] = links
    return facts


def form_of(text: str, causes: Sequence[Cause]) -> str:
    """What kind of log a text is: by its look, else by the rule that fits it."""
    head = text if len(text) < 400_000 else text[:200_000] + "\n" + text[-200_000:]
    for name, pattern in (
        ("engine", _ENGINE),
        ("docker", _DOCKER),
        ("build", _BUILD),
        ("kernel", _KERNEL),
        ("nvidia-smi", _SMI),
    ):
        if pattern.search(head):
            return name
    logs = {rule.id: rule.log for rule in RULES}
    return next((logs[cause.id] for cause in causes if cause.id in logs), "other")


def _unexplained(lines: Sequence[Line], causes: Sequence[Cause], kernel: bool) -> tuple[list[str], list[dict[str, str]], bool]:
    """Lines that speak of an error and that no cause has as evidence; harmless ones with why; whether one is inconclusive."""
    proven = {line for cause in causes for line in cause.evidence}
    rest: list[str] = []
    harmless: list[dict[str, str]] = []
    inconclusive = False
    for line in lines[:MOST_SUSPECTS]:
        message = line.message[:SUSPECT]
        wrong = bool(_WRONG.search(message))
        if not wrong and not _TELLING.search(message):
            continue
        shown = line.raw.strip()[:WIDTH]
        known = next((item for item in HARMLESS if re.search(item.pattern, message, re.IGNORECASE)), None)
        if known:
            inconclusive = inconclusive or known.inconclusive
            if len(harmless) < EVIDENCE and all(item["why"] != known.why for item in harmless):
                harmless.append({"line": shown, "why": known.why})
        elif wrong and len(rest) < EVIDENCE and shown not in proven and (not kernel or _OURS.search(line.raw[:SUSPECT])):
            rest.append(shown)
    return rest, harmless, inconclusive


def read(text: Text) -> tuple[Reading, list[Cause]]:
    """One text: what it is, and the causes in it, not yet related to those of other texts."""
    body, truncated = _log_lines.bounded(text.text)
    if not body.strip():
        return Reading(text.name, "empty", UNKNOWN), []
    # reading costs more than looking; a log of megabytes without nvidia-smi's marks is none of its output
    smi = _smi_reading.read(body) if len(body) < 400_000 or _SMI_MARK.search(body) else _smi_reading.Reading()
    topology = _smi_topology.read(body) if smi.form == "none" and "GPU0" in body else None
    xids = XidCollector()
    lines = _log_lines.relevant(body, xids.line)
    joined = _log_lines.join(lines)
    causes = rule_causes(RULES, joined, text) + xids.causes(text.name)
    facts: dict[str, Any] = {}
    if smi.form != "none":
        form, facts = f"smi.{smi.form}", _facts(smi, body)
        if smi.gpus:
            causes += smi_causes(smi, replace(text, text=body))
    elif topology is not None:
        form, facts = "smi.topology", {key: value for key, value in asdict(topology).items() if key not in ("heading", "last")}
        if topology.partial:
            causes.append(_cut_topology(topology, text.name))
    else:
        form = form_of(body, causes)
    causes = merge(causes)
    verdict = verdict_of(causes)
    rest: list[str] = []
    harmless: list[dict[str, str]] = []
    if not form.startswith("smi."):
        rest, harmless, inconclusive = _unexplained(lines, causes, form == "kernel")
        if not causes:
            verdict = UNKNOWN if rest or inconclusive or form == "other" else NONE
    return Reading(text.name, form, verdict, facts, truncated, rest, harmless), causes


def verdict_of(causes: Sequence[Cause]) -> str:
    """What the causes amount to; `none` when there are none."""
    severities = {cause.severity for cause in causes}
    if severities & {"fault", "application"}:
        return CAUSE
    if "symptom" in severities:
        return SYMPTOM
    return NOTICE if severities else NONE


def diagnose(texts: Sequence[Text]) -> Diagnosis:
    """The causes in all texts of a node, the root first."""
    readings: list[Reading] = []
    causes: list[Cause] = []
    for text in texts:
        reading, found = read(text)
        readings.append(reading)
        causes += found
    ranked = rank(relate(merge(causes)), [text.name for text in texts])
    verdict = verdict_of(ranked)
    if not ranked and (not readings or any(reading.verdict == UNKNOWN and reading.form != "empty" for reading in readings)):
        verdict = UNKNOWN
    if not ranked and all(reading.form == "empty" for reading in readings):
        verdict = UNKNOWN
    return Diagnosis(verdict, ranked, readings)


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


def _subject(cause: Cause) -> str:
    names = [f"{'GPU' if item['kind'] == 'gpu' else item['kind']} {item['name']}" for item in cause.affects if item["name"]]
    return f"{', '.join(names[:4])}{' and more' if len(names) > 4 else ''}: " if names else ""


def sentence(diagnosis: Diagnosis) -> str:
    """The first cause with its remedy in one sentence, or why there is none."""
    if diagnosis.causes:
        first = diagnosis.causes[0]
        more = sum(1 for cause in diagnosis.causes[1:] if not cause.consequence_of)
        remedy = first.remedy[:1].lower() + first.remedy[1:] if first.remedy[1:2].islower() else first.remedy
        tail = f" (and {more} more)" if more else ""
        return f"{first.id}: {_subject(first)}{first.found}; {remedy}{tail}."
    if diagnosis.verdict == NONE:
        return "Nothing in these texts says that something is wrong."
    lines = [line for reading in diagnosis.texts for line in reading.unexplained]
    if lines:
        return f"Unknown: no rule explains “{lines[0][:200]}”; read the lines under unexplained."
    return "Unknown: no text of a kind that says what is wrong; give nvidia-smi's output, dmesg, and the logs of what fails."
