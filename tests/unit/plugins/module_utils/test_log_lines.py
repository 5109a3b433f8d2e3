"""Lines of logs without what surrounds the message, and messages joined."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _log_lines


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("[   12.345678] NVRM: hello", "hello"),
        ("<4>[   12.345678] NVRM: hello", "hello"),
        ("[Sun Feb 23 16:24:18 2025] NVRM: hello", "hello"),
        ("Jun 26 08:48:30 host1 kernel: [   15.726225] nvidia: hello", "nvidia: hello"),
        ("Jun  6 08:48:30 host1 kernel: NVRM: hello", "hello"),
        ("2026-11-30T08:48:30+00:00 host1 kernel: NVRM: hello", "hello"),
        ("4月 05 22:54:09 host1 dockerd[219506]: hello", "dockerd[219506]: hello"),
        ("               NVRM: hello", "hello"),
        ("> > couldn‘t  hello", "couldn't hello"),
        ("\x1b[4mGPU0\x1b[0m hello", "GPU0 hello"),
        ('caused \\"error\\\\n\\"', 'caused "error "'),
        ("the driver NVRM: goes on", "the driver goes on"),
        ("[libprotobuf ERROR x.cc:1] hello", "[libprotobuf ERROR x.cc:1] hello"),
        ("", ""),
    ],
)
def test_clean(line: str, message: str) -> None:
    assert _log_lines.clean(line) == message


def test_messages_are_joined_and_lead_back() -> None:
    text = "[ 1.0] NVRM: one\n       NVRM: two\n\n\n\nNVRM: three"
    joined = _log_lines.join(_log_lines.relevant(text))
    assert joined.text == "one two\nthree"
    assert [line.number for line in joined.span(0, len("one two"))] == [1, 2]
    assert [line.number for line in joined.span(joined.text.index("three"), len(joined.text))] == [6]


def test_a_large_text_keeps_what_matters() -> None:
    noise = "a calm bus says hello to a quiet one\n" * 60_000
    lines = _log_lines.relevant(noise + "NVRM: failed\n" + noise)
    assert [line.message for line in lines if "failed" in line.message] == ["failed"]
    assert len(lines) < 10


def test_a_storm_does_not_push_others_out() -> None:
    storm = "".join(f"[{number}.0] NVRM: Xid storm {number} failed\n" for number in range(60_000))
    lines = _log_lines.relevant(storm + "NVRM: the other error\n")
    assert lines[-1].message == "the other error"
    assert len(lines) <= _log_lines.REPEATS + 1


def test_bounds() -> None:
    assert _log_lines.bounded("abcdef", 4) == ("ab\nef", True)
    assert _log_lines.bounded("abcd", 4) == ("abcd", False)
    long = "x" * (_log_lines.LONGEST_LINE * 3)
    assert [len(piece) for _number, piece in _log_lines.split(long)] == [_log_lines.LONGEST_LINE] * 3
    huge = "\n".join(
        f"nvidia error {number:x} " + "y" * 300 + chr(97 + number % 26) * (number % 50) for number in range(40_000)
    )
    kept = _log_lines.relevant(huge)
    assert len(kept) <= _log_lines.MOST_LINES
    assert sum(len(line.raw) for line in kept) <= _log_lines.MOST_CHARACTERS
    assert kept[0].number == 1
    assert kept[-1].number == 40_000


@given(st.lists(st.one_of(st.text(max_size=60), st.sampled_from(["NVRM: a", "[ 1.0] İstanbul ẞ", "x" * 9000])), max_size=30))
def test_every_place_of_the_joined_text_leads_to_its_line(lines: list[str]) -> None:
    kept = _log_lines.relevant("\n".join(lines))
    joined = _log_lines.join(kept)
    assert len(joined.lower) == len(joined.text)
    for line, start in zip(joined.lines, joined.starts):
        assert joined.text[start : start + len(line.message)] == line.message
        assert line in joined.span(start, start + len(line.message))
