# SPDX-License-Identifier: Apache-2.0
"""Filters that turn the inventory into the adapter proxy's files, and its answer into checks."""

from __future__ import annotations

import typing as t

from ansible.errors import AnsibleFilterError

from ansible_collections.inferack.rack.plugins.plugin_utils import _engines


def _named(function: t.Callable[..., t.Any]) -> t.Callable[..., t.Any]:
    """The function with EnginesError said in Ansible's way."""

    def filtered(*args: t.Any, **kwargs: t.Any) -> t.Any:
        try:
            return function(*args, **kwargs)
        except _engines.EnginesError as error:
            raise AnsibleFilterError(str(error)) from error

    return filtered


class FilterModule:
    """Filters `rack_engines`, `proxy_files`, `proxy_package` and `proxy_checks`."""

    def filters(self) -> dict[str, t.Callable[..., t.Any]]:
        """Name to function."""
        return {
            "rack_engines": _named(_engines.rack_engines),
            "proxy_files": _named(_engines.proxy_files),
            "proxy_package": _named(_engines.package),
            "proxy_checks": _engines.proxy_checks,
        }
