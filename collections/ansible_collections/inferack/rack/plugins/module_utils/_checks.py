# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""The one shape of every verification: a list of checks.

A check says what was looked at, what was found, what had been expected, and what to do when the two differ. The report,
the JUnit output and the exit status read this shape and nothing else (docs/architecture.md, "Checks").

Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

PASS = "pass"  # noqa: S105 - a status, not a secret
WARN = "warn"
FAIL = "fail"
SKIP = "skip"

#: From harmless to harmful. A skipped check proves nothing, so that anything that was looked at ranks above it.
SEVERITY: dict[str, int] = {SKIP: 0, PASS: 1, WARN: 2, FAIL: 3}

_ID = re.compile(r"^[a-z][a-z0-9_]*(\.[a-z0-9_]+)+$")


class Module(Protocol):
    """The part of `AnsibleModule` that `finish` needs."""

    def exit_json(self, **kwargs: Any) -> NoReturn:
        """End the module, successful."""

    def fail_json(self, msg: str, **kwargs: Any) -> NoReturn:
        """End the module, failed."""


@dataclass(frozen=True)
class Check:
    """One verification.

    id: stable name `area.what`, such as `gpu.count`.
    status: `pass`, `warn`, `fail` or `skip`.
    found: what was seen; None when nothing could be read. Missing is never zero.
    expected: what would have passed; None when there was no expectation.
    remedy: one imperative sentence; empty on pass.
    evidence: lines that prove `found`: output, file names, exit codes.
    subject: what the check is about when a node has several (`GPU 0000:07:00.0`), else empty.

    Raises ValueError for an id or status that is not one of the above.
    """

    id: str
    status: str
    found: Any = None
    expected: Any = None
    remedy: str = ""
    evidence: list[str] = field(default_factory=list)
    subject: str = ""

    def __post_init__(self) -> None:
        if not _ID.match(self.id):
            raise ValueError(f"check id {self.id!r} is not of the form area.what, such as gpu.count")
        if self.status not in SEVERITY:
            raise ValueError(f"check {self.id}: status {self.status!r} is none of {', '.join(SEVERITY)}")

    @property
    def key(self) -> tuple[str, str]:
        """What makes a check the same check in a later look: id and subject."""
        return (self.id, self.subject)


def as_dict(check: Check) -> dict[str, Any]:
    """The check as the dictionary that modules return."""
    return {
        "id": check.id,
        "status": check.status,
        "found": check.found,
        "expected": check.expected,
        "remedy": check.remedy,
        "evidence": list(check.evidence),
        "subject": check.subject,
    }


def as_dicts(checks: Iterable[Check]) -> list[dict[str, Any]]:
    """`as_dict` of each."""
    return [as_dict(check) for check in checks]


def from_dict(data: Mapping[str, Any]) -> Check:
    """The check in a dictionary as a module, a filter or a playbook wrote it.

    `id` and `status` are required, the rest may be left out. A single string as `evidence` is taken as one line.
    Raises ValueError naming the key that is missing, unknown or of the wrong type.
    """
    if not isinstance(data, Mapping):
        raise ValueError(f"a check must be a dictionary with at least id and status, not {type(data).__name__}: {data!r}")
    unknown = sorted(set(data) - set(Check.__dataclass_fields__))
    if unknown:
        raise ValueError(f"check {data.get('id')!r} has unknown keys: {', '.join(map(str, unknown))}")
    for key in ("id", "status"):
        if not isinstance(data.get(key), str):
            raise ValueError(f"a check needs the text {key!r}, found {data.get(key)!r} in {dict(data)!r}")
    evidence = data.get("evidence")
    if evidence is None:
        lines = []
    elif isinstance(evidence, str):
        lines = [evidence]
    elif isinstance(evidence, Sequence):
        lines = [str(line) for line in evidence]
    else:
        raise ValueError(f"check {data['id']!r}: evidence must be a list of lines, not {type(evidence).__name__}")
    return Check(
        id=str(data["id"]),
        status=str(data["status"]),
        found=data.get("found"),
        expected=data.get("expected"),
        remedy=str(data.get("remedy") or ""),
        evidence=lines,
        subject=str(data.get("subject") or ""),
    )


def worst(checks: Iterable[Check]) -> str:
    """The most harmful status among the checks; `skip` when there are none."""
    return max((check.status for check in checks), key=SEVERITY.__getitem__, default=SKIP)


def failing(checks: Iterable[Check]) -> list[Check]:
    """The checks that failed, in their order."""
    return [check for check in checks if check.status == FAIL]


def merge(old: Iterable[Check], new: Iterable[Check]) -> list[Check]:
    """Both lists as one; of two checks with the same id and subject the newer replaces the older in its place."""
    merged: dict[tuple[str, str], Check] = {}
    for check in (*old, *new):
        merged[check.key] = check
    return list(merged.values())


def _words(value: Any) -> str:
    """A value as people write it: lists and dictionaries without brackets, None as `nothing`."""
    if value is None:
        return "nothing"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, Mapping):
        return ", ".join(f"{key} {_words(item)}" for key, item in value.items()) or "nothing"
    if isinstance(value, (list, tuple, set, frozenset)):
        return ", ".join(_words(item) for item in value) or "nothing"
    return " ".join(str(value).split()) or "nothing"


def plural(count: int, noun: str) -> str:
    """`1 GPU`, `2 GPUs`."""
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def sentence(check: Check) -> str:
    """`id[, subject]: found …, expected …; remedy.` as one sentence on one line.

    The clause `expected …` is left out when the check has no expectation, the remedy when it has none.
    """
    subject = " ".join(check.subject.split())
    name = f"{check.id}, {subject}" if subject else check.id
    cause = f"found {_words(check.found)}"
    if check.expected is not None:
        cause += f", expected {_words(check.expected)}"
    remedy = " ".join(check.remedy.split())
    if remedy[1:2].islower() or remedy[1:2] == " ":
        remedy = remedy[0].lower() + remedy[1:]
    text = f"{name}: {cause.rstrip('.;')}"
    if remedy:
        text += f"; {remedy}"
    return text if text.endswith((".", "!", "?")) else text + "."


def summary(checks: Iterable[Check]) -> str:
    """The sentence of the first failing check and how many more there are; empty when none fails."""
    failed = failing(checks)
    if not failed:
        return ""
    text = sentence(failed[0])
    return f"{text} (and {len(failed) - 1} more)" if len(failed) > 1 else text


#: The option of every verifying module, documented in the fragment `attributes.checks`.
REPORT_ONLY = {"report_only": {"type": "bool", "default": False}}


def finish(module: Module, checks: Sequence[Check], report_only: bool, **result: Any) -> NoReturn:
    """End a verifying module: failed when a check fails and `report_only` is false, else ok.

    The result carries `checks`, `worst` and whatever else is given; where a check fails the summary is its `msg`.
    `changed` is false unless given.
    """
    result.setdefault("changed", False)
    result["checks"] = as_dicts(checks)
    result["worst"] = worst(checks)
    message = summary(checks)
    if not message:
        module.exit_json(**result)
    result.pop("msg", None)
    if report_only:
        module.exit_json(msg=message, **result)
    module.fail_json(msg=message, **result)
