#!/usr/bin/env python3
"""Reads a folder of real outputs and logs, and says of each what it is and what it shows.

usage: read_cases.py DIR

DIR has a MANIFEST.tsv: file, kind, source, expected. Printed is one JSON line a file (file, kind, form, what was read, verdict,
causes with their evidence), and a last one with a summary. The exit status is 1 when a file is missing or a reader breaks, 2 when
DIR is no such folder.
"""

from __future__ import annotations

import csv
import json
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "collections"))  # run as a script, it has no pytest to do so

from ansible_collections.inferack.rack.plugins.module_utils import _cause, _daemon_json, _diagnose  # noqa: E402
from ansible_collections.inferack.rack.plugins.plugin_utils import _pbtxt  # noqa: E402

MANIFEST = "MANIFEST.tsv"
#: Kinds that the module diagnose reads. The others have readers of their own.
DIAGNOSED = ("dmesg", "docker", "triton", "smi_text", "smi_xml")


@dataclass(frozen=True)
class Case:
    """One line of the manifest."""

    file: str
    kind: str
    expected: str


def manifest(folder: Path) -> list[Case]:
    """The cases of a folder. Raises FileNotFoundError when it has no manifest."""
    with (folder / MANIFEST).open(encoding="utf-8", newline="") as file:
        rows = list(csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    return [
        Case(row[0], row[1], row[3] if len(row) > 3 else "") for row in rows if len(row) >= 2 and row[:2] != ["file", "kind"]
    ]


def text_of(path: Path) -> str:
    """A case's text, undecodable bytes replaced: cases come from everywhere."""
    return path.read_text(encoding="utf-8", errors="replace")


def _steps(config: Mapping[str, list[Any]]) -> tuple[list[str], list[str]]:
    """Models of an ensemble, and its inputs that no step takes."""
    steps = [step for scheduling in config.get("ensemble_scheduling", []) for step in scheduling.get("step", [])]
    models = [str(step.get("model_name", ["?"])[0]) for step in steps]
    taken = {str(value) for step in steps for entry in step.get("input_map", []) for value in entry.get("value", [])}
    names = [str(name) for tensor in config.get("input", []) for name in tensor.get("name", [])]
    return models, [name for name in names if steps and name not in taken]


def read_config(text: str) -> dict[str, Any]:
    """A model configuration of Triton: what it says, or where it cannot be read."""
    try:
        config = _pbtxt.parse(text)
    except _pbtxt.PbtxtError as error:
        cause = _cause.Cause(
            id="triton-config-syntax",
            found=f"config.pbtxt that cannot be read: {error}",
            remedy="Correct config.pbtxt at that line and column",
            blames="engine",
            affects=[{"kind": "model", "name": ""}],
            evidence=text.splitlines()[_line_of(str(error)) - 1 :][:1],
            line=_line_of(str(error)),
        )
        return {"form": "triton.config", "read": {}, "verdict": "cause", "causes": [_cause.as_dict(cause)]}
    models, untaken = _steps(config)
    read = {
        "name": str(config.get("name", [""])[0]),
        "platform": str((config.get("platform") or config.get("backend") or [""])[0]),
        "inputs": [str(name) for tensor in config.get("input", []) for name in tensor.get("name", [])],
        "outputs": [str(name) for tensor in config.get("output", []) for name in tensor.get("name", [])],
        "ensemble_of": models,
        "inputs_that_no_step_takes": untaken,
    }
    return {"form": "triton.config", "read": read, "verdict": "none", "causes": []}


def _line_of(words: str) -> int:
    """The line in `line:column: …`; 1 where there is none."""
    head = words.partition(":")[0]
    return int(head) if head.isdigit() else 1


def read_daemon_json(data: bytes) -> dict[str, Any]:
    """A daemon.json: its keys, or why it is none."""
    try:
        text = _daemon_json.read(data)
        merged = _daemon_json.merge(text, {})
    except _daemon_json.MalformedError as error:
        return {"form": "daemon.json", "read": {"problem": str(error)}, "verdict": "cause", "causes": []}
    wrong = [found.key for found in _daemon_json.wrong_types(merged.after)]
    keys = list(json.loads(text)) if text.strip() else []
    return {
        "form": "daemon.json",
        "read": {"keys": keys, "wrong_types": wrong},
        "verdict": "cause" if wrong else "none",
        "causes": [],
    }


def read_case(folder: Path, case: Case) -> dict[str, Any]:
    """What a case is and shows. Raises OSError when its file cannot be read."""
    path = folder / case.file
    if case.kind == "daemon_json":
        result = read_daemon_json(path.read_bytes())
    elif path.suffix == ".pbtxt":
        result = read_config(text_of(path))
    else:
        diagnosis = _diagnose.diagnose([_cause.Text(case.file, text_of(path))])
        reading = diagnosis.texts[0]
        result = {
            "form": reading.form,
            "read": reading.read,
            "verdict": diagnosis.verdict,
            "causes": [_cause.as_dict(cause) for cause in diagnosis.causes],
            "unexplained": reading.unexplained,
            "harmless": reading.harmless,
        }
    return {"file": case.file, "kind": case.kind, **result}


def main(arguments: list[str]) -> int:
    """Read the folder, print, and count."""
    if len(arguments) != 1 or not (Path(arguments[0]) / MANIFEST).is_file():
        print(
            f"usage: read_cases.py DIR, a folder with a {MANIFEST} (found {arguments}); say make corpus CASES=DIR",
            file=sys.stderr,
        )
        return 2
    folder = Path(arguments[0])
    counts: dict[str, Counter[str]] = {}
    broken: list[dict[str, str]] = []
    for case in manifest(folder):
        count = counts.setdefault(case.kind, Counter())
        count["files"] += 1
        try:
            result = read_case(folder, case)
        except Exception as error:  # a reader that breaks on one case must not hide the others
            broken.append({"file": case.file, "error": f"{type(error).__name__}: {error}"})
            count["broken"] += 1
            continue
        count[result["verdict"]] += 1
        print(json.dumps(result, ensure_ascii=False))
    print(
        json.dumps(
            {"summary": {kind: dict(count) for kind, count in sorted(counts.items())}, "broken": broken}, ensure_ascii=False
        )
    )
    return 1 if broken else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
