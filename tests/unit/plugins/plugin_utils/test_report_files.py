"""Files of the report: whole or not at all, with a bounded history."""

from __future__ import annotations

from pathlib import Path

import pytest

from ansible_collections.inferack.rack.plugins.plugin_utils import _report_files as files


def test_interrupted_write_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    target = tmp_path / "report.json"
    target.write_text("old", encoding="utf-8")

    def dies(*_args: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", dies)
    with pytest.raises(OSError, match="No space"):
        files.write_atomically(target, "new")
    assert target.read_text(encoding="utf-8") == "old"
    assert list(tmp_path.iterdir()) == [target], "no temporary file is left"


def test_history_is_bounded_and_newest_stay(tmp_path: Path) -> None:
    for day in range(1, 8):
        files.write(tmp_path, {"report.json": "{}"}, {"rack": {"time": f"2026-11-{day:02d}T00:00:00Z"}}, 3)
    kept = sorted(path.name for path in (tmp_path / "history").iterdir())
    assert kept == ["2026-11-05T000000Z.json", "2026-11-06T000000Z.json", "2026-11-07T000000Z.json"]
    files.write(tmp_path, {"report.json": "{}"}, {"rack": {"time": "2026-11-08T00:00:00Z"}}, 0)
    assert list((tmp_path / "history").iterdir()) == []


def test_a_time_cannot_leave_the_folder(tmp_path: Path) -> None:
    files.keep(tmp_path, {"rack": {"time": "../../escaped"}}, 5)
    assert [path.name for path in (tmp_path / "history").iterdir()] == ["escaped.json"]


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"rack": 1, "nodes": []}', "\ufeffx"])
def test_what_is_no_report_is_not_compared(tmp_path: Path, text: str) -> None:
    (tmp_path / "report.json").write_text(text, encoding="utf-8")
    assert files.read_report(tmp_path) is None
