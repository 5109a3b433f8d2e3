# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Logs as rules can read them: without time stamps and quoting, wrapped messages joined, and never too long.

One message may stand on several lines (the kernel breaks its own, mails and terminals break the rest), each with or without a
stamp of its own. So the lines that matter are cleaned and joined, and a place in the joined text leads back to the lines.

Pure functions; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

#: Longest text that is read whole, in characters; of a longer one the first and the last half of it.
LONGEST_TEXT = 32 * 1024 * 1024

#: Longest line that is looked at as one; a longer one is cut into several.
LONGEST_LINE = 8000

#: Up to this size, in characters, every line of a text is kept; of larger ones those with one of GATES.
SMALL_TEXT = 1024 * 1024

#: How often lines of a large text that differ only in digits are kept: a storm of one message must not push the others out.
REPEATS = 40

#: How much of a large text is kept, in lines and characters: the first three fifths and the last two.
MOST_LINES, MOST_CHARACTERS = 20_000, 3_000_000

#: How many lines behind one that matters are kept: the rest of a message that was broken.
BEHIND = 3

#: Words one of which is in every message that a rule knows, the frequent ones first. A test holds the rules to it.
GATES = (
    "nv", "error", "fail", "gpu", "cuda", "xid", "nouveau", "docker", "containe", "unable", "denied", "not found",
    "cannot", "could not", "out of memory", "oomk", "oom-kill", "no such", "module", "headers", "model",
    "unauthorized", "timed out", "gateway", "unavailable", "too many", "toomany", "lock ", "lock-", "held", "dpkg",
    "is rejected", "key", "manifest", "profile", "in use", "already", "no space", "upgrade", "runtime", "chipset",
    "cdi", "no devices", "deadline", "rate limit", "dkms", "compiler", "status ", "---+", "as a flag", "engine plan",
    "version tag", "os_error", "symbol", "package", "ml.so", "http/", "reset",
)  # fmt: skip

_ESCAPE = re.compile(r"\x1b\[[0-9;?]*[ -/]*[@-~]|[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_QUOTES = str.maketrans({"‘": "'", "’": "'", "`": "'", "´": "'", "“": '"', "”": '"', "\u00a0": " "})
_NO_DIGITS = str.maketrans("", "", "0123456789")

#: In front of a message: marks of a quoted mail, the kernel's level, its stamp, syslog's or the journal's in any language, the
#: journal's -o short-iso, and the word kernel.
_PREFIX = re.compile(
    r"^\s*(?:>\s*)*"
    r"(?:<\d{1,3}>)?"
    r"(?:\[\s*\d+\.\d+\]\s*|\[[A-Z][a-z]{2} [A-Z][a-z]{2} [ \d]\d [\d:]{8} \d{4}\]\s*"
    r"|(?:\S{1,5}\s+\d{1,2}|\d{4}-\d\d-\d\d)[ T]\d\d:\d\d:\d\d\S*\s+\S+\s+(?=[\w.@/-]+(?:\[\d+\])?:))?"
    r"(?:kernel:\s*(?:\[\s*\d+\.\d+\]\s*)?)?"
    r"(?:NVRM:?\s+)?"
)


@dataclass(frozen=True)
class Line:
    """A line that matters: its number from 1, the line as it stands, and the message in it."""

    number: int
    raw: str
    message: str


@dataclass
class Joined:
    """Messages as one text. Neighbouring lines are divided by a space, others by a line feed, which no rule's dot crosses."""

    text: str = ""
    lower: str = ""
    lines: list[Line] = field(default_factory=list)
    starts: list[int] = field(default_factory=list)

    def span(self, start: int, end: int) -> list[Line]:
        """The lines that a part of the text stands on."""
        first = max(0, bisect_right(self.starts, start) - 1)
        last = max(first, bisect_right(self.starts, max(start, end - 1)) - 1)
        return self.lines[first : last + 1]


def clean(line: str) -> str:
    """The message in a line: stamps, quoting, escapes and typographic marks gone, white space single."""
    if "\x1b" in line or not line.isprintable():
        line = _ESCAPE.sub("", line)
    if not line.isascii():
        line = line.translate(_QUOTES)
    line = _PREFIX.sub("", line, count=1)
    if "NVRM:" in line:
        line = line.replace("NVRM:", "")  # the driver starts each line of a message with it; here they may stand on one
    if "\\" in line:
        line = re.sub(r"\\+[nrt](?![a-z])", " ", line)
        line = line.replace("\\", "")
    return " ".join(line.split())


def bounded(text: str, longest: int = LONGEST_TEXT) -> tuple[str, bool]:
    """The text, or its first and last half when it is too long, and whether something was left out."""
    if len(text) <= longest:
        return text, False
    half = longest // 2
    return f"{text[:half]}\n{text[-half:]}", True


def split(text: str) -> Iterator[tuple[int, str]]:
    """The lines with their numbers from 1; a line that is too long comes in pieces of one number."""
    for number, line in enumerate(text.split("\n"), 1):
        if len(line) <= LONGEST_LINE:
            yield number, line
        else:
            for piece in re.split(r"\\+n(?![a-z])|\r", line):
                for at in range(0, len(piece), LONGEST_LINE):
                    yield number, piece[at : at + LONGEST_LINE]


def _ends(kept: list[tuple[int, str]]) -> list[tuple[int, str]]:
    """The first and the last lines, where there are more than can be looked at."""
    if len(kept) > MOST_LINES:
        first = MOST_LINES * 3 // 5
        kept = kept[:first] + kept[first - MOST_LINES :]
    if sum(len(line) for _number, line in kept) <= MOST_CHARACTERS:
        return kept
    first_lines: list[tuple[int, str]] = []
    last_lines: list[tuple[int, str]] = []
    for lines, ordered, share in ((first_lines, kept, 0.6), (last_lines, kept[::-1], 0.4)):
        left = MOST_CHARACTERS * share
        for item in ordered:
            left -= len(item[1])
            if left < 0:
                break
            lines.append(item)
    return first_lines + last_lines[::-1]


def relevant(text: str, each: Callable[[int, str, str], None] | None = None) -> list[Line]:
    """The lines that may matter, cleaned. `each` is called for every line of the text with number, line, and line in small."""
    small = len(text) <= SMALL_TEXT
    kept: list[tuple[int, str]] = []
    seen: dict[str, int] = {}
    behind = 0
    for number, line in split(text):
        low = line.lower()
        if each is not None:
            each(number, line, low)
        if small:
            kept.append((number, line))
            continue
        for gate in GATES:
            if gate in low:
                behind = BEHIND
                break
        else:
            if not behind:
                continue
            behind -= 1
        # the stamp in front differs from line to line, and so do addresses
        key = low.translate(_NO_DIGITS)
        count = seen[key] = seen.get(key, 0) + 1
        if count <= REPEATS:
            kept.append((number, line))
    return [Line(number, line, message) for number, line in _ends(kept) for message in [clean(line)] if message]


def join(lines: Sequence[Line]) -> Joined:
    """The lines' messages as one text with the way back."""
    parts: list[str] = []
    starts: list[int] = []
    at, before = 0, -1
    for line in lines:
        divider = "" if before < 0 else " " if line.number - before <= 2 else "\n"
        at += len(divider)
        parts += [divider, line.message]
        starts.append(at)
        at += len(line.message)
        before = line.number
    text = "".join(parts)
    lower = text.lower()
    # a few letters grow in small ones; places must stay the same in both
    if len(lower) != len(text):
        lower = "".join(low if len(low := letter.lower()) == 1 else letter for letter in text)
    return Joined(text, lower, list(lines), starts)
