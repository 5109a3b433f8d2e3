"""Running tools: what is missing, what fails, what hangs."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _run


@pytest.mark.parametrize(
    ("command", "rc", "out", "err", "problem"),
    [
        (["sh", "-c", "echo a; echo b >&2"], 0, "a\n", "b\n", ""),
        (["sh", "-c", "exit 9"], 9, "", "", ""),
        (["sh", "-c", "kill -KILL $$"], -9, "", "", ""),
        (["sh", "-c", "printf '\\377x'"], 0, "\ufffdx", "", ""),
        (["sh", "-c", "echo $LC_ALL"], 0, "C\n", "", ""),
        (["no-such-tool-anywhere"], None, "", "", "missing"),
    ],
)
def test_what_a_command_did(command: list[str], rc: int | None, out: str, err: str, problem: str) -> None:
    output = _run.run(command, 20)
    assert (output.rc, output.out, output.err, output.problem) == (rc, out, err, problem)
    assert output.ok is (rc == 0)


def test_standard_input() -> None:
    assert _run.run(["cat"], 20, text="grüß").out == "grüß"


def test_a_hanging_command_is_killed_with_its_children(tmp_path: Path) -> None:
    pid_file = tmp_path / "pid"
    start = time.monotonic()
    output = _run.run(["sh", "-c", f"echo early; sleep 60 & echo $! > {pid_file}; wait"], 1.0)
    assert time.monotonic() - start < 20
    assert (output.rc, output.problem, output.out) == (None, "timeout", "early\n")
    child = int(pid_file.read_text())
    deadline = time.monotonic() + 10
    while time.monotonic() < deadline and alive(child):
        time.sleep(0.05)
    assert not alive(child)


def alive(pid: int) -> bool:
    """The process runs; one that ended and waits for its parent does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_the_administrators_folders_are_searched_last() -> None:
    path = _run.search_path({"PATH": "/opt/own:/usr/bin"}).split(os.pathsep)
    assert path[:2] == ["/opt/own", "/usr/bin"]
    assert "/usr/sbin" in path
    assert len(path) == len(set(path))
