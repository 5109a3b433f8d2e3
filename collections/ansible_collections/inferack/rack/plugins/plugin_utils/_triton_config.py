# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Triton's model repository from data: check the table of models, render and re-read `config.pbtxt`, list what to copy.

Everything that can be wrong in a table of models is found here, on the control node, before a node changes. The rules are
those of Triton's model configuration (triton-inference-server/common, protobuf/model_config.proto, and server,
docs/user_guide/model_configuration.md); the wording of refusals is ours.

The functions are pure, apart from `layout`, which lists and reads the files of a model's source.
"""

from __future__ import annotations

import difflib
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, Check
from ansible_collections.inferack.rack.plugins.plugin_utils._pbtxt import PbtxtError, parse, quote

#: First line of each rendered file; a model folder whose config.pbtxt begins with it is ours, and only those are removed.
HEADER = "# Written by inferack.rack.triton from triton_models; changes are overwritten."

#: Data types of model_config.proto.
DATA_TYPES = (
    "TYPE_BOOL", "TYPE_UINT8", "TYPE_UINT16", "TYPE_UINT32", "TYPE_UINT64", "TYPE_INT8", "TYPE_INT16", "TYPE_INT32",
    "TYPE_INT64", "TYPE_FP16", "TYPE_FP32", "TYPE_FP64", "TYPE_STRING", "TYPE_BF16",
)  # fmt: skip

#: Names people write for a data type: the protocol's, numpy's and Python's. Only used to say what was meant.
MEANT = {
    **dict.fromkeys(("BYTES", "STR", "TEXT"), "TYPE_STRING"),
    **dict.fromkeys(("FLOAT", "FLOAT32"), "TYPE_FP32"),
    **dict.fromkeys(("DOUBLE", "FLOAT64"), "TYPE_FP64"),
    **dict.fromkeys(("HALF", "FLOAT16"), "TYPE_FP16"),
    "BFLOAT16": "TYPE_BF16",
    "INT": "TYPE_INT32",
    "LONG": "TYPE_INT64",
}

KINDS = ("KIND_AUTO", "KIND_GPU", "KIND_CPU", "KIND_MODEL")

#: Keys of an entry of triton_models, and of a tensor in it.
MODEL_KEYS = (
    "name", "backend", "platform", "max_batch_size", "inputs", "outputs", "source", "source_on_node", "version",
    "instance_group", "dynamic_batching", "parameters", "default_model_filename", "config_extra",
)  # fmt: skip
TENSOR_KEYS = ("name", "data_type", "dims", "optional", "reshape")
GROUP_KEYS = ("name", "kind", "count", "gpus")
BATCHING_KEYS = ("preferred_batch_size", "max_queue_delay_microseconds", "preserve_ordering")

#: Fields that render() writes itself, and config_extra must therefore not hold.
OWN_FIELDS = (
    "name", "backend", "platform", "max_batch_size", "input", "output", "instance_group", "dynamic_batching", "parameters",
    "default_model_filename",
)  # fmt: skip

#: Files that never belong into a model repository.
LEFT_OUT = re.compile(r"(^|/)(\.[^/]+|__pycache__|[^/]+\.pyc)(/|$)")

_NAME = re.compile(r"^[A-Za-z0-9_][A-Za-z0-9_.\-]*$")
_VERSION = re.compile(r"^[1-9][0-9]*$")


# -- checking an entry ---------------------------------------------------------------------------------------


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """` (did you mean X?)` for the nearest known word, or nothing."""
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f" (did you mean {near[0]}?)" if near else ""


def is_count(value: Any, least: int = 0) -> bool:
    """A whole number of at least `least`; True and False are none."""
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def unknown_keys(entry: Mapping[str, Any], known: Sequence[str], what: str) -> list[str]:
    """A sentence for each key that is not known."""
    return [f"{what} has the unknown key {key}{did_you_mean(str(key), known)}" for key in entry if key not in known]


def tensor_problems(tensor: Any, what: str) -> list[str]:
    """What is wrong with an input or output, as sentences without a full stop."""
    if not isinstance(tensor, Mapping):
        return [f"{what} must be a dictionary with name, data_type and dims, found {tensor!r}"]
    name = tensor.get("name")
    problems = unknown_keys(tensor, TENSOR_KEYS, what)
    if not isinstance(name, str) or not name:
        problems.append(f"{what} has no name")
    else:
        what = f"{what} {name}"
    data_type = tensor.get("data_type")
    if data_type not in DATA_TYPES:
        word = str(data_type).upper()
        meant = MEANT.get(word.removeprefix("TYPE_"), f"TYPE_{word}" if f"TYPE_{word}" in DATA_TYPES else "")
        hint = f" (write {meant})" if meant else did_you_mean(word, DATA_TYPES) or f"; they are {', '.join(DATA_TYPES)}"
        problems.append(f"{what}: data_type {data_type!r} is no data type of Triton{hint}")
    dims = tensor.get("dims")
    reshaped = isinstance(tensor.get("reshape"), Mapping)
    if not isinstance(dims, (list, tuple)) or not all(is_count(size, -1) and size != 0 for size in dims):
        problems.append(f"{what}: dims {dims!r} must be a list of sizes, each at least 1, or -1 for a variable one")
    elif not dims and not reshaped:
        problems.append(f"{what}: dims is empty; write [1] for one value a request")
    if "reshape" in tensor and not (reshaped and isinstance(tensor["reshape"].get("shape"), (list, tuple))):
        problems.append(f"{what}: reshape must be a dictionary with the list shape")
    if "optional" in tensor and not isinstance(tensor["optional"], bool):
        problems.append(f"{what}: optional must be true or false, found {tensor['optional']!r}")
    return problems


def group_problems(groups: Any, what: str, gpus: bool) -> list[str]:
    """What is wrong with instance_group."""
    if not isinstance(groups, (list, tuple)):
        return [f"{what}: instance_group must be a list of groups, found {groups!r}"]
    problems: list[str] = []
    for group in groups:
        if not isinstance(group, Mapping):
            problems.append(f"{what}: instance_group must hold dictionaries with kind and count, found {group!r}")
            continue
        problems += unknown_keys(group, GROUP_KEYS, f"{what}, instance_group")
        kind = group.get("kind", "KIND_AUTO")
        if kind not in KINDS:
            problems.append(
                f"{what}: instance_group kind {kind!r} is none of {', '.join(KINDS)}{did_you_mean(str(kind), KINDS)}"
            )
        if kind == "KIND_GPU" and not gpus:
            problems.append(f"{what}: instance_group asks for KIND_GPU, but triton_gpus gives the engine no GPU")
        if not is_count(group.get("count", 1), 1):
            problems.append(f"{what}: instance_group count {group.get('count')!r} must be a whole number of at least 1")
    return problems


def batching_problems(batching: Any, max_batch_size: Any, what: str) -> list[str]:
    """What is wrong with dynamic_batching."""
    if not isinstance(batching, Mapping):
        return [f"{what}: dynamic_batching must be a dictionary ({{}} for Triton's defaults), found {batching!r}"]
    problems = unknown_keys(batching, BATCHING_KEYS, f"{what}, dynamic_batching")
    if max_batch_size == 0:
        problems.append(f"{what}: dynamic_batching needs a max_batch_size of at least 1, found 0")
    for size in batching.get("preferred_batch_size", []):
        if not is_count(size, 1) or (is_count(max_batch_size) and size > max_batch_size):
            problems.append(f"{what}: preferred_batch_size {size!r} must be between 1 and max_batch_size ({max_batch_size})")
    return problems


def extra_problems(extra: Any, what: str) -> list[str]:
    """What is wrong with config_extra."""
    if not isinstance(extra, str):
        return [f"{what}: config_extra must be text in the format of config.pbtxt, found {type(extra).__name__}"]
    try:
        fields = parse(extra)
    except PbtxtError as error:
        return [f"{what}: config_extra cannot be read at {error}"]
    return [
        f"{what}: config_extra sets {name}, which has a key of its own in triton_models"
        for name in fields
        if name in OWN_FIELDS
    ]


def model_problems(model: Any, number: int, gpus: bool = True) -> list[str]:
    """What is wrong with entry `number` (from 0) of triton_models, as sentences without a full stop; empty when it is right.

    gpus: whether the engine gets GPUs.
    """
    if not isinstance(model, Mapping):
        return [f"triton_models[{number}] must be a dictionary with at least name and backend, found {model!r}"]
    name = model.get("name")
    if not isinstance(name, str) or not _NAME.match(name):
        return [f"triton_models[{number}]: name {name!r} must be letters, digits, `_`, `-` and `.`, since it names a folder"]
    what = f"model {name}"
    problems = unknown_keys(model, MODEL_KEYS, what)
    if bool(model.get("backend")) == bool(model.get("platform")):
        problems.append(f"{what} needs either backend (python, onnxruntime, tensorrt, …) or platform")
    batch = model.get("max_batch_size", 0)
    if not is_count(batch):
        problems.append(
            f"{what}: max_batch_size {batch!r} must be a whole number of at least 0 (0: the model does no batching)"
        )
    for direction in ("input", "output"):
        tensors = model.get(f"{direction}s") or []
        if not isinstance(tensors, (list, tuple)):
            problems.append(f"{what}: {direction}s must be a list, found {tensors!r}")
            continue
        for tensor in tensors:
            problems += tensor_problems(tensor, f"{what}, {direction}")
        names = [tensor.get("name") for tensor in tensors if isinstance(tensor, Mapping)]
        problems += [
            f"{what} has {names.count(twice)} {direction}s named {twice}"
            for twice in sorted({str(n) for n in names if names.count(n) > 1})
        ]
        if not tensors and model.get("backend") == "python":
            problems.append(f"{what} has no {direction}s, which the python backend needs")
    if "instance_group" in model:
        problems += group_problems(model["instance_group"], what, gpus)
    if model.get("dynamic_batching") is not None:
        problems += batching_problems(model["dynamic_batching"], batch, what)
    if not isinstance(model.get("parameters", {}), Mapping):
        problems.append(f"{what}: parameters must be a dictionary, found {model['parameters']!r}")
    if not _VERSION.match(str(model.get("version", 1))):
        problems.append(f"{what}: version {model.get('version')!r} must be a whole number of at least 1")
    if model.get("config_extra"):
        problems += extra_problems(model["config_extra"], what)
    return problems


# -- rendering -----------------------------------------------------------------------------------------------


def _numbers(values: Iterable[int]) -> str:
    return "[ " + ", ".join(str(value) for value in values) + " ]" if values else "[ ]"


def _tensors(direction: str, tensors: Iterable[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for tensor in tensors:
        lines += [f"{direction} {{", f"  name: {quote(tensor['name'])}", f"  data_type: {tensor['data_type']}"]
        lines.append(f"  dims: {_numbers(tensor['dims'])}")
        if "reshape" in tensor:
            lines.append(f"  reshape {{ shape: {_numbers(tensor['reshape']['shape'])} }}")
        if tensor.get("optional"):
            lines.append("  optional: true")
        lines.append("}")
    return lines


def _groups(groups: Iterable[Mapping[str, Any]]) -> list[str]:
    lines: list[str] = []
    for group in groups:
        lines.append("instance_group {")
        if "name" in group:
            lines.append(f"  name: {quote(str(group['name']))}")
        lines += [f"  kind: {group.get('kind', 'KIND_AUTO')}", f"  count: {group.get('count', 1)}"]
        if group.get("gpus"):
            lines.append(f"  gpus: {_numbers(group['gpus'])}")
        lines.append("}")
    return lines


def _batching(batching: Mapping[str, Any]) -> list[str]:
    lines = ["dynamic_batching {"]
    if batching.get("preferred_batch_size"):
        lines.append(f"  preferred_batch_size: {_numbers(batching['preferred_batch_size'])}")
    if "max_queue_delay_microseconds" in batching:
        lines.append(f"  max_queue_delay_microseconds: {int(batching['max_queue_delay_microseconds'])}")
    if batching.get("preserve_ordering"):
        lines.append("  preserve_ordering: true")
    return [*lines, "}"]


def scalar(value: Any) -> str:
    """A parameter's value as Triton's string_value: booleans in lower case, as its backends read them."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def render(model: Mapping[str, Any]) -> str:
    """The text of config.pbtxt for an entry that has no problems."""
    lines = [HEADER, f"name: {quote(model['name'])}"]
    kind = "backend" if model.get("backend") else "platform"
    lines += [f"{kind}: {quote(str(model[kind]))}", f"max_batch_size: {model.get('max_batch_size', 0)}"]
    if model.get("default_model_filename"):
        lines.append(f"default_model_filename: {quote(model['default_model_filename'])}")
    lines += _tensors("input", model.get("inputs") or [])
    lines += _tensors("output", model.get("outputs") or [])
    lines += _groups(model.get("instance_group") or [])
    if model.get("dynamic_batching") is not None:
        lines += _batching(model["dynamic_batching"])
    for key, value in (model.get("parameters") or {}).items():
        lines += ["parameters {", f"  key: {quote(str(key))}", f"  value {{ string_value: {quote(scalar(value))} }}", "}"]
    if model.get("config_extra"):
        lines.append(model["config_extra"].strip())
    return "\n".join(lines) + "\n"


