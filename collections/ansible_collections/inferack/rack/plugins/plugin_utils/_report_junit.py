# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""The report as JUnit XML: one test suite a node, one test case a check."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import Any
from xml.etree import ElementTree

#: What XML 1.0 cannot hold even as a reference (https://www.w3.org/TR/xml/#charsets).
_NOT_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def xml_text(text: str) -> str:
    """`text` with each character that XML cannot hold shown as U+FFFD."""
    return _NOT_XML.sub("\N{REPLACEMENT CHARACTER}", text)


def in_words(value: Any) -> str:
    """A found or expected value as text: a text as it is, everything else as JSON."""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, sort_keys=True)


def _details(check: Mapping[str, Any]) -> str:
    lines = [f"found: {in_words(check['found'])}", f"expected: {in_words(check['expected'])}"]
    if check["remedy"]:
        lines.append(f"remedy: {check['remedy']}")
    return xml_text("\n".join([*lines, *check["evidence"]]))


def _test_case(suite: ElementTree.Element, check: Mapping[str, Any]) -> None:
    name = f"{check['id']} [{check['subject']}]" if check["subject"] else check["id"]
    case = ElementTree.SubElement(
        suite, "testcase", {"classname": xml_text(check["node"]), "name": xml_text(name), "time": "0"}
    )
    if check["status"] == "fail":
        message = f"found {in_words(check['found'])}, expected {in_words(check['expected'])}; {check['remedy']}"
        failure = ElementTree.SubElement(case, "failure", {"message": xml_text(message), "type": check["id"]})
        failure.text = _details(check)
    elif check["status"] == "skip":
        ElementTree.SubElement(case, "skipped", {"message": xml_text(in_words(check["found"]))})
    else:
        output = ElementTree.SubElement(case, "system-out")
        output.text = ("warning\n" if check["status"] == "warn" else "") + _details(check)


def junit(report: Mapping[str, Any]) -> str:
    """The report as a JUnit document, as Jenkins, GitLab and GitHub's readers take it."""
    checks = report["checks"]
    root = ElementTree.Element(
        "testsuites",
        {
            "name": xml_text(report["rack"]["name"]),
            "tests": str(len(checks)),
            "failures": str(sum(check["status"] == "fail" for check in checks)),
            "errors": "0",
            "time": "0",
        },
    )
    for node in report["nodes"]:
        own = [check for check in checks if check["node"] == node["name"]]
        suite = ElementTree.SubElement(
            root,
            "testsuite",
            {
                "name": xml_text(node["name"]),
                "hostname": xml_text(node["name"]),
                "tests": str(len(own)),
                "failures": str(sum(check["status"] == "fail" for check in own)),
                "errors": "0",
                "skipped": str(sum(check["status"] == "skip" for check in own)),
                "time": "0",
                "timestamp": report["rack"]["time"].rstrip("Z"),
            },
        )
        for check in own:
            _test_case(suite, check)
    ElementTree.indent(root)
    return '<?xml version="1.0" encoding="utf-8"?>\n' + ElementTree.tostring(root, encoding="unicode") + "\n"
