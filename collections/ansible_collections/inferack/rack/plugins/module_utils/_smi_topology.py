# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Read `nvidia-smi topo -m` and `-mp`, and the links that `nvlink -s` and `c2c -s` list.

Pure functions; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_ESCAPE = re.compile(r"\x1b\[[0-9;]*[A-Za-z]")
_NAMES = re.compile(r"\b((?:GPU|NIC)\d+|mlx\d_\d+)\b")
_LINK = re.compile(r"^(?:X|SYS|NODE|PHB|PXB|PIX|NV\d+|C2C|SOC|N/A)$")
_HEADING = re.compile(r"^GPU (\d+): .+ \(UUID: GPU-[0-9a-fA-F-]+\)\s*$")
_PORT = re.compile(r"^\s+(?:C2C )?Link (\d+): (.+?)\s*$")


@dataclass(frozen=True)
class Topology:
    """The matrix of a node.

    gpus: names in the heading; rows: GPUs that have a row; nics: network adapters in the heading.
    links: (row, column) of each pair of GPUs and the word between them.
    nvlink: true when a pair has an NVLink; null when none is shown, since `-mp` shows none on systems that have them.
    partial: the heading names GPUs that have no row. heading, last: the heading and the last row as they stand.
    """

    gpus: list[str] = field(default_factory=list)
    rows: list[str] = field(default_factory=list)
    nics: list[str] = field(default_factory=list)
    links: dict[str, str] = field(default_factory=dict)
    nvlink: bool | None = None
    partial: bool = False
    heading: str = ""
    last: str = ""


def read(text: str) -> Topology | None:
    """The matrix in a text; None when it holds none. The legend below it has no rows."""
    heading: list[str] = []
    first, last = "", ""
    rows: list[str] = []
    links: dict[str, str] = {}
    for raw in text.splitlines():
        line = _ESCAPE.sub("", raw)
        if not heading:
            if len(line) < 4000 and re.match(r"^\s+GPU0\b", line) and "Affinity" in line:
                heading, first = _NAMES.findall(line), line
            continue
        words = line.split()
        if not words or not re.fullmatch(r"GPU\d+", words[0]) or words[0] in rows:
            continue
        cells = words[1 : 1 + len(heading)]
        if not cells or not all(_LINK.match(cell) for cell in cells):
            continue
        rows.append(words[0])
        last = line
        for column, cell in zip(heading, cells):
            if column.startswith("GPU") and column != words[0]:
                links[f"{words[0]}-{column}"] = cell
    gpus = [name for name in heading if name.startswith("GPU")]
    if not gpus or not rows:
        return None
    return Topology(
        gpus=gpus,
        rows=rows,
        nics=[name for name in heading if not name.startswith("GPU")],
        links=links,
        nvlink=True if any(word.startswith("NV") for word in links.values()) else None,
        partial=len(rows) < len(gpus),
        heading=first,
        last=last,
    )


def ports(text: str) -> dict[str, dict[str, str]]:
    """Link ports by GPU index: `{"0": {"0": "44.712 GB/s"}}`; empty when the text lists none."""
    found: dict[str, dict[str, str]] = {}
    current: dict[str, str] | None = None
    for line in text.splitlines():
        heading = _HEADING.match(line)
        if heading:
            current = found.setdefault(heading.group(1), {})
            continue
        port = _PORT.match(line)
        if port and current is not None:
            current[port.group(1)] = port.group(2)
    return {gpu: links for gpu, links in found.items() if links}
