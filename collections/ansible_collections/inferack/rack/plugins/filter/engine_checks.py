# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters that turn Docker Engine's words, and a node's facts, into checks of an engine."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, Check, as_dicts
from ansible_collections.inferack.rack.plugins.module_utils._engine_log import start_error
from ansible_collections.inferack.rack.plugins.plugin_utils._nim_needs import judge_needs


def engine_start_checks(message: Any, container: str) -> list[dict[str, Any]]:
    """The check that Docker Engine's words about a container it could not run belong to."""
    cause = start_error(str(message))
    found = f"container {container} does not start: {cause.line}"
    return as_dicts([Check(cause.check, FAIL, found=found, expected="a running container", remedy=cause.remedy)])


def nim_needs_checks(node: Mapping[str, Any], needs: Mapping[str, Any], later: bool = False) -> list[dict[str, Any]]:
    """What the image needs against what the node has; see `_nim_needs.judge_needs`."""
    return as_dicts(judge_needs(node, needs, later))


class FilterModule:
    """Filters `engine_start_checks` and `nim_needs_checks`."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"engine_start_checks": engine_start_checks, "nim_needs_checks": nim_needs_checks}
