"""nvidia-container-runtime-hook: decide by the container's environment, then run nvidia-container-cli.

dockerd (20.10 and later) puts it into a container's prestart hooks for --gpus when it finds the program in its PATH;
nvidia-container-runtime does so for --runtime=nvidia. runc runs such hooks outside the container, when its mounts are
made and before its root is changed: the command enters the container's mount namespace and mounts, as libnvidia-container
does.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from nvct import config

CAPABILITIES = ("compute", "compat32", "graphics", "utility", "video", "display", "ngx")
DEFAULT_CAPABILITIES = "utility,compute"


class Failure(Exception):
    """What the hook says on stderr."""


def environment(spec: dict[str, Any]) -> dict[str, str]:
    """The container's environment."""
    pairs = (entry.partition("=") for entry in spec.get("process", {}).get("env") or [])
    return {key: value for key, _, value in pairs}


def is_legacy(env: dict[str, str]) -> bool:
    """Whether the image is of the old kind that means its GPUs by CUDA_VERSION alone."""
    return bool(env.get("CUDA_VERSION")) and "NVIDIA_REQUIRE_CUDA" not in env


def devices(env: dict[str, str]) -> str | None:
    """What nvidia-container-cli is told for --device; None when the container wants nothing of NVIDIA."""
    text = env.get("NVIDIA_VISIBLE_DEVICES")
    if text is None:
        return "all" if is_legacy(env) else None
    text = text.strip()
    if text in ("", "void"):
        return None
    return "" if text == "none" else text


def capabilities(env: dict[str, str], supported: str) -> list[str]:
    """The driver capabilities of the container. Raises Failure for one that is not supported."""
    allowed = [name for name in CAPABILITIES if name in supported.split(",")]
    text = env.get("NVIDIA_DRIVER_CAPABILITIES", "")
    if not text:
        text = "all" if is_legacy(env) else DEFAULT_CAPABILITIES
    names = [name.strip() for name in text.split(",") if name.strip()]
    if "all" in names:
        return allowed
    if [name for name in names if name not in allowed]:
        raise Failure(f"unsupported capabilities found in '{text}' (allowed '{','.join(sorted(allowed))}')")
    return names


def requirements(env: dict[str, str]) -> list[str]:
    """The image's requirements; none when NVIDIA_DISABLE_REQUIRE says so."""
    if env.get("NVIDIA_DISABLE_REQUIRE", "").lower() in ("1", "t", "true"):
        return []
    if is_legacy(env):
        parts = env["CUDA_VERSION"].split(".")
        return [f"cuda>={'.'.join(parts[:2])}"]
    return [value for key, value in sorted(env.items()) if key.startswith("NVIDIA_REQUIRE_") and value]


def command(state: dict[str, Any], spec: dict[str, Any], settings: dict[str, Any]) -> list[str] | None:
    """The nvidia-container-cli command for a container, None when there is nothing to do. Raises Failure."""
    env = environment(spec)
    wanted = devices(env)
    if wanted is None:
        return None
    cli = settings["nvidia-container-cli"]
    path = cli.get("path") or shutil.which(
        "nvidia-container-cli", path=os.environ.get("PATH") or "/usr/sbin:/usr/bin:/sbin:/bin"
    )
    if not path:
        raise Failure('exec: "nvidia-container-cli": executable file not found in $PATH')
    words = [path]
    if cli.get("load-kmods", True):
        words.append("--load-kmods")
    words.append("configure")
    if cli.get("no-cgroups"):
        words.append("--no-cgroups")
    words.append(f"--ldconfig={cli.get('ldconfig', '@/sbin/ldconfig')}")
    words.append(f"--device={wanted}")
    words += [f"--{name}" for name in capabilities(env, settings["supported-driver-capabilities"])]
    if not settings.get("disable-require"):
        words += [f"--require={text}" for text in requirements(env)]
    root = spec.get("root", {}).get("path", "rootfs")
    words += [f"--pid={state['pid']}", os.path.join(state["bundle"], root)]
    return words


def main() -> int:
    """The hook: reads the container's state from stdin."""
    words = [word for word in sys.argv[1:] if not word.startswith("-")]
    if words[:1] != ["prestart"]:
        if words[:1] in (["poststart"], ["poststop"]):
            return 0
        print("Usage of nvidia-container-runtime-hook:\n  prestart\n        run the prestart hook", file=sys.stderr)
        return 2
    state = json.load(sys.stdin)
    spec = json.loads((Path(state["bundle"]) / "config.json").read_text(encoding="utf-8"))
    try:
        told = command(state, spec, config.read())
    except Failure as error:
        print(error, file=sys.stderr)
        return 1
    if told is None:
        return 0
    print("Auto-detected mode as 'legacy'", file=sys.stderr, flush=True)
    return os.execve(told[0], told, {**os.environ, "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"})
