"""CDI: making the specification of the host's GPUs, reading it, and its hooks (nvidia-cdi-hook)."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

from nvct import container, driver, system
from nvct.version import VERSION

KIND = "nvidia.com/gpu"
FOLDERS = ("/etc/cdi", "/var/run/cdi")
HOOK = "/usr/bin/nvidia-cdi-hook"
MOUNT_OPTIONS = ["ro", "nosuid", "nodev", "rbind", "rprivate"]


class Unresolvable(Exception):
    """Device names that no specification has; the text lists them."""


def hook(*words: str) -> dict[str, Any]:
    """A createContainer hook that runs nvidia-cdi-hook with `words`."""
    return {"hookName": "createContainer", "path": HOOK, "args": ["nvidia-cdi-hook", *words], "env": ["NVIDIA_CTK_DEBUG=false"]}


def specification(found: driver.Driver) -> dict[str, Any]:
    """The CDI specification for a driver and its GPUs.

    The stand-in adds one hook of its own, `stand-in-proc`: the simulated driver's /proc folder, which a real one shows in
    every procfs, has to be mounted. Its arguments add up over the devices of a container.
    """
    cache = driver.loader_cache()
    libraries = driver.libraries(driver.UTILITY_LIBRARIES + driver.COMPUTE_LIBRARIES, cache)
    folders = sorted({os.path.dirname(path) for path in libraries})
    mounts = [{"hostPath": path, "containerPath": path, "options": MOUNT_OPTIONS} for path in libraries]
    if os.path.exists(container.SMI):
        smi = {"hostPath": os.path.realpath(container.SMI), "containerPath": container.SMI, "options": MOUNT_OPTIONS}
        mounts.append(smi)
    cuda = next((path for path in libraries if "/libcuda.so." in path), None)
    hooks = [hook("stand-in-proc")]
    if cuda:
        hooks.append(hook("create-symlinks", "--link", f"libcuda.so.1::{os.path.dirname(cuda)}/libcuda.so"))
    hooks.append(hook("update-ldcache", *(word for folder in folders for word in ("--folder", folder))))
    devices: list[dict[str, Any]] = []
    for gpu in found.gpus:
        edits = {
            "deviceNodes": [{"path": gpu.device}],
            "hooks": [hook("stand-in-proc", "--gpu", gpu.bus_id)],
        }
        devices += [{"name": name, "containerEdits": edits} for name in (str(gpu.index), gpu.uuid)]
    every = {
        "deviceNodes": [{"path": gpu.device} for gpu in found.gpus],
        "hooks": [hook("stand-in-proc", *(word for gpu in found.gpus for word in ("--gpu", gpu.bus_id)))],
    }
    devices.append({"name": "all", "containerEdits": every})
    return {
        "cdiVersion": "0.5.0",
        "kind": KIND,
        "devices": devices,
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": path} for path in driver.CONTROL_DEVICES if os.path.exists(path)],
            "hooks": hooks,
            "mounts": mounts,
        },
    }


def scalar(value: Any) -> str:
    """A scalar in YAML; a text is quoted when it could be read as something else."""
    if isinstance(value, str) and re.fullmatch(r"[A-Za-z/][\w./:=@-]*", value) and value not in ("true", "false", "null"):
        return value
    return json.dumps(value)


def yaml(value: Any, indent: int = 0) -> str:
    """Nested dictionaries and lists as block YAML, in the order they have."""
    pad = " " * indent
    lines: list[str] = []
    if isinstance(value, dict):
        for key, inner in value.items():
            if isinstance(inner, (dict, list)) and inner:
                lines.append(f"{pad}{key}:\n{yaml(inner, indent + (2 if isinstance(inner, dict) else 0))}")
            else:
                lines.append(f"{pad}{key}: {scalar(inner)}")
    else:
        for inner in value:
            if isinstance(inner, (dict, list)) and inner:
                lines.append(f"{pad}- {yaml(inner, indent + 2).lstrip()}")
            else:
                lines.append(f"{pad}- {scalar(inner)}")
    return "\n".join(lines)


def parse_yaml(text: str) -> Any:
    """Read back what `yaml` writes (block style only), or JSON. Raises ValueError."""
    if text.lstrip().startswith("{"):
        return json.loads(text)
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith(("#", "---"))]
    value, rest = parse_block(lines, 0)
    if rest:
        raise ValueError(f"cannot read {rest[0]!r}")
    return value


def parse_scalar(text: str) -> Any:
    """A scalar of `yaml`."""
    return json.loads(text) if text[:1] in '"[{0123456789-' or text in ("true", "false", "null") else text


def depth_of(line: str) -> int:
    """The number of blanks that a line begins with."""
    return len(line) - len(line.lstrip())


def parse_block(lines: list[str], indent: int) -> tuple[Any, list[str]]:
    """Read the list or mapping that stands at `indent`; the value and the lines after it."""
    if lines and lines[0].lstrip().startswith("- "):
        return parse_list(lines, indent)
    made: dict[str, Any] = {}
    while lines and depth_of(lines[0]) == indent and not lines[0].lstrip().startswith("- "):
        key, _, text = lines[0].strip().partition(":")
        lines = lines[1:]
        if text.strip():
            made[key] = parse_scalar(text.strip())
        else:
            is_list = bool(lines) and lines[0].lstrip().startswith("- ")
            made[key], lines = parse_block(lines, indent if is_list else indent + 2)
    return made, lines


def parse_list(lines: list[str], indent: int) -> tuple[list[Any], list[str]]:
    """Read the list that stands at `indent`; the values and the lines after it."""
    made: list[Any] = []
    while lines and depth_of(lines[0]) == indent and lines[0].lstrip().startswith("- "):
        inner = " " * (indent + 2) + lines[0].lstrip()[2:]
        if re.match(r"\s*\w+:( |$)", inner):
            value, lines = parse_block([inner, *lines[1:]], indent + 2)
        else:
            value, lines = parse_scalar(inner.strip()), lines[1:]
        made.append(value)
    return made, lines


def specifications() -> dict[str, tuple[dict[str, Any], dict[str, Any]]]:
    """Full device names and their (device edits, common edits), later folders first in line."""
    found: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}
    for folder in FOLDERS:
        for path in sorted([*Path(folder).glob("*.yaml"), *Path(folder).glob("*.json")]):
            spec = parse_yaml(path.read_text(encoding="utf-8"))
            for device in spec.get("devices", []):
                found[f"{spec['kind']}={device['name']}"] = (device.get("containerEdits", {}), spec.get("containerEdits", {}))
    return found


def inject(spec: dict[str, Any], names: list[str]) -> None:
    """Apply the edits of the devices to an OCI specification. Raises Unresolvable."""
    known = specifications()
    missing = [name for name in names if name not in known]
    if missing:
        raise Unresolvable(", ".join(missing))
    edits = [known[name][0] for name in names]
    for common in {json.dumps(known[name][1], sort_keys=True) for name in names}:
        edits.append(json.loads(common))
    for edit in edits:
        spec.setdefault("process", {}).setdefault("env", []).extend(edit.get("env", []))
        linux = spec.setdefault("linux", {})
        for node in edit.get("deviceNodes", []):
            number = os.stat(node.get("hostPath") or node["path"]).st_rdev
            major, minor = os.major(number), os.minor(number)
            linux.setdefault("devices", []).append({"path": node["path"], "type": "c", "major": major, "minor": minor})
            rule = {"allow": True, "type": "c", "major": major, "minor": minor, "access": "rwm"}
            linux.setdefault("resources", {}).setdefault("devices", []).append(rule)
        for mount in edit.get("mounts", []):
            entry = {"source": mount["hostPath"], "destination": mount["containerPath"], "type": "bind"}
            spec.setdefault("mounts", []).append({**entry, "options": mount["options"]})
        for entry in edit.get("hooks", []):
            words = {key: entry[key] for key in ("path", "args", "env") if key in entry}
            spec.setdefault("hooks", {}).setdefault(entry["hookName"], []).append(words)


def container_root() -> tuple[str, int]:
    """The container's root and process, from the state on stdin."""
    state = json.load(sys.stdin)
    spec = json.loads((Path(state["bundle"]) / "config.json").read_text(encoding="utf-8"))
    return os.path.realpath(os.path.join(state["bundle"], spec["root"]["path"])), int(state["pid"])


