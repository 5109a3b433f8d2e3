"""Shared by the unit tests: modules run in this process, and what they would have printed comes back as a dictionary.

The collection is imported by its real name, `ansible_collections.inferack.rack…`; pyproject.toml puts `collections/` on the
path, and `ansible_collections` is a namespace that the installed collections share.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
from ansible.module_utils import basic
from hypothesis import settings

# Readers are quick, machines are not: no deadline, and no database left in the working tree.
settings.register_profile("inferack", deadline=None, database=None, derandomize=True, max_examples=60)
settings.load_profile("inferack")

RunModule = Callable[..., dict[str, Any]]


class ModuleEnd(Exception):
    """A module ended; `result` is what it would have printed."""

    def __init__(self, result: dict[str, Any]) -> None:
        super().__init__(result.get("msg", ""))
        self.result = result


def _exit(self: basic.AnsibleModule, **result: Any) -> None:
    raise ModuleEnd({"changed": False, **result, "failed": False})


def _fail(self: basic.AnsibleModule, msg: str, **result: Any) -> None:
    raise ModuleEnd({"changed": False, **result, "failed": True, "msg": msg})


@pytest.fixture
def run_module(monkeypatch: pytest.MonkeyPatch) -> RunModule:
    """`run_module(module, options, check_mode=False, diff=False)` returns the module's result, `failed` included."""

    def run(module: ModuleType, options: dict[str, Any], check_mode: bool = False, diff: bool = False) -> dict[str, Any]:
        arguments = {**options, "_ansible_check_mode": check_mode, "_ansible_diff": diff, "_ansible_remote_tmp": "/tmp"}
        with monkeypatch.context() as patch:
            patch.setattr(basic, "_ANSIBLE_ARGS", json.dumps({"ANSIBLE_MODULE_ARGS": arguments}).encode())
            patch.setattr(basic, "_ANSIBLE_PROFILE", "legacy", raising=False)
            patch.setattr(basic.AnsibleModule, "exit_json", _exit)
            patch.setattr(basic.AnsibleModule, "fail_json", _fail)
            with pytest.raises(ModuleEnd) as end:
                module.main()
        # What a module returns must survive the way to the control node; a task with any rc but 0 is a failed one there.
        result: dict[str, Any] = json.loads(json.dumps(end.value.result))
        if result.get("rc", 0) not in (0, "0"):
            result["failed"] = True
        return result

    return run
