"""Every module's documentation says what its argument spec says, and its examples and returns are YAML."""

from __future__ import annotations

from types import ModuleType
from typing import Any

import pytest
import yaml
from ansible.module_utils import basic

from ansible_collections.inferack.rack.plugins.doc_fragments.attributes import ModuleDocFragment
from ansible_collections.inferack.rack.plugins.modules import (
    container_gpu,
    daemon_json,
    diagnose,
    dkms,
    engine_image,
    engine_port,
    inference_endpoint,
    node_info,
    nvidia_smi,
)

MODULES = [container_gpu, daemon_json, diagnose, dkms, engine_image, engine_port, inference_endpoint, node_info, nvidia_smi]


class Stop(Exception):
    """The module got as far as its argument spec."""


def spec_of(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    kept: dict[str, Any] = {}

    def init(self: basic.AnsibleModule, argument_spec: dict[str, Any], **options: Any) -> None:
        kept.update(spec=argument_spec, **options)
        raise Stop

    monkeypatch.setattr(module.AnsibleModule, "__init__", init)
    with pytest.raises(Stop):
        module.main()
    assert kept["supports_check_mode"] is True
    spec: dict[str, Any] = kept["spec"]
    return spec


def documented(module: ModuleType) -> dict[str, Any]:
    """The module's documentation with its fragments merged in, as ansible-doc shows it."""
    document: dict[str, Any] = yaml.safe_load(module.DOCUMENTATION)
    document.setdefault("attributes", {})
    for name in document["extends_documentation_fragment"]:
        part = name.removeprefix("inferack.rack.attributes").lstrip(".").upper() or "DOCUMENTATION"
        fragment = yaml.safe_load(getattr(ModuleDocFragment, part))
        document["options"].update(fragment["options"])
        for attribute, says in fragment.get("attributes", {}).items():
            document["attributes"].setdefault(attribute, {}).update(says)
    return document


def same(options: dict[str, Any], spec: dict[str, Any]) -> None:
    assert set(options) == set(spec)
    for name, option in options.items():
        for key in ("type", "elements", "choices", "default", "required"):
            assert option.get(key, False if key == "required" else None) == spec[name].get(
                key, False if key == "required" else None
            ), (name, key)
        assert ("suboptions" in option) == ("options" in spec[name])
        if "suboptions" in option:
            same(option["suboptions"], spec[name]["options"])


@pytest.mark.parametrize("module", MODULES, ids=lambda module: module.__name__.rsplit(".", 1)[-1])
def test_documentation(module: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    document = documented(module)
    assert document["module"] == module.__name__.rsplit(".", 1)[-1]
    assert set(document["attributes"]) == {"check_mode", "diff_mode", "idempotent"}
    assert all(says["support"] and says["description"] for says in document["attributes"].values())
    same(document["options"], spec_of(module, monkeypatch))
    for example in yaml.safe_load(module.EXAMPLES):
        assert example["name"]
    for value in yaml.safe_load(module.RETURN).values():
        assert {"description", "returned", "type"} <= set(value)
