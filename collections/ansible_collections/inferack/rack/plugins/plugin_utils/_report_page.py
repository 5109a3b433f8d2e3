# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""The report as one HTML page that needs nothing but itself: no network, no other file, no framework.

Every text goes through `esc`, and a content security policy that allows only this page's own style and script (by their
hashes) stands behind it: what a node said can be shown, and can never run.
"""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._checks import SEVERITY, from_dict
from ansible_collections.inferack.rack.plugins.plugin_utils._report import Gpu, concerns

Report = Mapping[str, Any]

#: status: (mark, word). The mark tells the statuses apart where colours do not.
MARKS: dict[str, tuple[str, str]] = {
    "pass": ("✓", "pass"),
    "warn": ("!", "warning"),
    "fail": ("✕", "fail"),
    "skip": ("–", "skipped"),
    "missing": ("✕", "missing"),
    "unknown": ("?", "not known"),
}
#: A node's status: (class that colours it, mark, words).
NODE_WORDS: dict[str, tuple[str, str, str]] = {
    "accepted": ("pass", "✓", "accepted"),
    "failed": ("fail", "✕", "not accepted"),
    "unreachable": ("fail", "✕", "unreachable"),
    "not_looked_at": ("unknown", "?", "not looked at"),
}
#: From this height in units on, a node shows its name above its GPUs and the GPUs' numbers.
TALL = 2
#: From this height on its GPUs fill it, four in a row, as the boards of such machines do.
HUGE = 4
#: Up to this height in units the rack stays in view while the checks scroll by.
LOW = 20
#: Checks outside the area `gpu` that concern all GPUs of a node.
ALSO_ABOUT_GPUS = frozenset(
    {"container.gpu_visible", "container.gpu_uuid", "container.gpu_driver", "driver.smi", "node.reachable"}
)
_MONTHS = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
]


def esc(value: Any) -> str:
    """`value` as HTML text, safe in elements and in quoted attributes; control characters are shown as U+FFFD."""
    text = str(value)
    text = "".join(
        char if char in "\t\n" or char.isprintable() or char == "\N{NO-BREAK SPACE}" else "\N{REPLACEMENT CHARACTER}"
        for char in text
    )
    return html.escape(text, quote=True)


def words(value: Any) -> str:
    """A found or expected value for people; structures as JSON, absence as a dash."""
    if value is None:
        return "–"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)) and all(isinstance(item, (str, int, float)) for item in value):
        return ", ".join(str(item) for item in value) or "none"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def moment(time: str) -> str:
    """`2026-11-30T13:40:05Z` as `30 November 2026, 13:40 UTC`; anything else as it is."""
    try:
        year, month, day = (int(part) for part in time[:10].split("-"))
        return f"{day} {_MONTHS[month - 1]} {year}, {time[11:16]} UTC"
    except (ValueError, IndexError):
        return time


def plural(number: int, word: str) -> str:
    """`1 check`, `2 checks`."""
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def badge(status: str) -> str:
    """A status as mark and word."""
    mark, word = MARKS[status]
    return f'<span class="badge {status}"><span aria-hidden="true">{mark}</span>{word}</span>'


def check_item(check: Mapping[str, Any], opened: bool = False) -> str:
    """One check: a line that opens to what was found, expected, to be done, and seen."""
    subject = f' <span class="subject">{esc(check["subject"])}</span>' if check["subject"] else ""
    parts = [
        f"<dt>found</dt><dd>{esc(words(check['found']))}</dd>",
        f"<dt>expected</dt><dd>{esc(words(check['expected']))}</dd>",
    ]
    if check["remedy"]:
        parts.append(f"<dt>remedy</dt><dd>{esc(check['remedy'])}</dd>")
    evidence = "\n".join(check["evidence"])
    shown = f"<pre>{esc(evidence)}</pre>" if evidence else ""
    return (
        f'<li class="check {check["status"]}"><details{" open" if opened else ""}>'
        f'<summary>{badge(check["status"])}<span class="line"><code class="id">{esc(check["id"])}</code>{subject}'
        f'<span class="short">{esc(words(check["found"]))}</span></span></summary>'
        f'<div class="more"><dl>{"".join(parts)}</dl>{shown}</div></details></li>'
    )


def check_list(checks: Sequence[Mapping[str, Any]], opened: bool = False) -> str:
    """Checks, the harmful ones first; failing ones are open."""
    ordered = sorted(checks, key=lambda check: -SEVERITY[check["status"]])
    return "<ul>" + "".join(check_item(check, opened or check["status"] == "fail") for check in ordered) + "</ul>"


def gpu_name(cell: Mapping[str, Any], number: int) -> str:
    """What a GPU is called: its number, else its place in the row."""
    return f"GPU {cell['index'] if cell['index'] is not None else number}"


def gpu_cell(node: int, number: int, cell: Mapping[str, Any]) -> str:
    """One GPU as a button that opens its checks."""
    mark, word = MARKS[cell["status"]]
    product = f", {cell['product']}" if cell["product"] else ""
    label = f"{gpu_name(cell, number)}{product}: {word}"
    shown = cell["index"] if cell["index"] is not None else number
    return (
        f'<li><button type="button" class="gpu {cell["status"]}" data-opens="gpu-{node}-{number}" aria-haspopup="dialog"'
        f' data-status="{cell["status"]}" title="{esc(label)}" aria-label="{esc(label)}">'
        f'<span aria-hidden="true">{mark}</span><span class="number" aria-hidden="true">{esc(shown)}</span></button></li>'
    )


def gpu_dialog(
    node: int, number: int, cell: Mapping[str, Any], entry: Mapping[str, Any], checks: Sequence[Mapping[str, Any]]
) -> str:
    """The dialog that a GPU's cell opens: who it is, its own checks, and what concerns all GPUs of its node."""
    identity = Gpu(cell["index"], cell["bus_id"], cell["product"], cell["uuid"])
    bare = [{key: item for key, item in check.items() if key != "node"} for check in checks]
    own = [check for check in bare if concerns(from_dict(check), identity)]
    shared = [
        check for check in bare if not check["subject"] and (check["id"].startswith("gpu.") or check["id"] in ALSO_ABOUT_GPUS)
    ]
    facts = [("node", entry["name"]), ("product", cell["product"]), ("PCI address", cell["bus_id"]), ("UUID", cell["uuid"])]
    listed = "".join(f"<div><dt>{name}</dt><dd>{esc(value)}</dd></div>" for name, value in facts if value)
    sections = ""
    if cell["status"] == "missing":
        sections += '<p class="sentence fail">This GPU is expected and was not found.</p>'
    if own:
        sections += f"<h3>About this GPU</h3>{check_list(own)}"
    if shared:
        sections += f"<h3>About the node’s GPUs</h3>{check_list(shared, opened=not own)}"
    if not own and not shared:
        sections += "<p>No check of this run speaks of this GPU.</p>"
    name = f"gpu-{node}-{number}"
    return (
        f'<dialog id="{name}" aria-labelledby="{name}-title"><div class="top">'
        f'<h2 id="{name}-title">{esc(gpu_name(cell, number))} '
        f'{badge(cell["status"])}</h2><button type="button" class="close">Close</button></div>'
        f'<dl class="versions">{listed}</dl>{sections}</dialog>'
    )


