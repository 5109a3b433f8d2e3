"""The rack's engines from the inventory, and the proxy's files made of them."""

from __future__ import annotations

import base64
import io
import tarfile
from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.errors import AnsibleFilterError

from ansible_collections.inferack.rack.plugins.filter.rack_engines import FilterModule
from ansible_collections.inferack.rack.plugins.plugin_utils import _engines
from ansible_collections.inferack.rack.plugins.plugin_utils._engines import (
    EnginesError,
    address,
    package,
    proxy_checks,
    proxy_files,
    rack_engines,
    role_defaults,
)

TEXT = {"name": "text_model", "max_batch_size": 4}


def text_model(**more: Any) -> dict[str, Any]:
    return {
        **TEXT,
        "inputs": [{"name": "text", "data_type": "TYPE_STRING", "dims": [1]}],
        "outputs": [{"name": "output", "data_type": "TYPE_STRING", "dims": [1]}],
        **more,
    }


def engines_of(rack: str | None = None, **hosts: dict[str, Any]) -> list[dict[str, Any]]:
    return rack_engines(hosts, {"gpu_nodes": list(hosts)}, rack)


def test_a_triton_node() -> None:
    assert engines_of(a={"ansible_host": "10.0.0.1", "triton_models": [text_model()], "triton_http_port": 8100}) == [
        {
            "name": "a-triton",
            "adapter": "triton",
            "base_url": "http://10.0.0.1:8100",
            "models": ["text_model"],
            "class": "throughput",
            "api_key": "",
            "node": "a",
            "options": {"models": {"text_model": {"input": "text", "output": "output", "shape": [1, 1]}}},
        }
    ]


def test_a_nim_node_and_its_model_from_the_images_name() -> None:
    node = {"inferack_engine": "nim", "nim_image": "registry.example.net:5000/nim/meta/llama-3.1-8b-instruct:1.8.4"}
    (engine,) = engines_of(a=node)
    assert (engine["models"], engine["base_url"], engine["adapter"]) == (
        ["meta/llama-3.1-8b-instruct"],
        "http://a:8000",
        "openai",
    )
    (engine,) = engines_of(a={**node, "nim_models": ["other"], "nim_port": 9000})
    assert (engine["models"], engine["base_url"]) == (["other"], "http://a:9000")
    with pytest.raises(EnginesError, match="a: nim_models is empty"):
        engines_of(a={**node, "nim_image": "my-own:1"})


@pytest.mark.parametrize(
    ("model", "options"),
    [
        (text_model(max_batch_size=0), {"input": "text", "output": "output", "shape": [1]}),
        (TEXT, {}),
        (
            text_model(config_extra="model_transaction_policy { decoupled: true }"),
            {"input": "text", "output": "output", "shape": [1, 1], "protocol": "generate_stream"},
        ),
        (
            text_model(
                inputs=[
                    {"name": "n", "data_type": "TYPE_INT32", "dims": [1]},
                    {"name": "prompt", "data_type": "TYPE_STRING", "dims": [1, 1]},
                ]
            ),
            {"input": "prompt", "output": "output", "shape": [1, 1, 1]},
        ),
    ],
)
def test_tensors_of_a_triton_model(model: dict[str, Any], options: dict[str, Any]) -> None:
    (engine,) = engines_of(a={"triton_models": [model]})
    assert engine["options"] == {"models": {"text_model": options}}


def test_models_without_text_are_not_the_proxys() -> None:
    vision = text_model(name="vision", inputs=[{"name": "image", "data_type": "TYPE_UINT8", "dims": [3, 224, 224]}])
    (engine,) = engines_of(a={"triton_models": [vision, text_model()]})
    assert engine["models"] == ["text_model"]
    assert engines_of(a={"triton_models": [vision]}) == []


def test_nodes_that_count() -> None:
    node = {"triton_models": [text_model()]}
    hosts = {
        "a": node,
        "b": {**node, "inferack_engine": "none"},
        "c": {**node, "inferack_rack_name": "other"},
        "d": {},
        "e": {**node, "inferack_rack_name": "rack"},
    }
    assert [engine["node"] for engine in engines_of(**hosts)] == ["a", "c", "e"]
    assert [engine["node"] for engine in engines_of("rack", **hosts)] == ["a", "e"]
    assert [engine["node"] for engine in engines_of("other", **hosts)] == ["c"]
    assert rack_engines({}, {}) == []


@pytest.mark.parametrize(
    ("variables", "expected"),
    [
        ({}, "node"),
        ({"ansible_host": "10.1.2.3"}, "10.1.2.3"),
        ({"ansible_host": "fd00::1"}, "[fd00::1]"),
        ({"ansible_host": "10.1.2.3", "inferack_address": "10.9.9.9"}, "10.9.9.9"),
    ],
)
def test_address(variables: dict[str, Any], expected: str) -> None:
    assert address("node", variables) == expected


