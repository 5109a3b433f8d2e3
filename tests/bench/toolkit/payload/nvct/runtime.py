"""nvidia-container-runtime: runc with the hook (or CDI's edits) put into the container's specification first."""

from __future__ import annotations

import json
import os
import shutil
import stat
import sys
from pathlib import Path
from typing import Any

from nvct import cdi, config, driver, hook
from nvct.version import VERSION

HOOK = "/usr/bin/nvidia-container-runtime-hook"
SEARCH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


class Failure(Exception):
    """What the runtime says on stderr and in its log."""


def bundle(words: list[str]) -> Path:
    """The bundle of a create or run command; the current folder when it is not said."""
    for index, word in enumerate(words):
        if word in ("--bundle", "-b") and index + 1 < len(words):
            return Path(words[index + 1])
        if word.startswith("--bundle="):
            return Path(word.partition("=")[2])
    return Path.cwd()


def is_create(words: list[str]) -> bool:
    """Whether the command makes a container."""
    with_value = ("--root", "--log", "--log-format", "--criu", "--rootless")
    skip = False
    for word in words:
        if skip:
            skip = False
        elif word in with_value:
            skip = True
        elif not word.startswith("-"):
            return word in ("create", "run")
    return False


def add_hook(spec: dict[str, Any]) -> None:
    """Put the hook into the prestart hooks unless it is there."""
    hooks = spec.setdefault("hooks", {}).setdefault("prestart", [])
    if any(os.path.basename(entry["path"]) == os.path.basename(HOOK) for entry in hooks):
        return
    path = shutil.which("nvidia-container-runtime-hook", path=SEARCH) or HOOK
    hooks.insert(0, {"path": path, "args": ["nvidia-container-runtime-hook", "prestart"]})


def allow_devices(spec: dict[str, Any]) -> None:
    """Add cgroup rules for the driver's device nodes, so that they hold under cgroup version 2, too."""
    rules = spec.setdefault("linux", {}).setdefault("resources", {}).setdefault("devices", [])
    for path in (*driver.CONTROL_DEVICES, *(f"/dev/nvidia{minor}" for minor in range(16))):
        try:
            status = os.stat(path)
        except FileNotFoundError:
            continue
        if stat.S_ISCHR(status.st_mode):
            major, minor = os.major(status.st_rdev), os.minor(status.st_rdev)
            rules.append({"allow": True, "type": "c", "major": major, "minor": minor, "access": "rw"})


def modify(spec: dict[str, Any], mode: str) -> bool:
    """Change the specification for GPUs; whether anything changed.

    Raises Failure for CDI devices that no specification has.
    """
    wanted = hook.devices(hook.environment(spec))
    if wanted is None:
        return False
    names = wanted.split(",")
    if mode == "cdi" or all(name.startswith("nvidia.com/gpu=") for name in names):
        full = [name if "=" in name else f"nvidia.com/gpu={name}" for name in names if name]
        try:
            cdi.inject(spec, full)
        except cdi.Unresolvable as error:
            raise Failure(f"failed to inject CDI devices: unresolvable CDI devices {error}") from error
        return True
    add_hook(spec)
    allow_devices(spec)
    return True


def low_level(names: list[str]) -> str:
    """The runtime that does the work. Raises Failure when none is installed."""
    for name in names:
        path = shutil.which(name, path=f"{SEARCH}:{os.environ.get('PATH', '')}")
        if path:
            return path
    raise Failure(f"error locating runtime: no runtime binary found from candidate list: {names}")


def main() -> int:
    """The runtime command."""
    words = sys.argv[1:]
    if words == ["--version"]:
        print(f"NVIDIA Container Runtime version {VERSION}\nspec: 1.2.1\n", flush=True)
    try:
        settings = config.read()["nvidia-container-runtime"]
        runtime = low_level(settings["runtimes"])
        if is_create(words):
            path = bundle(words) / "config.json"
            spec = json.loads(path.read_text(encoding="utf-8"))
            if modify(spec, settings["mode"]):
                path.write_text(json.dumps(spec), encoding="utf-8")
    except Failure as error:
        print(error, file=sys.stderr)
        return 1
    return os.execv(runtime, [runtime, *words])
