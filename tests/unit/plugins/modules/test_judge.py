"""The documentation of the judge; its work is tested with the action plugin."""

from __future__ import annotations

import yaml

from ansible_collections.inferack.rack.plugins.modules import judge


def test_documentation_names_the_options_of_the_action_plugin() -> None:
    assert set(yaml.safe_load(judge.DOCUMENTATION)["options"]) == {"checks", "report_only"}
