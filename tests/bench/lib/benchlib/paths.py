"""Where the bench is, where its state is, and which instance is meant."""

from __future__ import annotations

import os
from pathlib import Path

BENCH_DIR = Path(__file__).resolve().parents[2]
"""tests/bench of this checkout."""

ROOT = BENCH_DIR.parents[1]
"""The checkout."""


def state() -> Path:
    """The bench's state folder: BENCH_STATE, else .bench of the checkout; made when absent."""
    path = Path(os.environ.get("BENCH_STATE") or ROOT / ".bench").resolve()
    path.mkdir(parents=True, exist_ok=True)
    return path


def number() -> int:
    """The instance, from BENCH (default 0).

    Raises SystemExit when it is not a number from 0 to 50: the subnet is 172.31.(200 + BENCH).0/24.
    """
    text = os.environ.get("BENCH") or "0"
    if not text.isdigit() or int(text) > 50:
        raise SystemExit(f"BENCH is {text!r}; expected a number from 0 to 50")
    return int(text)


def instance_state() -> Path:
    """The folder of this instance, .bench/<BENCH>; made when absent."""
    path = state() / str(number())
    path.mkdir(parents=True, exist_ok=True)
    return path