def show_proc(root: str, bus_ids: list[str]) -> None:
    """Mount the simulated driver's /proc folder, or add GPUs to the one that an earlier hook mounted."""
    place = Path(container.inside(root, "/proc/driver"))
    if not (place / "nvidia").is_dir():
        container.mount_proc(root, bus_ids)
        return
    system.mount("", str(place), None, system.MS_REMOUNT | system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC)
    for bus_id in bus_ids:
        folder = place / "nvidia/gpus" / bus_id
        if not folder.exists():
            folder.mkdir(parents=True)
            system.bind(str(driver.PROC / "gpus" / bus_id), str(folder), container.FILE_FLAGS)
    flags = system.MS_REMOUNT | system.MS_RDONLY | system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC
    system.mount("", str(place), None, flags)


def create_links(root: str, links: list[str]) -> None:
    """Make links (target::path) in the container."""
    for link in links:
        target, _, path = link.partition("::")
        place = container.inside(root, os.path.dirname(path)) + "/" + os.path.basename(path)
        os.makedirs(os.path.dirname(place), exist_ok=True)
        if not os.path.lexists(place):
            os.symlink(target, place)


def hook_main() -> int:
    """nvidia-cdi-hook: runs inside the container's namespaces, before its root is changed."""
    parser = argparse.ArgumentParser(prog="nvidia-cdi-hook")
    parser.add_argument("--version", action="version", version=f"NVIDIA CDI Hook version {VERSION}")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("create-symlinks").add_argument("--link", action="append", default=[])
    commands.add_parser("update-ldcache").add_argument("--folder", action="append", default=[])
    commands.add_parser("stand-in-proc").add_argument("--gpu", action="append", default=[])
    options = parser.parse_args()
    root, _ = container_root()
    try:
        if options.command == "create-symlinks":
            create_links(root, options.link)
        elif options.command == "update-ldcache":
            container.update_ldcache(root, options.folder)
        else:
            show_proc(root, options.gpu)
    except (OSError, container.MountError) as error:
        print(f"nvidia-cdi-hook {options.command}: {error}", file=sys.stderr)
        return 1
    return 0
