# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""From nvidia-smi's output to causes, with the lines that prove them.

Pure functions; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils import _nvidia_smi, _smi_reading, _smi_topology
from ansible_collections.inferack.rack.plugins.module_utils._cause import EVIDENCE, WIDTH, Cause, Text
from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, WARN, Check


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
        r"<(?:state|status|summary)>(?!N/A)[^<]+<|nhealthy>True|^\s+(?:State|Status|Summary)\s+: (?!N/A)|Unhealthy\s+: True",
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
        if inside and pattern.search(line):
            found.append((number, line.strip()[:WIDTH]))
            if len(found) == most:
                break
    if heading[0]:
        found.insert(0, heading)
    return list(dict.fromkeys(line for _number, line in found))[:EVIDENCE], found[0][0] if found else 0


def _smi_row(check: Check) -> SmiCause | None:
    return next((row for row in SMI_CAUSES if row.check == check.id and re.search(row.words, str(check.found))), None)


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


def cut_topology(topology: _smi_topology.Topology, source: str) -> Cause:
    return Cause(
        id="smi-cut-off",
        found=f"a matrix whose heading names {len(topology.gpus)} GPUs, with rows for {len(topology.rows)}",
        remedy="Give the whole output, so that every GPU is in it",
        severity="notice",
        affects=[{"kind": "node", "name": ""}],
        evidence=[line for line in (topology.heading.strip()[:WIDTH], topology.last.strip()[:WIDTH]) if line],
        source=source,
    )


def facts(reading: _smi_reading.Reading, text: str) -> dict[str, Any]:
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
