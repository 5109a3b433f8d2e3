"""Protobuf's text format: what is read, and where it says that something is wrong."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.plugin_utils._pbtxt import PbtxtError, Word, parse, quote


@pytest.mark.parametrize(
    ("text", "fields"),
    [
        ("", {}),
        ("# only a comment\n", {}),
        ('name: "m"', {"name": ["m"]}),
        ("name: 'm' ; max_batch_size: 4,", {"name": ["m"], "max_batch_size": [4]}),
        ('name: "a" "b"', {"name": ["ab"]}),
        ("x: -1 y: 1.5 z: 2f", {"x": [-1], "y": [1.5], "z": [2.0]}),
        ("kind: KIND_CPU on: true", {"kind": ["KIND_CPU"], "on": ["true"]}),
        ("dims: [ 1, -1 ] dims: 3", {"dims": [1, -1, 3]}),
        ("dims: [ ]", {"dims": []}),
        ("a { b: 1 } a: { b: 2 }", {"a": [{"b": [1]}, {"b": [2]}]}),
        ("a [ { b: 1 }, { b: 2 } ]", {"a": [{"b": [1]}, {"b": [2]}]}),
        (r'v: "a\"b\\c\n"', {"v": ['a"b\\c\n']}),
    ],
)
def test_reads(text: str, fields: dict[str, object]) -> None:
    assert parse(text) == fields


def test_a_word_is_not_a_string() -> None:
    assert isinstance(parse("a: TYPE_FP32")["a"][0], Word)
    assert not isinstance(parse('a: "TYPE_FP32"')["a"][0], Word)


@pytest.mark.parametrize(
    ("text", "where", "words"),
    [
        ("a: ", "1:4", "end of text"),
        ("a 1", "1:3", "expected : or {"),
        ("a: {\n  b: 1\n", "3:1", "expected word"),
        ("a: 1\n}", "2:1", "expected word"),
        ("a: [ 1 2 ]", "1:8", "expected , or ]"),
        ("x: 1\ndims: $DIMS", "2:7", "cannot read '$DIMS'"),
        ('a: "open', "1:4", "cannot read"),
    ],
)
def test_says_where(text: str, where: str, words: str) -> None:
    with pytest.raises(PbtxtError) as caught:
        parse(text)
    assert str(caught.value).startswith(where)
    assert words in str(caught.value)


@given(st.text())
def test_what_is_quoted_is_read_back(text: str) -> None:
    assert parse(f"a: {quote(text)}")["a"] == [text]


@given(st.text(alphabet='ab:{}[]",;# \n1\\', max_size=40))
def test_never_anything_but_a_pbtxt_error(text: str) -> None:
    with suppress(PbtxtError):
        parse(text)


def test_a_configuration_from_the_field() -> None:
    case = Path(__file__).resolve().parents[5] / "shared/cases/triton/issue_446_ensemble_fc.pbtxt"
    if not case.exists():
        pytest.skip("the shared cases are not beside the checkout")
    fields = parse(case.read_text())
    assert fields["platform"] == ["ensemble"]
    assert [step["model_name"] for step in fields["ensemble_scheduling"][0]["step"]] == [["attributes_plan"], ["insight_plan"]]
