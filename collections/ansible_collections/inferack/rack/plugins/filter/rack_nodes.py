# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filter that gathers what a run left about a rack's nodes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ansible_collections.inferack.rack.plugins.plugin_utils._report_nodes import rack_nodes


class FilterModule:
    """Filter `rack_nodes`."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Name to function, as Ansible asks for it."""
        return {"rack_nodes": rack_nodes}
