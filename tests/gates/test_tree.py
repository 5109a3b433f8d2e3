"""Rules that hold for the whole tree: what must never be committed, and what the product must not know."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = "collections/ansible_collections/inferack/rack"


def tracked() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        check=True,
        capture_output=True,
        text=True,
    )
    return [
        ROOT / name for name in listed.stdout.split("\0") if name and (ROOT / name).is_file() and not (ROOT / name).is_symlink()
    ]


FILES = tracked()


def texts(*, under: str = ""):
    for path in FILES:
        name = path.relative_to(ROOT).as_posix()
        if not name.startswith(under) or path == Path(__file__).resolve():
            continue
        try:
            yield name, path.read_text()
        except UnicodeDecodeError:
            continue


def hits(pattern: str, *, under: str = "") -> list[str]:
    expression = re.compile(pattern, re.IGNORECASE)
    return [
        f"{name}:{number}: {line.strip()}"
        for name, text in texts(under=under)
        for number, line in enumerate(text.splitlines(), 1)
        if expression.search(line)
    ]


def test_there_are_files_to_look_at() -> None:
    assert len(FILES) > 50


def test_the_product_does_not_know_its_bench() -> None:
    assert hits(r"\bbench\b(?!\.yml)|\bstand-?in|simulated", under=f"{COLLECTION}/") == []


@pytest.mark.parametrize(
    "pattern",
    [
        r"(?<![\w.])/work/(main|shared)",  # a path of one machine
        r"deb\.debian\.org|security\.debian\.org|pypi\.org|files\.pythonhosted|registry\.npmjs",  # mirrors come from the machine's configuration
        r"\b(TODO|FIXME|XXX)\b",  # left undone
        r"-----BEGIN [A-Z ]*PRIVATE KEY",  # a secret
    ],
)
def test_never_committed(pattern: str) -> None:
    assert hits(pattern) == []


def test_ci_runs_the_readmes_test_command() -> None:
    commands = [
        line
        for line in (ROOT / ".ci/run").read_text().splitlines()
        if line.strip() and not line.startswith(("#", "set ", "cd "))
    ]
    assert commands == ["exec make test"]
    assert re.search(r"^make test$", (ROOT / "README.md").read_text(), re.MULTILINE)
