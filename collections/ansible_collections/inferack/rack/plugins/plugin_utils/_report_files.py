# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Writes the report's files so that a reader never sees half of one, and keeps a bounded history."""

from __future__ import annotations

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

HISTORY = "history"
REPORT = "report.json"
_STAMP = re.compile(r"[^0-9A-Za-z-]+")


def read_report(folder: Path) -> dict[str, Any] | None:
    """The report in `folder`; None when there is none or it cannot be read as one (it is then replaced and not compared)."""
    try:
        document = json.loads((folder / REPORT).read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    if (
        not isinstance(document, dict)
        or not isinstance(document.get("rack"), dict)
        or not isinstance(document.get("nodes"), list)
    ):
        return None
    return document


def as_json(report: Mapping[str, Any]) -> str:
    """The report as JSON text with a final newline."""
    return json.dumps(report, indent=2, ensure_ascii=False) + "\n"


def write_atomically(path: Path, text: str) -> None:
    """Replace `path` in one step; mode 0644 less the umask. Raises OSError, leaving what was there."""
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8", errors="replace") as stream:
            stream.write(text)
            stream.flush()
            os.fsync(stream.fileno())
        mask = os.umask(0)
        os.umask(mask)
        Path(temporary).chmod(0o644 & ~mask)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


def stamp(time: str) -> str:
    """A time as part of a file name: `2026-11-30T12:00:00Z` becomes `2026-11-30T120000Z`."""
    return _STAMP.sub("", time) or "unknown"


def keep(folder: Path, previous: Mapping[str, Any], limit: int) -> None:
    """Put the report that is about to be replaced into the history and drop the oldest ones above `limit`."""
    history = folder / HISTORY
    if limit > 0:
        history.mkdir(exist_ok=True)
        name = stamp(str(previous.get("rack", {}).get("time") or ""))
        write_atomically(history / f"{name}.json", as_json(previous))
    if history.is_dir():
        kept = sorted(history.glob("*.json"))
        for old in kept[: max(len(kept) - limit, 0)]:
            old.unlink(missing_ok=True)


def write(folder: Path, files: Mapping[str, str], previous: Mapping[str, Any] | None, limit: int) -> None:
    """Write `files` (name to text) into `folder`, with `previous` moved to the history when given.

    report.json is written last: whoever waits for a new one finds the others beside it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if previous is not None:
        keep(folder, previous, limit)
    for name in sorted(files, key=lambda name: (name == REPORT, name)):
        write_atomically(folder / name, files[name])