def node_box(number: int, entry: Mapping[str, Any], place: str) -> str:
    """A node as drawn in the rack."""
    tone, mark, word = NODE_WORDS[entry["status"]]
    cells = "".join(gpu_cell(number, index, cell) for index, cell in enumerate(entry["gpus"]))
    row = f'<ul class="gpus" aria-label="GPUs of {esc(entry["name"])}">{cells}</ul>' if cells else ""
    tall = (" tall" if entry["units"] >= TALL else "") + (" huge" if entry["units"] >= HUGE else "")
    return (
        f'<div class="node {tone}{tall} {place}" data-node="{esc(entry["name"])}">'
        f'<a class="name" href="#node-{number}" title="{esc(entry["name"])}: {word}">'
        f'<span class="mark" aria-hidden="true">{mark}</span>'
        f'{esc(entry["name"])}<span class="hidden">, {word}</span></a>{row}</div>'
    )


def placement(report: Report) -> tuple[list[int], list[tuple[int, str]]]:
    """Which nodes are drawn in the rack, by number, and which are not, with the reason.

    A node without a unit, outside the rack, or on units that another holds is shown beside the rack: nothing is hidden.
    """
    height = report["rack"]["height"]
    taken: dict[int, str] = {}
    placed: list[int] = []
    beside: list[tuple[int, str]] = []
    for number, entry in enumerate(report["nodes"]):
        lowest = entry["rack_unit"]
        if lowest is None:
            beside.append((number, "the inventory gives it no rack_unit"))
            continue
        units = range(lowest, lowest + entry["units"])
        if lowest < 1 or units[-1] > height:
            beside.append((number, f"units {units[0]} to {units[-1]} are not in a rack of {height}"))
            continue
        other = next((taken[unit] for unit in units if unit in taken), None)
        if other is not None:
            beside.append((number, f"{other} is on unit {next(unit for unit in units if unit in taken)} already"))
            continue
        taken.update(dict.fromkeys(units, entry["name"]))
        placed.append(number)
    placed.sort(key=lambda number: -report["nodes"][number]["rack_unit"])
    return placed, beside


