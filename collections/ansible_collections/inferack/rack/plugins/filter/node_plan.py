# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Filters of the roles preflight, nouveau and nvidia_driver: thin skins over plugin_utils."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any

from ansible.errors import AnsibleFilterError

from ansible_collections.inferack.rack.plugins.module_utils._checks import as_dicts
from ansible_collections.inferack.rack.plugins.plugin_utils import _compat, _driver_checks, _install_failure, _plan

Node = Mapping[str, Any]


def node_plan(node: Node, request: Mapping[str, Any]) -> dict[str, Any]:
    """The node's plan from its facts and the operator's request; today's date is added unless given."""
    today = datetime.now(tz=timezone.utc).date().isoformat()
    try:
        return _plan.plan(node, {"today": today, **request}, _compat.load())
    except (ValueError, KeyError, TypeError) as error:
        raise AnsibleFilterError(f"node_plan: {type(error).__name__}: {error}") from error


def headers_checks(node: Node, plan: Mapping[str, Any], output: str, manager: str) -> list[dict[str, Any]]:
    """Checks on headers and build tools, from the package manager's answer."""
    return as_dicts(_driver_checks.headers_check(node, plan, output, manager))


def nouveau_checks(node: Node, reboot_ok: bool = True) -> list[dict[str, Any]]:
    """Checks on nouveau, now and after the next boot."""
    return as_dicts(_driver_checks.nouveau_checks(node, reboot_ok=reboot_ok))


def driver_checks(node: Node, plan: Mapping[str, Any], reboot_ok: bool = True) -> list[dict[str, Any]]:
    """Checks on the installed and loaded driver."""
    return as_dicts(_driver_checks.driver_checks(node, plan, reboot_ok=reboot_ok))


def next_boot_checks(node: Node, plan: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Checks on the driver's modules for every kernel that can be booted."""
    return as_dicts(_driver_checks.next_boot_checks(node, plan))


class FilterModule:
    """The filters by name."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Filters by the name that templates use."""
        return {
            "node_plan": node_plan,
            "headers_checks": headers_checks,
            "nouveau_checks": nouveau_checks,
            "driver_checks": driver_checks,
            "next_boot_checks": next_boot_checks,
            "driver_step": _driver_checks.next_step,
            "needs_build": _driver_checks.needs_build,
            "stale_image": _driver_checks.stale_image,
            "install_failure": _install_failure.install_failure,
        }
