# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""The engines of a rack, from the inventory alone; the adapter proxy's files made of them; the verdict on the proxy.

Nothing here reads facts, so that `--limit` or a dead node never shrinks the proxy's configuration. What a role would use
where the inventory is silent is read from that role's defaults, so that there is one place for it.

Runs on the control node.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import io
import re
import tarfile
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, WARN, Check, as_dicts

ROLES = Path(__file__).resolve().parents[2] / "roles"

#: Group of the nodes that run an engine.
ENGINE_NODES = "gpu_nodes"

_DECOUPLED = re.compile(r"\bdecoupled\s*:\s*true\b", re.IGNORECASE)
#: The model in an image's name, as the role nim reads it: `nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8.4`.
_NIM_MODEL = re.compile(r"/nim/([^:@]+)")
#: Files of the proxy's package that are installed; caches and the like are not.
_PACKAGE_SUFFIXES = (".py", ".toml", ".txt", ".md", ".typed")


class EnginesError(ValueError):
    """The inventory describes engines that cannot be used; the message names host and variable."""


@cache
def role_defaults(role: str, folder: Path = ROLES) -> Mapping[str, Any]:
    """A role's defaults; empty when the role is not there."""
    path = folder / role / "defaults" / "main.yml"
    if not path.is_file():
        return {}
    return yaml.safe_load(path.read_text(encoding="utf-8")) or {}


def _value(variables: Mapping[str, Any], role: str, name: str, fallback: Any = None) -> Any:
    """What the inventory says, else the role's default, else `fallback`."""
    value = variables.get(name)
    if value is None:
        value = role_defaults(role).get(name)
    return fallback if value is None else value


def address(node: str, variables: Mapping[str, Any]) -> str:
    """Where other nodes reach a node's services: `inferack_address`, else `ansible_host`, else its name."""
    host = str(variables.get("inferack_address") or variables.get("ansible_host") or node).strip()
    return f"[{host}]" if ":" in host and not host.startswith("[") else host


def _port(node: str, name: str, value: Any) -> int:
    try:
        port = int(value)
    except (TypeError, ValueError):
        port = 0
    if not 1 <= port <= 65535:
        raise EnginesError(f"{node}: {name} must be a port between 1 and 65535, found {value!r}")
    return port


def _tensors(model: Mapping[str, Any]) -> dict[str, Any] | None:
    """How the proxy asks a Triton model: its first text input and output. None for a model that takes or gives no text.

    An entry that names no tensors (its own config.pbtxt does) gets the proxy's defaults.
    """
    sides: dict[str, Any] = {}
    for side, key in (("input", "inputs"), ("output", "outputs")):
        tensors = model.get(key)
        if not tensors:
            continue
        texts = [tensor for tensor in tensors if tensor.get("data_type") == "TYPE_STRING"]
        if not texts:
            return None
        sides[side] = texts[0]["name"]
        if side == "input":
            dims = texts[0].get("dims") or [1]
            batch = [1] if int(model.get("max_batch_size") or 0) > 0 else []
            sides["shape"] = batch + [1] * len(dims)
    if _DECOUPLED.search(str(model.get("config_extra") or "")):
        sides["protocol"] = "generate_stream"
    return sides


def _triton(node: str, variables: Mapping[str, Any]) -> dict[str, Any] | None:
    models = _value(variables, "triton", "triton_models", [])
    if not isinstance(models, (list, tuple)):
        raise EnginesError(f"{node}: triton_models must be a list, found {models!r}")
    tensors: dict[str, Any] = {}
    for number, model in enumerate(models):
        if not isinstance(model, Mapping) or not model.get("name"):
            raise EnginesError(f"{node}: triton_models[{number}] must be a dictionary with a name, found {model!r}")
        options = _tensors(model)
        if options is not None:
            tensors[str(model["name"])] = options
    if not tensors:
        return None
    port = _port(node, "triton_http_port", _value(variables, "triton", "triton_http_port", 8000))
    return {
        "name": f"{node}-triton",
        "adapter": "triton",
        "base_url": f"http://{address(node, variables)}:{port}",
        "models": list(tensors),
        "class": "throughput",
        "api_key": "",
        "node": node,
        "options": {"models": tensors},
    }


def _nim(node: str, variables: Mapping[str, Any]) -> dict[str, Any]:
    names = [str(model) for model in _value(variables, "nim", "nim_models", [])]
    if not names:
        image = str(_value(variables, "nim", "nim_image", ""))
        names = _NIM_MODEL.findall(image)[:1]
        if not names:
            raise EnginesError(f"{node}: nim_models is empty, and the name of nim_image tells no model: {image!r}")
    port = _port(node, "nim_port", _value(variables, "nim", "nim_port", 8000))
    return {
        "name": f"{node}-nim",
        "adapter": "openai",
        "base_url": f"http://{address(node, variables)}:{port}",
        "models": names,
        "class": "throughput",
        "api_key": "",
        "node": node,
        "options": {"ready_path": "/v1/health/ready"},
    }


