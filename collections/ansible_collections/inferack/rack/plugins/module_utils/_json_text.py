# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""JSON as text: change some members of an object and leave every other byte as it is.

Python's json would round large numbers, expand lists that people wrote on one line and lose the indentation. Here a document
is parsed into nodes that know their place in the text, and an edit replaces only what changes. Grammar: RFC 8259, as strict
as Go's encoding/json, which is what dockerd reads with; a key that occurs twice in one object is refused, since Go merges
the two and others keep the last.

Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

_SPACE = re.compile(r"[ \t\r\n]*")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*"')
_WORDS: dict[str, Any] = {"true": True, "false": False, "null": None}

#: Longer numbers stay decimals: Python refuses to make integers of more than 4300 digits.
MAX_DIGITS = 1000

#: Deeper nesting is not configuration; the limit keeps the recursion within Python's.
DEPTH = 100


class MalformedError(ValueError):
    """The text is not JSON. `line` and `column` count from 1; `excerpt` is the line."""

    def __init__(self, problem: str, text: str, position: int) -> None:
        self.problem = problem
        self.line = text.count("\n", 0, position) + 1
        self.column = position - (text.rfind("\n", 0, position) + 1) + 1
        lines = text.splitlines()
        self.excerpt = lines[self.line - 1].strip() if self.line <= len(lines) else ""
        super().__init__(f"line {self.line} column {self.column}: {problem}")


@dataclass(frozen=True)
class Node:
    """A value and the half-open range of the text it stands in.

    value: a str, bool, None, an int or (with a fraction or an exponent) a Decimal, a list of nodes, or a dictionary of
    members by key.
    """

    start: int
    end: int
    value: str | bool | int | Decimal | list[Node] | dict[str, Member] | None


@dataclass(frozen=True)
class Member:
    """A key of an object, where it starts, and its value."""

    start: int
    node: Node


def plain(node: Node) -> Any:
    """The value as Python's json would give it."""
    if isinstance(node.value, dict):
        return {key: plain(member.node) for key, member in node.value.items()}
    if isinstance(node.value, list):
        return [plain(item) for item in node.value]
    if isinstance(node.value, Decimal):
        return float(node.value)
    return node.value


class _Parser:
    """Recursive descent over one text."""

    def __init__(self, text: str) -> None:
        self.text = text

    def fail(self, problem: str, position: int) -> MalformedError:
        return MalformedError(problem, self.text, min(position, len(self.text)))

    def space(self, position: int) -> int:
        match = _SPACE.match(self.text, position)
        return match.end() if match else position

    def shown(self, position: int) -> str:
        """What stands at a position, for messages."""
        if position >= len(self.text):
            return "the end of the file"
        return repr(self.text[position])

    def string(self, position: int) -> tuple[str, int]:
        match = _STRING.match(self.text, position)
        if not match:
            raise self.fail("this text is not closed, or holds a character that must be escaped", position)
        return json.loads(match.group()), match.end()

    def value(self, position: int, depth: int) -> Node:
        if depth > DEPTH:
            raise self.fail(f"nested deeper than {DEPTH} levels", position)
        start = self.text[position : position + 1]
        if start == "{":
            return self.object(position, depth)
        if start == "[":
            return self.array(position, depth)
        if start == '"':
            text, end = self.string(position)
            return Node(position, end, text)
        for word, value in _WORDS.items():
            if self.text.startswith(word, position):
                return Node(position, position + len(word), value)
        match = _NUMBER.match(self.text, position)
        if match:
            token = match.group()
            plain_digits = len(token) < MAX_DIGITS and not re.search(r"[.eE]", token)
            return Node(position, match.end(), int(token) if plain_digits else Decimal(token))
        raise self.fail(f"expected a value, found {self.shown(position)}", position)

    def array(self, position: int, depth: int) -> Node:
        items: list[Node] = []
        at = self.space(position + 1)
        if self.text[at : at + 1] == "]":
            return Node(position, at + 1, items)
        while True:
            item = self.value(at, depth + 1)
            items.append(item)
            at = self.space(item.end)
            mark = self.text[at : at + 1]
            if mark == "]":
                return Node(position, at + 1, items)
            if mark != ",":
                raise self.fail(f"expected ',' or ']' after an item, found {self.shown(at)}", at)
            at = self.space(at + 1)
            if self.text[at : at + 1] == "]":
                raise self.fail("a comma before ']'", at)

    def object(self, position: int, depth: int) -> Node:
        members: dict[str, Member] = {}
        at = self.space(position + 1)
        if self.text[at : at + 1] == "}":
            return Node(position, at + 1, members)
        while True:
            if self.text[at : at + 1] != '"':
                raise self.fail(f"expected a key in double quotes, found {self.shown(at)}", at)
            start = at
            key, at = self.string(at)
            if key in members:
                raise self.fail(f"the key {key!r} occurs twice", start)
            at = self.space(at)
            if self.text[at : at + 1] != ":":
                raise self.fail(f"expected ':' after the key {key!r}, found {self.shown(at)}", at)
            node = self.value(self.space(at + 1), depth + 1)
            members[key] = Member(start, node)
            at = self.space(node.end)
            mark = self.text[at : at + 1]
            if mark == "}":
                return Node(position, at + 1, members)
            if mark != ",":
                raise self.fail(f"expected ',' or '}}' after the value of {key!r}, found {self.shown(at)}", at)
            at = self.space(at + 1)
            if self.text[at : at + 1] == "}":
                raise self.fail("a comma before '}'", at)


