# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Protobuf's text format, as `config.pbtxt` is written in: read it without a schema, quote a string for it.

Source: protobuf's text format language specification. Read are fields, messages, lists, strings, numbers, bare words and
comments; extensions and `Any` in brackets are not, as no model configuration has them.
"""

from __future__ import annotations

import re
from typing import Any

_TOKEN = re.compile(
    r"""(?P<space>[\s]+|\#[^\n]*)
      | (?P<text>"(?:[^"\\\n]|\\.)*"|'(?:[^'\\\n]|\\.)*')
      | (?P<number>[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?[fF]?(?![A-Za-z_]))
      | (?P<word>[A-Za-z_][A-Za-z0-9_]*)
      | (?P<mark>[:{}\[\],;])""",
    re.VERBOSE,
)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", '"': '"', "'": "'", "\\": "\\"}


class PbtxtError(ValueError):
    """A text is no protobuf text format; the message says where (line:column) and what was expected."""


class Word(str):
    """A bare word of the text format: an enumeration value, `true` or `false`."""

    __slots__ = ()


def tokens(text: str) -> list[tuple[str, str, int]]:
    """Split protobuf text format into (kind, text, position). Raises PbtxtError at the first character that fits nothing."""
    found: list[tuple[str, str, int]] = []
    position = 0
    while position < len(text):
        match = _TOKEN.match(text, position)
        if match is None:
            raise PbtxtError(f"{place(text, position)}: cannot read {text[position : position + 20].splitlines()[0]!r}")
        if match.lastgroup != "space":
            found.append((str(match.lastgroup), match.group(), position))
        position = match.end()
    return found


def place(text: str, position: int) -> str:
    """`line:column` of a position, both from 1."""
    return f"{text.count(chr(10), 0, position) + 1}:{position - text.rfind(chr(10), 0, position)}"


def unquote(text: str) -> str:
    """The value of a quoted string of the text format."""
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match.group(1), match.group(1)), text[1:-1])


class _Parser:
    """Recursive descent over the tokens; `message` is the start."""

    def __init__(self, text: str) -> None:
        self.text, self.tokens, self.index = text, tokens(text), 0

    def peek(self) -> tuple[str, str, int]:
        return self.tokens[self.index] if self.index < len(self.tokens) else ("end", "end of text", len(self.text))

    def take(self, *wanted: str) -> tuple[str, str, int]:
        kind, text, position = self.peek()
        if wanted and kind not in wanted and text not in wanted:
            raise PbtxtError(f"{place(self.text, position)}: expected {' or '.join(wanted)}, found {text}")
        self.index += 1
        return kind, text, position

    def value(self) -> Any:
        kind, text, _position = self.take("text", "number", "word", "{", "[")
        if text == "{":
            return self.message("}")
        if text == "[":
            return self.items()
        if kind == "text":
            joined = unquote(text)
            while self.peek()[0] == "text":  # neighbouring strings are one
                joined += unquote(self.take()[1])
            return joined
        if kind == "number":
            return float(text.rstrip("fF")) if re.search(r"[.eEfF]", text) else int(text)
        return Word(text)

    def items(self) -> list[Any]:
        found: list[Any] = []
        while self.peek()[1] != "]":
            found.append(self.value())
            if self.peek()[1] != "]":
                self.take(",", "]")
        self.take("]")
        return found

    def message(self, end: str) -> dict[str, list[Any]]:
        fields: dict[str, list[Any]] = {}
        while self.peek()[1] != end and not (end == "end" and self.peek()[0] == "end"):
            name = self.take("word")[1]
            if self.peek()[1] == ":":
                self.take()
            elif self.peek()[1] not in ("{", "["):
                self.take(":", "{")
            value = self.value()
            fields.setdefault(name, []).extend(value if isinstance(value, list) else [value])
            if self.peek()[1] in (",", ";"):
                self.take()
        if end != "end":
            self.take(end)
        return fields


def parse(text: str) -> dict[str, list[Any]]:
    """Read protobuf text format: every field as the list of its values, messages as such dictionaries.

    Knows no schema: it finds what is not well-formed, not what Triton does not know. Raises PbtxtError.
    """
    return _Parser(text).message("end")


def quote(text: str) -> str:
    """A quoted string of the text format."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("\r", "\\r").replace("\t", "\\t")
    return f'"{escaped}"'