def rack_section(report: Report) -> str:
    """The rack: numbered units from the top down, each node over the units it occupies."""
    height = report["rack"]["height"]
    placed, beside = placement(report)
    units = "".join(
        f'<span class="unit r{row}" aria-hidden="true">{height - row + 1}</span><span class="slot r{row}"></span>'
        for row in range(1, height + 1)
    )
    boxes = ""
    for number in placed:
        entry = report["nodes"][number]
        top = height - (entry["rack_unit"] + entry["units"] - 1) + 1
        boxes += node_box(number, entry, f"r{top} h{entry['units']}")
    shown = {cell["status"] for entry in report["nodes"] for cell in entry["gpus"]}
    legend = "".join(
        f'<li><span class="gpu {status}" aria-hidden="true">{mark}</span>{word}</li>'
        for status, (mark, word) in MARKS.items()
        if status in shown
    )
    if legend:
        legend = f'<ul class="legend" aria-label="What a GPU’s cell means">{legend}</ul>'
    rest = ""
    if beside:
        listed = "".join(f"{node_box(number, report['nodes'][number], '')}<p>{esc(reason)}</p>" for number, reason in beside)
        rest = f'<div class="unplaced"><h2>Not placed in the rack</h2>{listed}</div>'
    return (
        f'<section aria-labelledby="rack-title"><h2 id="rack-title">Rack, {plural(height, "unit")}</h2>'
        f'<div class="rack">{units}{boxes}<span class="rail"></span></div>'
        f"{legend}{rest}</section>"
    )


def units_words(entry: Mapping[str, Any]) -> str:
    """Where a node sits, in words."""
    if entry["rack_unit"] is None:
        return "no unit given"
    last = entry["rack_unit"] + entry["units"] - 1
    return f"unit {last}" if entry["units"] == 1 else f"units {entry['rack_unit']} to {last}"


def node_card(number: int, entry: Mapping[str, Any], checks: Sequence[Mapping[str, Any]]) -> str:
    """All that is known of a node: verdict, sentence, versions, checks."""
    tone, mark, word = NODE_WORDS[entry["status"]]
    counts = entry["counts"]
    has = "".join(f" has-{status}" for status in ("fail", "warn") if counts[status])
    versions = "".join(
        f"<div><dt>{esc(name)}</dt><dd>{esc(value)}</dd></div>" for name, value in entry["versions"].items() if value
    )
    sentence = f'<p class="sentence {tone}">{esc(entry["sentence"])}</p>' if entry["sentence"] else ""
    attention = [check for check in checks if check["status"] in ("fail", "warn")]
    rest = [check for check in checks if check["status"] in ("pass", "skip")]
    harmful = f'<div class="attention">{check_list(attention)}</div>' if attention else ""
    told = ", ".join(
        f"{plural(counts[status], 'check')} {MARKS[status][1]}{ending}"
        for status, ending in (("pass", "ed"), ("skip", ""))
        if counts[status]
    )
    harmless = f'<details class="rest"><summary>{told}</summary>{check_list(rest)}</details>' if rest else ""
    last = ""
    if entry["last"]:
        before = NODE_WORDS[entry["last"]["status"]][2]
        last = (
            f'<details class="last"><summary>Last looked at {esc(moment(entry["last"]["time"]))}: {before} then</summary>'
            f"{check_list(entry['last']['checks'])}</details>"
        )
    return (
        f'<section class="card{has}" id="node-{number}" data-node="{esc(entry["name"])}" aria-labelledby="node-{number}-title">'
        f'<div class="top"><h3 id="node-{number}-title">{esc(entry["name"])}</h3>'
        f'<span class="where">{units_words(entry)}</span>'
        f'<span class="badge {tone}"><span aria-hidden="true">{mark}</span>{word}</span></div>'
        f'{sentence}<dl class="versions">{versions}</dl>'
        f"{harmful}{harmless}{last}</section>"
    )


