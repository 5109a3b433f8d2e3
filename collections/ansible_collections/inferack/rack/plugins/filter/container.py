# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters that judge the container engine and the container toolkit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.inferack.rack.plugins.plugin_utils import _container_checks as checks


class FilterModule:
    """Filters over the fact `inferack_node`, and over dockerd's journal."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function, as Ansible asks for it."""
        return {
            "dockerd_refused": checks.dockerd_refused,
            "container_engine_checks": checks.engine_checks,
            "engine_conflicts": checks.engine_conflicts,
            "package_failure": checks.package_failure,
            "toolkit_checks": checks.toolkit_checks,
            "toolkit_right": checks.toolkit_right,
            "toolkit_settings": checks.toolkit_settings,
        }
