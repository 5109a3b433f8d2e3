# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""From texts to causes: read what people and tools said about a node, and name what is wrong, the root before its consequences.

Rules are data (`_causes_*.py` and `_xid.py`); this file applies them. Where no
rule fits it says so: a text may end without a cause, but never with an invented one.

Pure functions; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils import (
    _log_lines,
    _smi_causes,
    _smi_reading,
    _smi_topology,
    _xid,
    _xid_causes,
)
from ansible_collections.inferack.rack.plugins.module_utils._cause import (
    EVIDENCE,
    NONE,
    UNKNOWN,
    WIDTH,
    Cause,
    Text,
    merge,
    rank,
    verdict_of,
)
from ansible_collections.inferack.rack.plugins.module_utils._cause_rule import SUBJECTS, Harmless, Rule
from ansible_collections.inferack.rack.plugins.module_utils._causes_build import BUILD_HARMLESS, BUILD_RULES
from ansible_collections.inferack.rack.plugins.module_utils._causes_container import CONTAINER_HARMLESS, CONTAINER_RULES
from ansible_collections.inferack.rack.plugins.module_utils._causes_engine import ENGINE_HARMLESS, ENGINE_RULES
from ansible_collections.inferack.rack.plugins.module_utils._causes_node import NODE_HARMLESS, NODE_RULES
from ansible_collections.inferack.rack.plugins.module_utils._log_lines import Joined, Line

RULES: tuple[Rule, ...] = (*NODE_RULES, *BUILD_RULES, *CONTAINER_RULES, *ENGINE_RULES)
HARMLESS: tuple[Harmless, ...] = (*NODE_HARMLESS, *BUILD_HARMLESS, *CONTAINER_HARMLESS, *ENGINE_HARMLESS)

_HARMLESS = [(re.compile(item.pattern, re.IGNORECASE), item) for item in HARMLESS]

#: How many places of an anchor are tried, how many in vain, and how far in front of one a pattern may begin, in characters.
#: They bound what one rule can cost.
MOST_PLACES, MOST_MISSES, BEFORE = 200, 50, 400

#: How many messages of one rule that say the same are looked at; more are counted.
ALIKE = 5

#: How many causes are related to each other; more than a node ever has, fewer than a hostile text could make.
MOST_CAUSES = 500

#: How many lines are searched for errors that no rule explains, and how much of each.
MOST_SUSPECTS, SUSPECT = 2000, 600


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
    r"|^[^\n]{0,60}(?:^|\s)kernel: (?:\[|\w[\w-]*:)|\bNVRM: |\bS?Xid \(|^[^\n]{0,60} systemd\[1\]: |\bmodprobe: ",
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
    r"^[IWEF]\d{4} \d\d:\d\d:\d\d|\[libprotobuf|^(?:INFO|ERROR|WARNING) \d\d-\d\d \d\d:|\bnimlib\b|\"level\": ?\"", re.MULTILINE
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
    for group, value in groups.items():
        kind = SUBJECTS.get(group.partition("_")[0])
        if kind and value:
            named.append({"kind": kind, "name": (_xid.bus_id(value) or value) if kind == "gpu" else value})
    if groups.get("registry") and groups.get("path"):
        named.append({"kind": "image", "name": f"{groups['registry']}/{groups['path']}"})
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
        made: dict[tuple[str | None, ...], Cause] = {}
        counts: dict[tuple[str | None, ...], int] = {}
        for match in matches:
            groups = match.groupdict()
            said = tuple(groups.values())
            counts[said] = counts.get(said, 0) + 1
            if counts[said] > ALIKE:
                continue
            lines, number = _evidence(match, joined)
            if said in made:
                evidence = list(dict.fromkeys([*made[said].evidence, *lines]))[:EVIDENCE]
                same = _affects(rule, groups, text, lines) == made[said].affects
                said = said if same else (*said, str(number))  # alike, but of another container
                if same:
                    made[said] = replace(made[said], evidence=evidence)
                    continue
            made[said] = Cause(
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
        found += [replace(cause, count=counts.get(said, 1)) for said, cause in made.items()]
    return found


#: Rules' causes that an Xid of these kinds explains on the same GPU.
_XID_EXPLAINS: dict[str, tuple[str, ...]] = {
    "bus": ("gpu-off-bus", "smi-gpu-lost", "gpu-dead", "gsp-stuck", "gsp-boot-failed", "gsp-init-failed", "gpu-init-failed",
            "gpu-probe-failed", "no-gpu-found", "smi-no-devices", "cuda-busy", "gpu-needs-reset", "gpu-count"),
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
    table["gpu-dead"] = frozenset({"gpu-count"})
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
        known = next((item for pattern, item in _HARMLESS if pattern.search(message)), None)
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
    topology = _smi_topology.read(body) if smi.form == "none" and "GPU0" in body and "Affinity" in body else None
    xids = _xid_causes.XidCollector()
    lines = _log_lines.relevant(body, xids.line)
    joined = _log_lines.join(lines)
    causes = rule_causes(RULES, joined, text) + xids.causes(text.name)
    facts: dict[str, Any] = {}
    if smi.form != "none":
        form, facts = f"smi.{smi.form}", _smi_causes.facts(smi, body)
        if smi.gpus:
            causes += _smi_causes.smi_causes(smi, replace(text, text=body))
    elif topology is not None:
        form, facts = "smi.topology", {key: value for key, value in asdict(topology).items() if key not in ("heading", "last")}
        if topology.partial:
            causes.append(_smi_causes.cut_topology(topology, text.name))
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


def diagnose(texts: Sequence[Text]) -> Diagnosis:
    """The causes in all texts of a node, the root first."""
    readings: list[Reading] = []
    causes: list[Cause] = []
    for text in texts:
        reading, found = read(text)
        readings.append(reading)
        causes += found
    names = [text.name for text in texts]
    ranked = rank(relate(rank(merge(causes), names)[:MOST_CAUSES]), names)
    verdict = verdict_of(ranked)
    if not ranked and (not readings or any(reading.verdict == UNKNOWN and reading.form != "empty" for reading in readings)):
        verdict = UNKNOWN
    if not ranked and all(reading.form == "empty" for reading in readings):
        verdict = UNKNOWN
    return Diagnosis(verdict, ranked, readings)


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
