# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Collects what a run left about each node of a rack, in the shape that `rack_report` takes.

Reads only variables and facts, never a node: hosts that failed or stopped answering are here like all others.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._checks import (
    FAIL,
    PASS,
    WARN,
    Check,
    as_dicts,
    failing,
    from_dict,
    merge,
)
from ansible_collections.inferack.rack.plugins.plugin_utils._report import (
    bus_id,
    node_checks,
    node_from,
    sentence_of,
    status_of,
)

#: Groups whose hosts are nodes of a rack.
NODE_GROUPS = ("gpu_nodes", "proxy_nodes", "head_nodes")
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


def report_racks(
    hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Iterable[str]], looked_at: Iterable[str]
) -> list[dict[str, Any]]:
    """The racks that this run looked at, each with `name`, `height`, `path` (None: the default) and `nodes`.

    A rack is what the hosts with the same `inferack_rack_name` make up; a rack of which no node was a target is left out, so
    that its report stays as it is.
    """
    targeted = set(looked_at)
    names = list(dict.fromkeys(name for group in NODE_GROUPS for name in groups.get(group, [])))
    racks: dict[str, list[str]] = {}
    for name in names:
        racks.setdefault(str(hostvars[name].get("inferack_rack_name") or "rack"), []).append(name)
    reports = []
    for rack, hosts in racks.items():
        nodes = rack_nodes(hostvars, hosts, targeted)
        if any(node["looked_at"] for node in nodes):
            reports.append(
                {
                    "name": rack,
                    "height": int(_first(hostvars, hosts, "inferack_rack_height") or 42),
                    "path": _first(hostvars, hosts, "inferack_report_dir") or None,
                    "nodes": nodes,
                }
            )
    return reports


def _first(hostvars: Mapping[str, Mapping[str, Any]], hosts: Iterable[str], name: str) -> Any:
    """The first value that a host of the rack has."""
    return next((hostvars[host][name] for host in hosts if hostvars[host].get(name)), None)


def proxy_answers(
    results: Iterable[Mapping[str, Any]], engines: Iterable[Mapping[str, Any]], ready: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """The check `proxy.answer` for each model that was asked for through the proxy.

    Args:
        results: results of `inference_endpoint`, each with `item`, the model's name.
        engines: the rack's engines with `name` and `models`.
        ready: the proxy's answer to `/readyz`.

    No answer fails the proxy only when it says itself that an engine for the model is ready; otherwise the engine's own node
    answers for it, and the proxy's gets a warning.
    """
    up = {engine.get("name") for engine in ready.get("engines") or [] if engine.get("ready")}
    serving = {model for engine in engines if engine.get("name") in up for model in engine.get("models") or []}
    checks = []
    for result in results:
        model = str(result["item"])
        failed = failing([from_dict(check) for check in result.get("checks") or []])
        answer = result.get("answer")
        if answer and not failed:
            check = Check(
                id="proxy.answer",
                status=PASS,
                subject=f"model {model}",
                found=str(answer)[:200],
                expected="an answer through the proxy",
                evidence=[f"{name}: {value}" for name, value in (result.get("timings") or {}).items()],
            )
        else:
            check = Check(
                id="proxy.answer",
                status=FAIL if model in serving else WARN,
                subject=f"model {model}",
                found=str(failed[0].found) if failed else str(result.get("msg") or "no answer"),
                expected="an answer through the proxy",
                remedy="Read the proxy's log (journalctl -u inferack-adapter-proxy) and the engine's, then run again."
                if model in serving
                else "Bring an engine with this model into service, then run again.",
                evidence=[line for check in failed for line in check.evidence],
            )
        checks.append(check)
    return as_dicts(checks)


def node_sentence(hostvars: Mapping[str, Mapping[str, Any]], name: str) -> str:
    """Why this node is not accepted, in the report's own words; empty when it is."""
    node = node_from(rack_node(name, hostvars[name], looked_at=True))
    checks = node_checks(node)
    return sentence_of(node, status_of(node, checks), checks)
