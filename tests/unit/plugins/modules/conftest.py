"""Tools of a node as small scripts in a PATH of the test's own."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _run

AddTool = Callable[[str, str], Path]


@pytest.fixture
def add_tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AddTool:
    """`add_tool(name, script)` puts a shell script in front of everything else; tools of this machine are hidden but basic ones."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for name in ("sh", "cat", "sleep", "echo", "grep"):
        target = next(path for path in (Path("/bin") / name, Path("/usr/bin") / name) if path.exists())
        (folder / name).symlink_to(target)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.setattr(_run, "SEARCH", ())

    def add(name: str, script: str) -> Path:
        path = folder / name
        path.write_text(f"#!/bin/sh\n{script}\n")
        os.chmod(path, 0o755)
        return path

    return add
