# SPDX-License-Identifier: Apache-2.0
"""A filter that turns a failed task into the fact the report reads."""

from __future__ import annotations

import typing as t

from ansible_collections.inferack.rack.plugins.plugin_utils._failure import failure


class FilterModule:
    """Filter `failure`."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Filter functions by name."""
        return {"failure": failure}
