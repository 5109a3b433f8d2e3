"""triton_models: what is refused, in which words; what is rendered; which files go where."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.filter.triton_repository import FilterModule
from ansible_collections.inferack.rack.plugins.plugin_utils import _triton_config as config
from ansible_collections.inferack.rack.plugins.plugin_utils._pbtxt import parse

TEXT: dict[str, Any] = {
    "name": "text_model",
    "backend": "python",
    "max_batch_size": 4,
    "inputs": [{"name": "text", "data_type": "TYPE_STRING", "dims": [1]}],
    "outputs": [{"name": "output", "data_type": "TYPE_STRING", "dims": [1]}],
    "source": "text_model",
}


def model(**changes: Any) -> dict[str, Any]:
    entry = copy.deepcopy(TEXT)
    entry.update(changes)
    return {key: value for key, value in entry.items() if value is not ...}


def tensor(**changes: Any) -> list[dict[str, Any]]:
    entry = {"name": "text", "data_type": "TYPE_STRING", "dims": [1], **changes}
    return [{key: value for key, value in entry.items() if value is not ...}]


@pytest.fixture
def source(tmp_path: Path) -> Path:
    folder = tmp_path / "models/text_model/1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text("x = 1\n")
    return tmp_path / "models"


def test_the_example_has_no_problems() -> None:
    assert config.model_problems(TEXT, 0) == []


@pytest.mark.parametrize(
    ("entry", "words"),
    [
        ("text", "triton_models[0] must be a dictionary"),
        (model(name=...), "name None must be letters"),
        (model(name="a/b"), "name 'a/b' must be letters"),
        (model(name=".hidden"), "name '.hidden' must be letters"),
        (model(backend=...), "needs either backend"),
        (model(platform="ensemble"), "needs either backend"),
        (model(max_batch_size=-1), "max_batch_size -1 must be a whole number"),
        (model(max_batch_size="4"), "max_batch_size '4' must be a whole number"),
        (model(max_batch_size=True), "max_batch_size True must be a whole number"),
        (model(max_batchsize=4), "unknown key max_batchsize (did you mean max_batch_size?)"),
        (model(inputs=...), "has no inputs, which the python backend needs"),
        (model(outputs=[]), "has no outputs, which the python backend needs"),
        (model(inputs={"name": "text"}), "inputs must be a list"),
        (model(inputs=["text"]), "must be a dictionary with name, data_type and dims"),
        (model(inputs=tensor(name=...)), "input has no name"),
        (
            model(inputs=tensor(data_type="BYTES")),
            "input text: data_type 'BYTES' is no data type of Triton (write TYPE_STRING)",
        ),
        (model(inputs=tensor(data_type="TYPE_BYTES")), "(write TYPE_STRING)"),
        (model(inputs=tensor(data_type="string")), "(write TYPE_STRING)"),
        (model(inputs=tensor(data_type="FP32")), "(write TYPE_FP32)"),
        (model(inputs=tensor(data_type="float")), "(write TYPE_FP32)"),
        (model(inputs=tensor(data_type="TYPE_STRNG")), "(did you mean TYPE_STRING?)"),
        (model(inputs=tensor(data_type=...)), "data_type None is no data type of Triton"),
        (model(outputs=tensor(data_type="int")), "output text: data_type 'int' is no data type of Triton (write TYPE_INT32)"),
        (model(inputs=tensor(dims=...)), "dims None must be a list of sizes"),
        (model(inputs=tensor(dims=1)), "dims 1 must be a list of sizes"),
        (model(inputs=tensor(dims=[0])), "dims [0] must be a list of sizes"),
        (model(inputs=tensor(dims=[-2])), "dims [-2] must be a list of sizes"),
        (model(inputs=tensor(dims=[True])), "dims [True] must be a list of sizes"),
        (model(inputs=tensor(dims=["1"])), "dims ['1'] must be a list of sizes"),
        (model(inputs=tensor(dims=[])), "dims is empty"),
        (model(inputs=tensor(dim=[1])), "unknown key dim (did you mean dims?)"),
        (model(inputs=tensor(reshape=[1])), "reshape must be a dictionary"),
        (model(inputs=tensor(optional="yes")), "optional must be true or false"),
        (model(inputs=tensor() * 2), "has 2 inputs named text"),
        (model(instance_group={"kind": "KIND_CPU"}), "instance_group must be a list"),
        (model(instance_group=["KIND_CPU"]), "instance_group must hold dictionaries"),
        (model(instance_group=[{"kind": "CPU"}]), "kind 'CPU' is none of KIND_AUTO"),
        (model(instance_group=[{"count": 0}]), "count 0 must be a whole number of at least 1"),
        (model(instance_group=[{"knd": "KIND_CPU"}]), "unknown key knd (did you mean kind?)"),
        (model(dynamic_batching=True), "dynamic_batching must be a dictionary"),
        (model(dynamic_batching={}, max_batch_size=0), "dynamic_batching needs a max_batch_size of at least 1"),
        (
            model(dynamic_batching={"preferred_batch_size": [8]}),
            "preferred_batch_size 8 must be between 1 and max_batch_size (4)",
        ),
        (model(parameters=["a"]), "parameters must be a dictionary"),
        (model(version=0), "version 0 must be a whole number"),
        (model(version="latest"), "version 'latest' must be a whole number"),
        (model(config_extra={"a": 1}), "config_extra must be text"),
        (model(config_extra="version_policy: { all { }"), "config_extra cannot be read at 1:26"),
        (model(config_extra="dims: ${DIMS}"), "config_extra cannot be read at 1:7"),
        (model(config_extra="max_batch_size: 8"), "config_extra sets max_batch_size, which has a key of its own"),
    ],
)
def test_refuses(entry: Any, words: str) -> None:
    problems = config.model_problems(entry, 0)
    assert any(words in problem for problem in problems), problems
    assert all(not problem.endswith(".") for problem in problems)


def test_gpus_are_needed_for_kind_gpu() -> None:
    entry = model(instance_group=[{"kind": "KIND_GPU"}])
    assert config.model_problems(entry, 0, gpus=True) == []
    assert "triton_gpus gives the engine no GPU" in config.model_problems(entry, 0, gpus=False)[0]


RENDERED = """\
# Written by inferack.rack.triton from triton_models; changes are overwritten.
name: "text_model"
backend: "python"
max_batch_size: 4
input {
  name: "text"
  data_type: TYPE_STRING
  dims: [ 1 ]
}
output {
  name: "output"
  data_type: TYPE_STRING
  dims: [ 1 ]
}
"""


def test_renders_the_example_exactly() -> None:
    assert config.render(TEXT) == RENDERED


@pytest.mark.parametrize(
    ("changes", "field", "value"),
    [
        ({"backend": ..., "platform": "onnxruntime_onnx"}, "platform", ["onnxruntime_onnx"]),
        ({"max_batch_size": ...}, "max_batch_size", [0]),
        ({"inputs": tensor(data_type="TYPE_FP16", dims=[3, -1])}, "input", [{"name": ["text"], "data_type": ["TYPE_FP16"], "dims": [3, -1]}]),
        ({"inputs": tensor(dims=[], reshape={"shape": [1]})}, "input", [{"name": ["text"], "data_type": ["TYPE_STRING"], "dims": [], "reshape": [{"shape": [1]}]}]),
        ({"inputs": tensor(optional=True)}, "input", [{"name": ["text"], "data_type": ["TYPE_STRING"], "dims": [1], "optional": ["true"]}]),
        ({"instance_group": [{"kind": "KIND_GPU", "count": 2, "gpus": [0, 1]}]}, "instance_group", [{"kind": ["KIND_GPU"], "count": [2], "gpus": [0, 1]}]),
        ({"dynamic_batching": {}}, "dynamic_batching", [{}]),
        ({"dynamic_batching": {"preferred_batch_size": [2, 4], "max_queue_delay_microseconds": 100}}, "dynamic_batching",
         [{"preferred_batch_size": [2, 4], "max_queue_delay_microseconds": [100]}]),
        ({"parameters": {"FORCE": True, "n": 3}}, "parameters",
         [{"key": ["FORCE"], "value": [{"string_value": ["true"]}]}, {"key": ["n"], "value": [{"string_value": ["3"]}]}]),
        ({"default_model_filename": 'a"b.py'}, "default_model_filename", ['a"b.py']),
        ({"config_extra": "version_policy { latest { num_versions: 2 } }"}, "version_policy", [{"latest": [{"num_versions": [2]}]}]),
    ],
)  # fmt: skip
def test_renders(changes: dict[str, Any], field: str, value: Any) -> None:
    entry = model(**changes)
    assert config.model_problems(entry, 0) == []
    text = config.render(entry)
    assert parse(text)[field] == value
    assert config.read_back_problems(entry, text) == []


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("TYPE_STRING", "TYPE_BYTES"),
        ("TYPE_STRING", '"TYPE_STRING'),
        ("dims: [ 1 ]", "dims: [ 2 ]"),
        ("batch_size: 4", "batch_size: 8"),
        ('"text_model"', '"other"'),
    ],
)
def test_a_renderer_that_errs_is_found_out(before: str, after: str) -> None:
    assert config.read_back_problems(TEXT, RENDERED.replace(before, after, 1))


def test_repository(source: Path) -> None:
    (source / "text_model/1/__pycache__").mkdir()
    (source / "text_model/1/__pycache__/model.pyc").write_bytes(b"")
    (source / "text_model/.git").write_text("")
    (source / "text_model/config.pbtxt").write_text("not ours")
    wanted = config.repository([TEXT], [str(source)])
    assert [check.status for check in wanted.checks] == ["pass", "pass"]
    assert wanted.models == [
        {
            "name": "text_model",
            "config": RENDERED,
            "folders": ["text_model", "text_model/1"],
            "files": [{"src": str(source / "text_model/1/model.py"), "dest": "text_model/1/model.py"}],
            "mount": None,
        }
    ]


def test_folders_within_a_version(source: Path) -> None:
    (source / "text_model/1/a/b").mkdir(parents=True)
    (source / "text_model/1/a/b/c.bin").write_bytes(b"x")
    assert config.repository([TEXT], [str(source)]).models[0]["folders"] == [
        "text_model",
        "text_model/1",
        "text_model/1/a",
        "text_model/1/a/b",
    ]


def test_a_flat_folder_and_a_file_are_one_version(source: Path) -> None:
    flat = config.repository([model(source=str(source / "text_model/1"), version=3)])
    assert flat.models[0]["files"][0]["dest"] == "text_model/3/model.py"
    onnx = source / "net.onnx"
    onnx.write_bytes(b"x")
    single = config.repository([model(source=str(onnx), backend="onnxruntime")])
    assert single.models[0]["files"] == [{"src": str(onnx), "dest": "text_model/1/net.onnx"}]


def test_a_source_on_the_node_is_mounted() -> None:
    wanted = config.repository([model(source="/data/text", source_on_node=True, version=2)])
    assert wanted.models[0]["mount"] == {"source": "/data/text", "target": "text_model/2"}
    assert wanted.models[0]["folders"] == ["text_model", "text_model/2"]
    assert wanted.checks[1].status == "pass"


def test_an_ensemble_needs_no_files() -> None:
    wanted = config.repository([model(backend=..., platform="ensemble", source=...)])
    assert wanted.checks[1].status == "pass"
    assert wanted.models[0]["folders"] == ["text_model", "text_model/1"]


@pytest.mark.parametrize(
    ("models", "check", "words"),
    [
        ({"text_model": {}}, "engine.config", "triton_models must be a list of models, found dict"),
        ([TEXT, TEXT], "engine.config", "triton_models has 2 entries named text_model"),
        ([model(max_batch_size=-1)], "engine.config", "max_batch_size -1"),
        ([model(source="nowhere")], "engine.models", "source nowhere is not there below"),
        ([model(source="/nowhere")], "engine.models", "source /nowhere is not there"),
        ([model(source=...)], "engine.models", "has no source"),
        ([model(source="data", source_on_node=True)], "engine.models", "must be an absolute path"),
        ([model(source="empty")], "engine.models", "holds no file of a version"),
        ([model(default_model_filename="main.py")], "engine.models", "has no main.py, which the python backend starts"),
    ],
)
def test_one_sentence_for_what_is_wrong(source: Path, models: Any, check: str, words: str) -> None:
    (source / "empty").mkdir()
    wanted = config.repository(models, [str(source)])
    failed = [found for found in wanted.checks if found.status == "fail"]
    assert [found.id for found in failed] == [check]
    assert words in str(failed[0].found)
    assert failed[0].remedy


def test_the_hash_follows_every_content(source: Path) -> None:
    def digest(**changes: Any) -> str:
        return config.repository([model(**changes)], [str(source)]).hash

    first = digest()
    assert first == digest()
    assert len(first) == 16
    others = {digest(max_batch_size=8), digest(parameters={"a": 1})}
    (source / "text_model/1/model.py").write_text("x = 2\n")
    others.add(digest())
    assert len(others | {first}) == 4


def test_no_models_is_a_valid_table() -> None:
    assert [check.status for check in config.repository([]).checks] == ["pass", "pass"]


def test_filter(source: Path) -> None:
    wanted = FilterModule().filters()["triton_repository"]([TEXT], [str(source)], False)
    assert set(wanted) == {"models", "hash", "checks"}
    assert wanted["checks"][0]["id"] == "engine.config"
