# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filter that turns `triton_models` into what a node's model repository must hold."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._checks import as_dicts
from ansible_collections.inferack.rack.plugins.plugin_utils._triton_config import repository


def triton_repository(models: Any, search: Sequence[str] = (), gpus: bool = True) -> dict[str, Any]:
    """`{models, hash, checks}`; see `_triton_config.Repository`."""
    wanted = repository(models, list(search), gpus)
    return {"models": wanted.models, "hash": wanted.hash, "checks": as_dicts(wanted.checks)}


class FilterModule:
    """Filter `triton_repository`."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name and function."""
        return {"triton_repository": triton_repository}
