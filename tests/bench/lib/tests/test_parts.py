"""The order in which the bench's parts are built."""

from __future__ import annotations

import sys
import threading
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchlib import paths
from benchlib.parts import PARTS, build_all
from benchlib.shell import CommandFailed


def test_every_part_has_a_build_and_the_other_way_round() -> None:
    assert {path.parent.name for path in paths.BENCH_DIR.glob("*/build")} == set(PARTS)


@pytest.mark.parametrize("workers", [1, 2, 16])
def test_nothing_begins_before_what_it_needs(workers: int) -> None:
    lock, begun, ended, at_once = threading.Lock(), [], [], []

    def build(name: str) -> int:
        with lock:
            assert set(PARTS[name]) <= set(ended), (name, ended)
            begun.append(name)
            at_once.append(len(begun) - len(ended))
        with lock:
            ended.append(name)
        return 0

    build_all(PARTS, workers, build)
    assert sorted(ended) == sorted(PARTS)
    assert max(at_once) <= workers


def test_two_are_built_at_once() -> None:
    both = threading.Barrier(2, timeout=10)

    def build(name: str) -> int:
        if name in ("kernel", "base"):
            both.wait()
        return 0

    build_all(PARTS, 2, build)


def test_a_part_alone_does_not_wait_for_what_is_not_wanted() -> None:
    built: list[str] = []
    build_all(["debian"], 2, lambda name: built.append(name) or 0)
    assert built == ["debian"]


def test_after_a_failure_nothing_more_is_begun() -> None:
    built: list[str] = []

    def build(name: str) -> int:
        built.append(name)
        return 3 if name == "base" else 0

    with pytest.raises(CommandFailed, match="the part base failed with 3"):
        build_all(PARTS, 2, build)
    assert sorted(built) == ["base", "kernel"]
