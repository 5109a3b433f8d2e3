"""The collection's own files agree with what is in it."""

from __future__ import annotations

from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[3]
COLLECTION = ROOT / "collections" / "ansible_collections" / "inferack" / "rack"


def test_every_module_is_in_the_action_group() -> None:
    runtime = yaml.safe_load((COLLECTION / "meta" / "runtime.yml").read_text())
    modules = {f"inferack.rack.{path.stem}" for path in (COLLECTION / "plugins" / "modules").glob("*.py")}
    assert set(runtime["action_groups"]["rack"]) == modules


def test_dependencies_are_those_of_the_checkout() -> None:
    galaxy = yaml.safe_load((COLLECTION / "galaxy.yml").read_text())
    required = yaml.safe_load((ROOT / "requirements.yml").read_text())
    assert galaxy["dependencies"] == {entry["name"]: entry["version"] for entry in required["collections"]}


def test_every_module_is_named_in_the_readme() -> None:
    text = (COLLECTION / "README.md").read_text()
    for path in (COLLECTION / "plugins" / "modules").glob("*.py"):
        assert f"`{path.stem}`" in text
    for path in (COLLECTION / "roles").iterdir():
        if path.is_dir():
            assert f"`{path.name}`" in text
