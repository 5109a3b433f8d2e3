# SPDX-License-Identifier: Apache-2.0
"""What a failed task says, in one sentence and as checks, for the fact `inferack_failure` and the report."""

from __future__ import annotations

import typing as t

MAX_EVIDENCE_LINES = 40


def _first_line(text: t.Any) -> str:
    """First line of `text` that is not blank, or an empty string."""
    for line in str(text or "").splitlines():
        if line.strip():
            return line.strip()
    return ""


def failed_item(result: dict[str, t.Any]) -> dict[str, t.Any]:
    """The result that failed: the first failed item of a loop, else `result` itself."""
    for item in result.get("results") or []:
        if isinstance(item, dict) and item.get("failed"):
            return item
    return result


def cause(result: dict[str, t.Any]) -> str:
    """The most telling line of a failed result.

    A command's own words (stderr, then stdout) tell more than Ansible's "non-zero return code".
    """
    message = _first_line(result.get("msg"))
    if not message or message.startswith("non-zero return code"):
        own_words = (
            _first_line(result.get("stderr")) or _first_line(result.get("module_stderr")) or _first_line(result.get("stdout"))
        )
        message = own_words or message
    return message or "no message was given"


def evidence(result: dict[str, t.Any]) -> list[str]:
    """Up to MAX_EVIDENCE_LINES lines of what the task printed, the last ones where it printed more."""
    lines: list[str] = []
    for key in ("msg", "stderr", "stdout", "module_stderr", "module_stdout"):
        lines.extend(line for line in str(result.get(key) or "").splitlines() if line.strip())
    return lines[-MAX_EVIDENCE_LINES:]


def failure(result: dict[str, t.Any], role: str, task: str) -> dict[str, t.Any]:
    """Describe a failed task.

    Args:
        result: `ansible_failed_result` of the rescue.
        role: the role that was running, such as `triton`.
        task: name of the failed task.

    Returns:
        `{role, task, sentence, checks}`. `checks` are the failed result's own where it has some; else one check
        `role.failed` that carries the task's words, so that the report always names a check.
    """
    item = failed_item(result)
    checks = item.get("checks") or result.get("checks") or []
    if any(check.get("status") == "fail" for check in checks):
        return {"role": role, "task": task, "sentence": _first_line(item.get("msg")), "checks": checks}
    words = cause(item).rstrip(".")
    sentence = f"{role}: the task “{task}” failed: {words}; mend that and run again, what is already right is skipped."
    check = {
        "id": "role.failed",
        "status": "fail",
        "subject": f"role {role}",
        "found": cause(item),
        "expected": f"the task “{task}” ends well",
        "remedy": "Mend what the task names and run again; what is already right is skipped.",
        "evidence": evidence(item),
    }
    return {"role": role, "task": task, "sentence": sentence, "checks": [*checks, check]}
