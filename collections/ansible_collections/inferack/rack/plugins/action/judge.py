# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Judge checks that a role computed itself: keep them as a host fact, fail with one sentence when one fails."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from ansible_collections.inferack.rack.plugins.module_utils._checks import Check, as_dicts, from_dict, merge, summary, worst

FACT = "inferack_checks"


def read(raw: Any, what: str) -> list[Check]:
    """The checks in a list of dictionaries. Raises AnsibleActionFail naming the entry that is none."""
    if raw is None:
        return []
    if isinstance(raw, (str, bytes, Mapping)) or not isinstance(raw, (list, tuple)):
        raise AnsibleActionFail(f"{what} must be a list of checks, found {type(raw).__name__}: {raw!r}")
    checks: list[Check] = []
    for number, entry in enumerate(raw):
        try:
            checks.append(from_dict(entry))
        except ValueError as error:
            raise AnsibleActionFail(f"{what}[{number}] is not a check: {error}") from error
    return checks


def known(task_vars: Mapping[str, Any]) -> list[Check]:
    """The checks the host has so far.

    Facts that plugins return are found under `ansible_facts`; what a playbook stored with `set_fact` is a variable of its
    own. Both count, and the fact is the newer one since only this plugin and the modules write it.
    """
    facts = task_vars.get("ansible_facts") or {}
    stored = task_vars.get(FACT)
    return merge(read(stored, FACT), read(facts.get(FACT), f"ansible_facts.{FACT}"))


class ActionModule(ActionBase):  # type: ignore[misc]
    """`inferack.rack.judge`; documented in plugins/modules/judge.py. Opens no connection and changes nothing."""

    _requires_connection = False
    _supports_check_mode = True
    _supports_async = False
    TRANSFERS_FILES = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Judge, and return `checks`, `worst` and the fact; or `failed`, `msg` and `checks`."""
        variables = task_vars or {}
        result: dict[str, Any] = super().run(tmp, variables)
        _unused, args = self.validate_argument_spec(
            argument_spec={
                "checks": {"type": "list", "elements": "dict", "required": True},
                "report_only": {"type": "bool", "default": False},
            },
        )
        checks = read(args["checks"], "checks")
        merged = merge(known(variables), checks)
        result.update(changed=False, checks=as_dicts(checks), worst=worst(checks))
        message = summary(checks)
        if message and not args["report_only"]:
            result.update(failed=True, msg=message)
            return result
        if message:
            result["msg"] = message
        result["ansible_facts"] = {FACT: as_dicts(merged)}
        return result
