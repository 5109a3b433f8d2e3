"""JUnit: one suite a node, one case a check, and any text a node can say."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.plugin_utils._report import build, node_from
from ansible_collections.inferack.rack.plugins.plugin_utils._report_junit import junit


def made(*nodes: dict[str, Any]) -> ElementTree.Element:
    report = build({"name": "r"}, [node_from(node) for node in nodes], {}, "2026-11-30T13:40:05Z")
    return ElementTree.fromstring(junit(report).encode())


def test_counts_and_kinds() -> None:
    root = made(
        {
            "name": "a",
            "verified": True,
            "checks": [
                {"id": "driver.version", "status": "pass", "found": "580"},
                {"id": "gpu.memory", "status": "warn", "found": "in use", "subject": "GPU 0"},
                {
                    "id": "gpu.count",
                    "status": "fail",
                    "found": 3,
                    "expected": 4,
                    "remedy": "Reseat it.",
                    "evidence": ["line 1", "line 2"],
                },
                {"id": "engine.ready", "status": "skip", "found": "no engine"},
            ],
        },
        {"name": "b", "looked_at": False},
    )
    assert root.tag == "testsuites"
    assert (root.get("tests"), root.get("failures"), root.get("errors")) == ("5", "1", "0")
    suites = root.findall("testsuite")
    assert [suite.get("name") for suite in suites] == ["a", "b"]
    assert [(suite.get("tests"), suite.get("failures"), suite.get("skipped")) for suite in suites] == [
        ("4", "1", "1"),
        ("1", "0", "1"),
    ]
    assert suites[0].get("timestamp") == "2026-11-30T13:40:05"
    cases = {case.get("name"): case for case in suites[0].findall("testcase")}
    assert set(cases) == {"driver.version", "gpu.memory [GPU 0]", "gpu.count", "engine.ready"}
    failure = cases["gpu.count"].find("failure")
    assert failure is not None
    assert failure.get("message") == "found 3, expected 4; Reseat it."
    assert "line 2" in (failure.text or "")
    assert cases["engine.ready"].find("skipped") is not None
    output = cases["gpu.memory [GPU 0]"].find("system-out")
    assert output is not None
    assert (output.text or "").startswith("warning\n")


@given(st.text(st.characters(codec=None), max_size=40))
def test_any_text_gives_valid_xml(text: str) -> None:
    root = made(
        {
            "name": "n" + text,
            "checks": [
                {
                    "id": "a.b",
                    "status": "fail",
                    "found": text,
                    "expected": [text],
                    "remedy": text,
                    "evidence": [text],
                    "subject": text,
                }
            ],
        }
    )
    assert len(root.findall("testsuite/testcase/failure")) == 1
