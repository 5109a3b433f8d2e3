# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters that judge the container engine and the container toolkit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.inferack.rack.plugins.plugin_utils import _container_checks as checks


class FilterModule:
    """Filters `engine_conflicts`, `engine_checks` and `dockerd_refused`."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function, as Ansible asks for it."""
        return {
            "dockerd_refused": checks.dockerd_refused,
            "engine_checks": checks.engine_checks,
            "engine_conflicts": checks.engine_conflicts,
        }
