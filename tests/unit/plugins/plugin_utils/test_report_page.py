"""The page as text; how it looks and behaves is tests/browser's business."""

from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.plugin_utils._report import build, node_from
from ansible_collections.inferack.rack.plugins.plugin_utils._report_page import page, placement

VOID = {"meta", "link", "input", "br"}


class Shape(HTMLParser):
    """Collects the tags and attributes that a page has, and whether its elements are closed in order."""

    def __init__(self) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: set[str] = set()
        self.open: list[str] = []
        self.crossed: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes |= {name for name, _ in attrs}
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.crossed.append(tag)


def drawn(text: str, height: int = 6) -> str:
    node: dict[str, Any] = {
        "name": "n" + text,
        "rack_unit": 1,
        "gpus": [{"index": 0, "bus_id": "0000:07:00.0", "product": text, "uuid": text}],
        "gpu_expected": {"count": 2, "product": text},
        "versions": {"os": text},
        "failure": {"role": text, "task": text, "sentence": text},
        "checks": [
            {
                "id": "gpu.state",
                "status": "fail",
                "subject": text,
                "found": text,
                "expected": {text: text},
                "remedy": text,
                "evidence": [text],
            }
        ],
    }
    return page(build({"name": "r" + text, "height": height}, [node_from(node)], {"collection": text}, "2026-11-30T13:40:05Z"))


def shape(document: str) -> Shape:
    parser = Shape()
    parser.feed(document)
    parser.close()
    return parser


@given(
    st.text(st.characters(codec=None), max_size=30)
    | st.sampled_from(["</style><script>", "</dialog>", "-->", '" onclick="x', "' x='"])
)
def test_any_text_leaves_the_page_as_it_is(text: str) -> None:
    plain, hostile = shape(drawn("x")), shape(drawn(text))
    assert hostile.attributes == plain.attributes
    assert hostile.tags.count("script") == hostile.tags.count("style") == 1
    assert set(hostile.tags) <= set(plain.tags)
    assert hostile.crossed == hostile.open == []


def test_nothing_is_loaded_and_only_its_own_script_may_run() -> None:
    document = drawn("x")
    assert not re.search(r"https?://", document)
    assert not re.search(r"\son[a-z]+=", document), "no inline handler"
    assert " style=" not in document
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', document)
    assert policy
    assert policy[1].startswith("default-src 'none'; ")
    for tag in ("style", "script"):
        text = re.search(rf"<{tag}>(.*?)</{tag}>", document, re.DOTALL)
        assert text
        digest = base64.b64encode(hashlib.sha256(text[1].encode()).digest()).decode()
        assert f"{tag}-src 'sha256-{digest}'" in policy[1]


def test_placement() -> None:
    nodes = [
        {"name": "low", "rack_unit": 1, "rack_units": 2},
        {"name": "top", "rack_unit": 6},
        {"name": "clash", "rack_unit": 2},
        {"name": "out", "rack_unit": 6, "rack_units": 2},
        {"name": "zero", "rack_unit": 0},
        {"name": "nowhere"},
    ]
    report = build({"name": "r", "height": 6}, [node_from(node) for node in nodes], {}, "t")
    placed, beside = placement(report)
    assert placed == [1, 0]
    assert [report["nodes"][number]["name"] for number, _ in beside] == ["clash", "out", "zero", "nowhere"]
    assert all(reason for _, reason in beside)