def read_back_problems(model: Mapping[str, Any], text: str) -> list[str]:
    """Where a rendered config.pbtxt does not say what the entry says; guards the renderer itself."""
    what = f"model {model['name']}"
    try:
        fields = parse(text)
    except PbtxtError as error:
        return [f"{what}: the rendered config.pbtxt cannot be read at {error}"]
    problems = []
    if fields.get("name") != [model["name"]] or fields.get("max_batch_size") != [model.get("max_batch_size", 0)]:
        problems.append(f"{what}: the rendered config.pbtxt has another name or max_batch_size")
    for direction in ("input", "output"):
        wanted = [(t["name"], t["data_type"], list(t["dims"])) for t in model.get(f"{direction}s") or []]
        found = [(t["name"][0], t["data_type"][0], t.get("dims", [])) for t in fields.get(direction, [])]
        if wanted != found:
            problems.append(f"{what}: the rendered config.pbtxt has {direction}s {found}, the entry has {wanted}")
    return problems


# -- files ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Repository:
    """What a node's model repository must hold.

    models: per model `{name, config, folders, files: [{src, dest}], mount}`, paths relative to the repository; `mount` is
        `{source, target}` for a model whose versions lie on the node, else None.
    hash: changes with any content, the configurations included; 16 hexadecimal digits.
    checks: engine.models and engine.config.
    """

    models: list[dict[str, Any]] = field(default_factory=list)
    hash: str = ""
    checks: list[Check] = field(default_factory=list)


