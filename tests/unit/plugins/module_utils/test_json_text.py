"""JSON edited as text: as strict as Go, and nothing else changes."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _json_text


@pytest.mark.parametrize(
    ("text", "line", "column", "words"),
    [
        ("", 1, 1, "end of the file"),
        ("{", 1, 2, "expected a key"),
        ('{"a": 1,}', 1, 9, "a comma before '}'"),
        ('{"a": [1,]}', 1, 10, "a comma before ']'"),
        ('{\n  "a": 1\n  "b": 2\n}', 3, 3, "expected ',' or '}' after the value of 'a', found '\"'"),
        ('{"a" 1}', 1, 6, "expected ':'"),
        ("{'a': 1}", 1, 2, "double quotes"),
        ('{"a": 1} {"b": 2}', 1, 10, "expected the end of the file"),
        ('{"a": tru}', 1, 7, "expected a value"),
        ('{"a": 01}', 1, 8, "expected ',' or '}'"),
        ('{"a": .5}', 1, 7, "expected a value"),
        ('{"a": NaN}', 1, 7, "expected a value"),
        ('{"a": "x\ny"}', 1, 7, "not closed"),
        ('{"a": "\\x"}', 1, 7, "not closed"),
        ('{"a": "x', 1, 7, "not closed"),
        ('{"a": 1, "b": 2, "a": 3}', 1, 18, "occurs twice"),
        ("// comment\n{}", 1, 1, "expected a value"),
        ("[" * 200, 1, 102, "nested deeper"),
        ("[1 2]", 1, 4, "expected ',' or ']'"),
    ],
)
def test_malformed(text: str, line: int, column: int, words: str) -> None:
    with pytest.raises(_json_text.MalformedError, match=re.escape(words)) as error:
        _json_text.parse(text)
    assert (error.value.line, error.value.column) == (line, column)


TAB = '{\n\t"hosts": [\n\t\t"fd://"\n\t],\n\t"big": 12345678901234567890.10,\n\t"log": {"a": "b"}\n}\n'


@pytest.mark.parametrize(
    ("text", "path", "value", "after"),
    [
        ("{}", ["a"], 1, '{\n    "a": 1\n}'),
        ("{}\n", ["a", "b"], {"c": []}, '{\n    "a": {\n        "b": {\n            "c": []\n        }\n    }\n}\n'),
        ('{"a": 1}', ["b"], {"c": True}, '{"a": 1, "b": {"c": true}}'),
        ('{"a": 1, "b": null}', ["a"], 'é"\n', '{"a": "é\\"\\n", "b": null}'),
        ('{"a": {}}', ["a", "b"], 1, '{"a": {"b": 1}}'),
        ('{\n  "a": {\n  }\n}', ["a", "b"], 1, '{\n  "a": {\n    "b": 1\n  }\n}'),
        ('{\n"a": 1\n}', ["b"], {"c": 1}, '{\n"a": 1,\n"b": {\n"c": 1\n}\n}'),
        (TAB, ["x"], {"y": {}}, TAB[:-3] + ',\n\t"x": {\n\t\t"y": {}\n\t}\n}\n'),
        (TAB, ["log", "c"], "d", TAB.replace('{"a": "b"}', '{"a": "b", "c": "d"}')),
        (TAB, ["hosts"], ["unix://"], TAB.replace('[\n\t\t"fd://"\n\t]', '["unix://"]')),
        ('  {\n    "a": 1\n  }', ["b"], 2, '  {\n    "a": 1,\n    "b": 2\n  }'),
        ('{"a": 1 }', ["b"], 2, '{"a": 1, "b": 2 }'),
        ('{\r\n  "a": 1\r\n}', ["a"], 2, '{\r\n  "a": 2\r\n}'),
    ],
)
def test_put(text: str, path: list[str], value: Any, after: str) -> None:
    assert _json_text.put(text, path, value) == after


def test_put_refuses_to_go_through_a_value() -> None:
    with pytest.raises(ValueError, match=r"a\.b is no object"):
        _json_text.put('{"a": {"b": 1}}', ["a", "b", "c"], 1)


@pytest.mark.parametrize(
    ("text", "path", "after"),
    [
        ('{"a": 1, "b": 2, "c": 3}', ["a"], '{"b": 2, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', ["b"], '{"a": 1, "c": 3}'),
        ('{"a": 1, "b": 2, "c": 3}', ["c"], '{"a": 1, "b": 2}'),
        ('{\n  "a": 1,\n  "b": 2\n}\n', ["b"], '{\n  "a": 1\n}\n'),
        ('{\n  "a": 1\n}\n', ["a"], "{}\n"),
        ('{"a": {"b": 1, "c": 2}}', ["a", "b"], '{"a": {"c": 2}}'),
        ('{"a": 1}', ["x"], '{"a": 1}'),
        ('{"a": 1}', ["a", "x"], '{"a": 1}'),
    ],
)
def test_drop(text: str, path: list[str], after: str) -> None:
    assert _json_text.drop(text, path) == after


@pytest.mark.parametrize(
    ("text", "value", "same"),
    [
        ("1", 1, True),
        ("1.0", 1, True),
        ("1e2", 100, True),
        ("1", True, False),
        ("true", True, True),
        ("true", 1, False),
        ('"true"', True, False),
        ("null", None, True),
        ("0", None, False),
        ('{"a": 1, "b": [2]}', {"b": [2], "a": 1}, True),
        ('{"a": 1}', {"a": 1, "b": 2}, False),
        ("[1, 2]", [2, 1], False),
        ('"1"', 1, False),
    ],
)
def test_same(text: str, value: Any, same: bool) -> None:
    assert _json_text.same(_json_text.parse(text), value) is same


values = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(-(10**20), 10**20),
        st.floats(allow_nan=False, allow_infinity=False),
        st.text(max_size=6),
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(st.text(max_size=6), inner, max_size=4)),
    max_leaves=12,
)
objects = st.dictionaries(st.text(max_size=6), values, max_size=5)
indents = st.sampled_from([None, 0, 1, 2, 4, "\t"])


@given(values, indents, st.booleans())
def test_parse_reads_what_python_writes(value: Any, indent: Any, ascii_only: bool) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=ascii_only)
    assert _json_text.plain(_json_text.parse(text)) == json.loads(text)
    assert _json_text.same(_json_text.parse(text), value)


@given(st.text(alphabet='{}[]",:\\ \n01-.eEtrufalsn\x00é', max_size=30))
def test_parse_accepts_nothing_that_python_refuses(text: str) -> None:
    try:
        node = _json_text.parse(text)
    except _json_text.MalformedError:
        return
    assert _json_text.plain(node) == json.loads(text)


@given(objects, indents, st.lists(st.text(max_size=6), min_size=1, max_size=3), values)
def test_put_sets_one_member_and_nothing_else(before: dict[str, Any], indent: Any, path: list[str], value: Any) -> None:
    text = json.dumps(before, indent=indent)
    expected = json.loads(text)
    place = expected
    for key in path[:-1]:
        place = place.setdefault(key, {})
        if not isinstance(place, dict):
            with pytest.raises(ValueError, match="no object"):
                _json_text.put(text, path, value)
            return
    place[path[-1]] = value
    after = _json_text.put(text, path, value)
    assert json.loads(after) == expected
    assert _json_text.put(after, path, value) == after


@given(objects, indents, st.data())
def test_drop_removes_one_member_and_nothing_else(before: dict[str, Any], indent: Any, data: st.DataObject) -> None:
    text = json.dumps(before, indent=indent)
    key = data.draw(st.sampled_from([*before, "absent"]))
    after = _json_text.drop(text, [key])
    assert json.loads(after) == {name: value for name, value in json.loads(text).items() if name != key}
