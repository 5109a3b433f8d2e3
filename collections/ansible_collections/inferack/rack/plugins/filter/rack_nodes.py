# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters that gather what a run left about racks and their nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.inferack.rack.plugins.plugin_utils._report_nodes import (
    node_sentence,
    proxy_answers,
    rack_nodes,
    report_racks,
)


class FilterModule:
    """Filters `rack_nodes`, `report_racks`, `node_sentence` and `proxy_answers`."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function, as Ansible asks for it."""
        return {
            "node_sentence": node_sentence,
            "proxy_answers": proxy_answers,
            "rack_nodes": rack_nodes,
            "report_racks": report_racks,
        }