def find_source(source: str, search: Iterable[str]) -> Path | None:
    """A source's absolute path: as given, or below the first of the folders that has it; None where it is nowhere."""
    path = Path(source).expanduser()
    candidates = [path] if path.is_absolute() else [Path(folder) / path for folder in search]
    return next((candidate.resolve() for candidate in candidates if candidate.exists()), None)


def layout(model: Mapping[str, Any], source: Path) -> list[tuple[Path, str]]:
    """The files of a model as (path here, path below the model's folder), sorted.

    A folder with numbered subfolders is a whole model; any other folder, and a single file, is the version that the entry
    names. A config.pbtxt in the source is left out, as the entry says what it says.
    """
    version = str(model.get("version", 1))
    if source.is_file():
        return [(source, f"{version}/{source.name}")]
    whole = any(child.is_dir() and _VERSION.match(child.name) for child in source.iterdir())
    files = []
    for path in sorted(source.rglob("*")):
        relative = path.relative_to(source).as_posix()
        if path.is_file() and not LEFT_OUT.search(relative) and relative != "config.pbtxt":
            files.append((path, relative if whole else f"{version}/{relative}"))
    return files


def file_problems(model: Mapping[str, Any], files: Sequence[tuple[Path, str]], source: Path) -> list[str]:
    """What a model's files lack."""
    versions = {relative.split("/")[0] for _path, relative in files if _VERSION.match(relative.split("/")[0])}
    if not versions:
        return [f"model {model['name']}: {source} holds no file of a version (expected {source}/1/…)"]
    if model.get("backend") == "python":
        wanted = model.get("default_model_filename") or "model.py"
        have = {relative for _path, relative in files}
        lacking = sorted(version for version in versions if f"{version}/{wanted}" not in have)
        return [
            f"model {model['name']}: version {version} in {source} has no {wanted}, which the python backend starts"
            for version in lacking
        ]
    return []