_KINDS: dict[str, Callable[[str, Mapping[str, Any]], dict[str, Any] | None]] = {"triton": _triton, "nim": _nim}


def rack_engines(
    hostvars: Mapping[str, Mapping[str, Any]], groups: Mapping[str, Iterable[str]], rack: str | None = None
) -> list[dict[str, Any]]:
    """The engines that the inventory puts on a rack's nodes, in the inventory's order.

    rack: only nodes of the rack of this name (`inferack_rack_name`, default `rack`); None takes all.
    A node without an engine, or without a model that takes and gives text, is left out.
    Raises EnginesError naming node and variable.
    """
    engines = []
    for node in groups.get(ENGINE_NODES, []):
        variables = hostvars[node]
        if rack is not None and str(variables.get("inferack_rack_name") or "rack") != rack:
            continue
        kind = str(_value(variables, "preflight", "inferack_engine", "triton"))
        if kind == "none":
            continue
        if kind not in _KINDS:
            raise EnginesError(f"{node}: inferack_engine must be triton, nim or none, found {kind!r}")
        engine = _KINDS[kind](node, variables)
        if engine is not None:
            engines.append(engine)
    return engines


def proxy_files(
    engines: Iterable[Mapping[str, Any]],
    external: Iterable[Mapping[str, Any]],
    routes: Iterable[Mapping[str, Any]],
    settings: Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """The proxy's two files: `config`, which anybody may read, and `secrets`, which holds every key and nothing else.

    engines: as `rack_engines` gives them. external: `inferack_external_engines`. routes: `inferack_routes`.
    settings: further keys of the proxy's configuration (timeouts, retries, …).
    Raises EnginesError.
    """
    entries: list[dict[str, Any]] = []
    keys: dict[str, str] = {}
    for engine in (*engines, *external):
        entry = {str(name): value for name, value in engine.items() if name != "api_key" and value is not None}
        name = str(entry.get("name") or "")
        if not name:
            raise EnginesError(f"an engine of inferack_external_engines has no name: its keys are {', '.join(sorted(entry))}")
        entry.setdefault("adapter", "openai")
        key = engine.get("api_key")
        if key:
            # Vaulted files tend to end with a line feed.
            keys[name] = str(key).strip()
            entry["key_required"] = True
        entries.append(entry)
    if not entries:
        raise EnginesError(
            "the rack has no engine that takes and gives text; name models in triton_models or nim_models, "
            "or an endpoint in inferack_external_engines"
        )
    config = {**(settings or {}), "engines": entries, "routes": [dict(route) for route in routes]}
    return {"config": config, "secrets": {"engine_keys": keys}}


def package(folder: str) -> dict[str, str]:
    """The proxy's package below a folder on the control node, to be sent in one piece.

    Returns `archive`, a gzipped tar in base64 that is the same for the same files, and `digest`, the SHA-256 of names and
    contents in hexadecimal. Caches and hidden files are left out. Raises EnginesError when there is nothing.
    """
    root = Path(folder)
    files = sorted(
        path.relative_to(root)
        for path in root.rglob("*")
        if path.is_file()
        and path.suffix in _PACKAGE_SUFFIXES
        and not any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(root).parts)
    )
    if not files:
        raise EnginesError(f"no package of the adapter proxy in {folder}")
    digest = hashlib.sha256()
    packed = io.BytesIO()
    with (
        gzip.GzipFile(fileobj=packed, mode="wb", mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.PAX_FORMAT) as tar,
    ):
        for file in files:
            content = (root / file).read_bytes()
            digest.update(f"{file.as_posix()}\0{len(content)}\0".encode() + content)
            member = tarfile.TarInfo(file.as_posix())
            member.size, member.mode = len(content), 0o644
            tar.addfile(member, io.BytesIO(content))
    return {"archive": base64.b64encode(packed.getvalue()).decode(), "digest": digest.hexdigest()}


def proxy_checks(ready: Mapping[str, Any], node: str) -> list[dict[str, Any]]:
    """The checks `proxy.ready`, one for each engine, from the body of `/readyz` as the proxy on `node` answered it.

    An engine on this very node that does not answer fails: the roles before this one just proved it. An engine elsewhere is a
    warning, since its node may be down or not there yet, and the proxy takes it in by itself as soon as it answers.
    """
    checks = []
    for engine in ready.get("engines") or []:
        own = engine.get("node") == node
        passed = bool(engine.get("ready"))
        reason = engine.get("reason") or "not looked at yet"
        place = f"on {engine['node']}" if engine.get("node") else "outside the rack"
        checks.append(
            Check(
                id="proxy.ready",
                status=PASS if passed else FAIL if own else WARN,
                subject=f"engine {engine.get('name')}",
                found="ready" if passed else reason,
                expected="an engine that answers the proxy",
                remedy=""
                if passed
                else f"Look at the log of the engine {place} and at the way from {node} to it, then run again.",
                evidence=[f"/readyz: {engine.get('name')}: {'ready' if passed else reason}"],
            )
        )
    return as_dicts(checks)