def parse(text: str) -> Node:
    """The document in a text. Raises MalformedError with line and column."""
    parser = _Parser(text)
    start = parser.space(0)
    node = parser.value(start, 0)
    end = parser.space(node.end)
    if end < len(text):
        raise parser.fail(f"expected the end of the file after the value, found {parser.shown(end)}", end)
    return node


@dataclass(frozen=True)
class Style:
    """How a document is written: unit of indentation, None for all on one line; the indentation of its outermost brace."""

    unit: str | None = "    "
    base: str = ""


def style_of(text: str, root: Node) -> Style:
    """The style of a document whose root is an object; of an empty one the default."""
    members = root.value if isinstance(root.value, dict) else {}
    if not members:
        return Style()
    first = next(iter(members.values()))
    between = text[root.start + 1 : first.start]
    if "\n" not in between:
        return Style(unit=None) if "\n" not in text[root.start : root.end] else Style()
    base = _indentation(text, root.start)
    own = between.rsplit("\n", 1)[1]
    return Style(own[len(base) :] if own.startswith(base) else own, base)


def _indentation(text: str, position: int) -> str:
    """The white space that the line of a position begins with."""
    match = re.match(r"[ \t]*", text[text.rfind("\n", 0, position) + 1 : position])
    return match.group() if match else ""


def dump(value: Any, style: Style, indent: str) -> str:
    """A value as JSON, its lines after the first indented by at least `indent`. Lists of scalars stay on one line."""
    if isinstance(value, Mapping):
        if not value:
            return "{}"
        deeper = indent + (style.unit or "")
        members = [f"{json.dumps(str(key), ensure_ascii=False)}: {dump(item, style, deeper)}" for key, item in value.items()]
        if style.unit is None:
            return "{" + ", ".join(members) + "}"
        return "{\n" + ",\n".join(deeper + member for member in members) + "\n" + indent + "}"
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(dump(item, Style(unit=None), indent) for item in value) + "]"
    if isinstance(value, str):
        return json.dumps(str(value), ensure_ascii=False)
    if value is None or isinstance(value, (bool, int, float)):
        return json.dumps(value, allow_nan=False)
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def find(node: Node, path: Sequence[str]) -> Node | None:
    """The node at a path of keys, or None."""
    for key in path:
        if not isinstance(node.value, dict) or key not in node.value:
            return None
        node = node.value[key].node
    return node


def put(text: str, path: Sequence[str], value: Any) -> str:
    """The text with the member at a path set to a value; objects on the way are made where they are missing.

    An existing member keeps its place, a new one goes to the end of its object. Raises MalformedError when the text is not
    JSON, ValueError when something on the way is no object.
    """
    root = parse(text)
    style = style_of(text, root)
    node = root
    for depth, key in enumerate(path):
        if not isinstance(node.value, dict):
            raise ValueError(f"{'.'.join(path[:depth]) or 'the document'} is no object")
        member = node.value.get(key)
        if member is None:
            rest: Any = value
            for missing in reversed(path[depth + 1 :]):
                rest = {missing: rest}
            return _insert(text, node, style, key, rest)
        node = member.node
    return text[: node.start] + dump(value, style, _indentation(text, node.start)) + text[node.end :]


def _insert(text: str, node: Node, style: Style, key: str, value: Any) -> str:
    """Put a new member at the end of an object."""
    members = node.value if isinstance(node.value, dict) else {}
    name = json.dumps(key, ensure_ascii=False)
    if members:
        last = list(members.values())[-1]
        lead = text[: last.start].rsplit("\n", 1)[-1]
        if "\n" in text[node.start : last.start] and not lead.strip():
            return text[: last.node.end] + f",\n{lead}{name}: {dump(value, style, lead)}" + text[last.node.end :]
        return text[: last.node.end] + f", {name}: {dump(value, Style(unit=None), '')}" + text[last.node.end :]
    if style.unit is None:
        return text[: node.start] + "{" + f"{name}: {dump(value, style, '')}" + "}" + text[node.end :]
    outer = _indentation(text, node.start)
    inner = outer + style.unit
    return text[: node.start] + "{\n" + f"{inner}{name}: {dump(value, style, inner)}\n{outer}" + "}" + text[node.end :]


def drop(text: str, path: Sequence[str]) -> str:
    """The text without the member at a path; unchanged when there is none."""
    root = parse(text)
    parent = find(root, path[:-1])
    if parent is None or not isinstance(parent.value, dict) or path[-1] not in parent.value:
        return text
    keys = list(parent.value)
    index = keys.index(path[-1])
    member = parent.value[path[-1]]
    if len(keys) == 1:
        return text[: parent.start] + "{}" + text[parent.end :]
    if index + 1 < len(keys):
        return text[: member.start] + text[parent.value[keys[index + 1]].start :]
    return text[: parent.value[keys[index - 1]].node.end] + text[member.node.end :]


def same(node: Node, value: Any) -> bool:
    """The node says the same as a Python value: numbers by value, keys in any order, items in their order."""
    if isinstance(value, bool) or value is None or isinstance(node.value, bool) or node.value is None:
        return node.value is value
    if isinstance(value, Mapping):
        return (
            isinstance(node.value, dict)
            and set(node.value) == {str(key) for key in value}
            and all(same(node.value[str(key)].node, item) for key, item in value.items())
        )
    if isinstance(value, (list, tuple)):
        return (
            isinstance(node.value, list)
            and len(node.value) == len(value)
            and all(same(own, other) for own, other in zip(node.value, value))
        )
    if isinstance(value, (int, float)):
        return isinstance(node.value, (int, Decimal)) and node.value == Decimal(str(value))
    return isinstance(node.value, str) and isinstance(value, str) and node.value == str(value)
