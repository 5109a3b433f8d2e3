# Copyright (c) inferack contributors
# GNU General Public License v3.0+ (see https://www.gnu.org/licenses/gpl-3.0.txt)
"""A filter that turns a failed task into the fact the report reads."""

from __future__ import annotations

import typing as t

from ansible_collections.inferack.rack.plugins.plugin_utils._failure import failure


class FilterModule:
    """Filter `failure`."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Filter functions by name."""
        return {"failure": failure}
