"""Faults: what goes wrong in life, one command away, and mended by another."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from benchlib.nodes import Host

Settings = dict[str, str]
Action = Callable[[Host, Settings], None]


@dataclass(frozen=True)
class Fault:
    """A fault: what it is in words, how it is caused and how it is repaired."""

    text: str
    cause: Action
    repair: Action


FAULTS: dict[str, Fault] = {}