@pytest.mark.parametrize(
    ("variables", "words"),
    [
        ({"inferack_engine": "vllm"}, "a: inferack_engine must be triton, nim or none, found 'vllm'"),
        ({"triton_models": "text_model"}, "a: triton_models must be a list"),
        ({"triton_models": ["text_model"]}, r"a: triton_models\[0\] must be a dictionary with a name"),
        ({"triton_models": [TEXT], "triton_http_port": "x"}, "a: triton_http_port must be a port"),
        ({"triton_models": [TEXT], "triton_http_port": 70000}, "a: triton_http_port must be a port"),
    ],
)
def test_what_cannot_be_used_is_named(variables: dict[str, Any], words: str) -> None:
    with pytest.raises(EnginesError, match=words):
        engines_of(a=variables)


def test_defaults_come_from_the_roles(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "triton" / "defaults"
    folder.mkdir(parents=True)
    (folder / "main.yml").write_text(yaml.safe_dump({"triton_http_port": 8765, "triton_models": [TEXT]}))
    monkeypatch.setattr(_engines, "role_defaults", lambda role: role_defaults(role, tmp_path))
    (engine,) = engines_of(a={})
    assert engine["base_url"] == "http://a:8765"


def test_keys_are_kept_apart() -> None:
    external = [
        {"name": "lpu", "base_url": "https://lpu.example.net/v1", "models": ["big"], "class": "latency", "api_key": "s3cret\n"},
        {"name": "open", "base_url": "http://x", "models": ["m"]},
    ]
    files = proxy_files(engines_of(a={"triton_models": [TEXT]}), external, [{"name": "r", "models": ["big"]}], {"log": {}})
    assert files["secrets"] == {"engine_keys": {"lpu": "s3cret"}}
    assert "s3cret" not in repr(files["config"])
    lpu = files["config"]["engines"][1]
    assert lpu == {
        "name": "lpu",
        "base_url": "https://lpu.example.net/v1",
        "models": ["big"],
        "class": "latency",
        "adapter": "openai",
        "key_required": True,
    }
    assert "key_required" not in files["config"]["engines"][2]
    assert files["config"]["routes"] == [{"name": "r", "models": ["big"]}]
    assert files["config"]["log"] == {}


def test_a_rack_without_engines_is_refused() -> None:
    with pytest.raises(EnginesError, match="no engine that takes and gives text"):
        proxy_files([], [], [])
    with pytest.raises(EnginesError, match="has no name: its keys are base_url"):
        proxy_files([], [{"base_url": "x", "api_key": "hidden"}], [])


def test_package_digest_follows_names_and_contents(tmp_path: Path) -> None:
    (tmp_path / "p" / "__pycache__").mkdir(parents=True)
    (tmp_path / "p" / "q").mkdir()
    (tmp_path / "p" / "a.py").write_text("1")
    (tmp_path / "p" / "q" / "b.py").write_text("2")
    (tmp_path / "requirements.txt").write_text("x==1")
    first = package(str(tmp_path))
    with tarfile.open(fileobj=io.BytesIO(base64.b64decode(first["archive"]))) as tar:
        assert tar.getnames() == ["p/a.py", "p/q/b.py", "requirements.txt"]
        assert tar.extractfile("p/q/b.py").read() == b"2"
    (tmp_path / "p" / "__pycache__" / "a.pyc").write_text("junk")
    (tmp_path / ".mypy_cache").mkdir()
    (tmp_path / ".mypy_cache" / "c.py").write_text("junk")
    assert package(str(tmp_path)) == first
    (tmp_path / "p" / "a.py").write_text("3")
    assert package(str(tmp_path))["digest"] != first["digest"]
    with pytest.raises(EnginesError, match="no package"):
        package(str(tmp_path / "nothing"))


def test_checks_fail_for_the_own_engine_and_warn_for_others() -> None:
    ready = {
        "engines": [
            {"name": "a-triton", "node": "a", "ready": False, "reason": "cannot be reached"},
            {"name": "b-triton", "node": "b", "ready": False, "reason": ""},
            {"name": "lpu", "node": None, "ready": True, "reason": ""},
        ]
    }
    checks = proxy_checks(ready, "a")
    assert [(check["subject"], check["status"]) for check in checks] == [
        ("engine a-triton", "fail"),
        ("engine b-triton", "warn"),
        ("engine lpu", "pass"),
    ]
    assert checks[0]["found"] == "cannot be reached"
    assert checks[1]["found"] == "not looked at yet"
    assert "on a " in checks[0]["remedy"]
    assert checks[2]["remedy"] == ""
    assert proxy_checks({}, "a") == []


def test_filters_speak_ansible() -> None:
    filters = FilterModule().filters()
    assert set(filters) == {"rack_engines", "proxy_files", "proxy_package", "proxy_checks"}
    with pytest.raises(AnsibleFilterError, match="no engine"):
        filters["proxy_files"]([], [], [])