def style(report: Report) -> str:
    """The page's style sheet, completed by the rows and heights that this rack needs."""
    height = report["rack"]["height"]
    sheet = Path(__file__).with_suffix(".css").read_text(encoding="utf-8")
    rows = "".join(f".r{row}{{grid-row-start:{row}}}" for row in range(1, height + 1))
    spans = "".join(
        f".h{units}{{grid-row-end:span {units}}}" for units in sorted({entry["units"] for entry in report["nodes"]})
    )
    return f"{sheet}.rack{{grid-template-rows:repeat({height},var(--u))}}{rows}{spans}"


def _hash(text: str) -> str:
    return "'sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() + "'"


def header(report: Report) -> str:
    """Name, verdict and the figures."""
    rack = report["rack"]
    counts = rack["counts"]
    tone, mark, word = NODE_WORDS["accepted" if report["accepted"] else "failed"]
    figures = [
        ("nodes accepted", f"{counts['accepted']} of {counts['nodes']}"),
        ("GPUs seen", counts["gpus"]),
        ("checks passed", counts["checks"]["pass"]),
        ("failed", counts["checks"]["fail"]),
        ("warnings", counts["checks"]["warn"]),
    ]
    listed = "".join(f"<div><dt>{name}</dt><dd>{value}</dd></div>" for name, value in figures)
    return (
        '<header><div><p class="eyebrow">Acceptance report, '
        f'<time datetime="{esc(rack["time"])}">{esc(moment(rack["time"]))}</time></p>'
        f'<h1>{esc(rack["name"])} <span class="badge {tone}"><span aria-hidden="true">{mark}</span>{word}</span></h1>'
        f'<p class="verdict">{esc(rack["sentence"])}</p></div><dl class="facts">{listed}</dl></header>'
    )


def page(report: Report) -> str:
    """The report as a complete HTML document."""
    by_node: dict[str, list[Mapping[str, Any]]] = {}
    for check in report["checks"]:
        by_node.setdefault(check["node"], []).append(check)
    sheet = style(report)
    script = Path(__file__).with_suffix(".js").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; style-src {_hash(sheet)}; script-src {_hash(script)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    cards = "".join(node_card(number, entry, by_node.get(entry["name"], [])) for number, entry in enumerate(report["nodes"]))
    dialogs = "".join(
        gpu_dialog(number, index, cell, entry, by_node.get(entry["name"], []))
        for number, entry in enumerate(report["nodes"])
        for index, cell in enumerate(entry["gpus"])
    )
    choices = "".join(
        f'<label><input type="radio" name="show" id="show-{value}" value="{value}"{" checked" if value == "all" else ""}>'
        f"<span>{word}</span></label>"
        for value, word in (("all", "All"), ("attention", "Failing and warnings"), ("failing", "Failing"))
    )
    low = " low" if report["rack"]["height"] <= LOW else ""
    verdict = "accepted" if report["accepted"] else "not accepted"
    made = ", ".join(
        f"{name} {version}"
        for name, version in (
            ("inferack.rack", report["versions"]["collection"]),
            ("ansible-core", report["versions"]["ansible"]),
        )
        if version
    )
    made = made or "inferack.rack"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        '<meta name="referrer" content="no-referrer"><link rel="icon" href="data:,">'
        f"<title>{esc(report['rack']['name'])}: {verdict}</title><style>{sheet}</style></head><body>"
        '<a class="skip-link" href="#nodes">Skip to the nodes</a><div class="page">'
        f'{header(report)}<main class="columns{low}">{rack_section(report)}'
        '<section id="nodes" aria-label="Nodes and their checks">'
        f'<fieldset class="filter"><legend>Checks</legend>{choices}</fieldset>'
        f'<p class="none" role="status">No check of this kind.</p>{cards}</section></main>'
        f"{dialogs}<footer>Made by {esc(made)}. "
        "The same facts for machines: report.json and junit.xml beside this page.</footer></div>"
        f"<script>{script}</script></body></html>\n"
    )
