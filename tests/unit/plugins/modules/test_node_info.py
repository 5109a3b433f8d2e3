"""The module node_info on whatever machine the tests run on: it must answer, whole and quickly."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from ansible_collections.inferack.rack.plugins.modules import node_info


@pytest.mark.parametrize("check_mode", [False, True])
def test_every_documented_fact_is_there(run_module: Any, check_mode: bool) -> None:
    result = run_module(node_info, {"gather_initramfs": False}, check_mode=check_mode)
    assert (result["failed"], result["changed"], result["unread"]) == (False, False, {})
    documented = yaml.safe_load(node_info.RETURN)["ansible_facts"]["contains"]["inferack_node"]["contains"]
    assert set(result["ansible_facts"]["inferack_node"]) == set(documented)
    assert result["ansible_facts"]["inferack_node"]["kernel"]["release"]


def test_no_tool_at_all(run_module: Any, add_tool: Any) -> None:
    result = run_module(node_info, {"gather_initramfs": False})
    assert result["unread"] == {}
    assert result["ansible_facts"]["inferack_node"]["dkms"] is None
    assert result["ansible_facts"]["inferack_node"]["packages"] is None