def digest(path: Path) -> str:
    """SHA-256 of a file, read in pieces."""
    total = hashlib.sha256()
    with path.open("rb") as handle:
        for piece in iter(lambda: handle.read(1 << 20), b""):
            total.update(piece)
    return total.hexdigest()


def plan_model(model: Mapping[str, Any], search: Iterable[str]) -> tuple[dict[str, Any] | None, list[str]]:
    """What one problem-free entry needs in the repository, or its problems."""
    name, source = model["name"], model.get("source")
    planned: dict[str, Any] = {"name": name, "config": render(model), "folders": [name], "files": [], "mount": None}
    problems = read_back_problems(model, planned["config"])
    version = str(model.get("version", 1))
    if not source:
        if model.get("platform") == "ensemble":  # has no files, but Triton wants a version folder
            planned["folders"].append(f"{name}/{version}")
            return planned, problems
        return None, [*problems, f"model {name} has no source: name a file or a folder that holds its versions"]
    if model.get("source_on_node"):
        if not str(source).startswith("/"):
            return None, [*problems, f"model {name}: source {source} must be an absolute path, since it is on the node"]
        planned["folders"].append(f"{name}/{version}")
        planned["mount"] = {"source": str(source), "target": f"{name}/{version}"}
        return planned, problems
    folders = list(search)
    found = find_source(str(source), folders)
    if found is None:
        where = "" if Path(str(source)).is_absolute() else f" below {' or '.join(folders)}"
        return None, [*problems, f"model {name}: source {source} is not there{where}"]
    files = layout(model, found)
    problems += file_problems(model, files, found)
    planned["files"] = [{"src": str(path), "dest": f"{name}/{relative}"} for path, relative in files]
    parents = {str(Path(item["dest"]).parent) for item in planned["files"]}
    parents |= {str(above) for parent in parents for above in Path(parent).parents if str(above) not in (".", name)}
    planned["folders"] += sorted(parents - {name})
    return planned, problems


