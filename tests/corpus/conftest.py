"""Says at the end how many cases of each kind were judged rightly."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line per kind: passed and judged."""
    counts: dict[str, Counter[str]] = {}
    for outcome in ("passed", "failed"):
        for report in terminalreporter.stats.get(outcome, []):
            match = re.search(r"test_diagnose\.py::test_(dmesg|docker|triton|smi_text|smi_xml)\[", report.nodeid)
            if match and report.when == "call":
                counts.setdefault(match.group(1), Counter())[outcome] += 1
    for kind, count in sorted(counts.items()):
        terminalreporter.write_line(f"diagnose, {kind}: {count['passed']} of {count['passed'] + count['failed']} as expected")
