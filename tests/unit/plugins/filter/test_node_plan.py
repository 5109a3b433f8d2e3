"""The filters of preflight, nouveau and nvidia_driver by the names that templates use."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.inferack.rack.plugins.filter import node_plan

FILTERS = node_plan.FilterModule().filters()
OS = {"distribution": "Debian", "version": "12", "major": "12", "architecture": "x86_64"}
KERNEL = {"release": "6.1.0-42-amd64", "headers": False}
NODE = {"os": OS, "kernel": KERNEL, "gpus": [], "nouveau": {"loaded": False}, "driver": {"module_version": None}}


@pytest.mark.parametrize("name", sorted(FILTERS))
def test_each_filter_is_documented(name: str) -> None:
    text = Path(node_plan.__file__).with_name(f"{name}.yml").read_text(encoding="utf-8")
    documentation = yaml.safe_load(text)["DOCUMENTATION"]
    assert documentation["name"] == name
    assert documentation["options"]["_input"]["required"] is True


def test_today_is_added() -> None:
    assert FILTERS["node_plan"](NODE, {})["driver"] is None


@pytest.mark.parametrize(
    ("node", "request_"), [({**NODE, "os": None}, {}), (NODE, {"brunch": "580"}), (NODE, {"today": "soon"})]
)
def test_what_cannot_be_read_is_said(node: dict, request_: dict) -> None:
    with pytest.raises(AnsibleFilterError, match="node_plan"):
        FILTERS["node_plan"](node, request_)