def repository(models: Any, search: Sequence[str] = (), gpus: bool = True) -> Repository:
    """What the node's model repository must hold, and every problem of the table in the checks engine.config and engine.models.

    models: the value of triton_models.
    search: folders on the control node that relative sources are looked up in, first wins.
    gpus: whether the engine gets GPUs.
    """
    if not isinstance(models, (list, tuple)):
        problem = f"triton_models must be a list of models, found {type(models).__name__}"
        return Repository(checks=[_verdict("engine.config", [problem], 0)])
    problems: list[str] = []
    names = [model.get("name") for model in models if isinstance(model, Mapping)]
    problems += [
        f"triton_models has {names.count(name)} entries named {name}"
        for name in sorted({str(n) for n in names if names.count(n) > 1})
    ]
    for number, model in enumerate(models):
        problems += model_problems(model, number, gpus)
    if problems:
        return Repository(checks=[_verdict("engine.config", problems, len(models))])
    planned: list[dict[str, Any]] = []
    missing: list[str] = []
    total = hashlib.sha256()
    for model in models:
        entry, lacks = plan_model(model, search)
        missing += lacks
        if entry is not None:
            planned.append(entry)
            total.update(repr((entry["name"], entry["config"], entry["mount"])).encode())
            for item in entry["files"]:
                total.update(f"{item['dest']} {digest(Path(item['src']))}\n".encode())
    checks = [_verdict("engine.config", [], len(models)), _verdict("engine.models", missing, len(models))]
    return Repository(models=planned, hash=total.hexdigest()[:16], checks=checks)


def _verdict(name: str, problems: Sequence[str], count: int) -> Check:
    """The check of the table: found is the first problem, evidence has all."""
    if not problems:
        return Check(name, PASS, found=f"{count} models described", evidence=[])
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return Check(
        name,
        FAIL,
        found=problems[0] + more,
        expected="a table Triton accepts" if name == "engine.config" else "the files of every model",
        remedy="Correct triton_models in the inventory and run again.",
        evidence=list(problems),
        subject="triton_models",
    )
