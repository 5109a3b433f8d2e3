# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Collects what a run left about each node of a rack, in the shape that `rack_report` takes.

Reads only variables and facts, never a node: hosts that failed or stopped answering are here like all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._checks import as_dicts, from_dict, merge
from ansible_collections.inferack.rack.plugins.plugin_utils._report import bus_id

#: Set by this run's tasks alone, so that one of them proves that the run spoke to the node.
_TRACES = ("inferack_phase", "inferack_failure", "inferack_acceptance")


def fact(host: Mapping[str, Any], name: str) -> Any:
    """A value that a plugin returned as a fact or a task set with `set_fact`, the latter first; None when absent."""
    if name in host:
        return host[name]
    return (host.get("ansible_facts") or {}).get(name)


def checks_of(host: Mapping[str, Any]) -> list[dict[str, Any]]:
    """All checks the host has: set by tasks, stored by plugins, gathered by the acceptance; the latter counts."""
    sources = (
        host.get("inferack_checks"),
        (host.get("ansible_facts") or {}).get("inferack_checks"),
        (host.get("inferack_acceptance") or {}).get("checks"),
        (host.get("inferack_failure") or {}).get("checks"),
    )
    known = merge([], [])
    for source in sources:
        known = merge(known, [from_dict(check) for check in source or []])
    return as_dicts(known)


def gpus_of(host: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The node's GPUs: those on the PCI bus, completed by what the driver says, then those that only the driver names."""
    by_address: dict[str, dict[str, Any]] = {}
    for gpu in (fact(host, "inferack_node") or {}).get("gpus") or []:
        address = bus_id(str(gpu["bus_id"]))
        by_address[address] = {"index": None, "bus_id": address, "product": "", "uuid": ""}
    for gpu in (host.get("inferack_acceptance") or {}).get("gpus") or []:
        address = bus_id(str(gpu.get("bus_id") or ""))
        known = by_address.setdefault(address or str(gpu.get("uuid")), {"bus_id": address})
        known.update(index=gpu.get("index"), product=str(gpu.get("product") or ""), uuid=str(gpu.get("uuid") or ""))
    return list(by_address.values())


def versions_of(host: Mapping[str, Any]) -> dict[str, Any]:
    """Component to version; None where a component is absent or was not looked at."""
    node = fact(host, "inferack_node") or {}
    system = node.get("os") or {}
    driver = node.get("driver") or {}
    name = " ".join(str(system[key]) for key in ("distribution", "version") if system.get(key))
    return {
        "os": name or None,
        "kernel": (node.get("kernel") or {}).get("release"),
        "driver": driver.get("loaded_version"),
        "flavour": driver.get("flavour"),
        "docker": (node.get("docker") or {}).get("version"),
        "toolkit": (node.get("toolkit") or {}).get("version"),
        "engine": (host.get("inferack_acceptance") or {}).get("engine") or (fact(host, "inferack_plan") or {}).get("engine"),
    }


def rack_node(name: str, host: Mapping[str, Any], looked_at: bool) -> dict[str, Any]:
    """One node for `rack_report`.

    A node that this run targeted and that neither failed nor was verified stopped answering: Ansible drops such a host
    without a task that could note it.
    """
    failure = host.get("inferack_failure")
    verified = bool(host.get("inferack_acceptance"))
    seen = looked_at or any(host.get(trace) for trace in _TRACES)
    if not seen:
        return {
            "name": name,
            "rack_unit": host.get("rack_unit"),
            "rack_units": host.get("rack_units", 1),
            "looked_at": False,
            "gpu_expected": dict(host.get("gpu_expected") or {}),
        }
    return {
        "name": name,
        "rack_unit": host.get("rack_unit"),
        "rack_units": host.get("rack_units", 1),
        "looked_at": True,
        "verified": verified,
        "reached": verified or bool(failure),
        "phase": str(host.get("inferack_phase") or ""),
        "failure": {key: str(failure.get(key) or "") for key in ("role", "task", "sentence")} if failure else None,
        "checks": checks_of(host),
        "gpus": gpus_of(host),
        "gpu_expected": dict(host.get("gpu_expected") or {}),
        "versions": versions_of(host),
    }


def rack_nodes(
    hostvars: Mapping[str, Mapping[str, Any]], names: Iterable[str], looked_at: Iterable[str]
) -> list[dict[str, Any]]:
    """All nodes of a rack, in the order of `names`.

    Args:
        hostvars: Ansible's `hostvars`.
        names: hosts of the rack.
        looked_at: hosts that this run targeted (`ansible_play_hosts_all`, or all without `--limit`).
    """
    targeted = set(looked_at)
    return [rack_node(name, hostvars[name], name in targeted) for name in names]
