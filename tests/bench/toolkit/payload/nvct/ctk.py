"""nvidia-ctk: runtime configure, cdi generate, cdi list, config."""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from pathlib import Path
from typing import Any

from nvct import cdi, config, driver
from nvct.version import VERSION

NVML_WORDS = {"driver not loaded": "Driver Not Loaded", "driver/library version mismatch": "Driver/library version mismatch"}


quiet = False


class Failure(Exception):
    """What the command logs as an error."""


def log(level: str, text: str) -> None:
    """A line of the log, as logrus writes it."""
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
    print(f'time="{now}" level={level} msg={json.dumps(text)}', file=sys.stderr)


def info(text: str) -> None:
    """An informational line of the log, unless --quiet is given."""
    if not quiet:
        log("info", text)


def arguments() -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="nvidia-ctk", allow_abbrev=False)
    parser.add_argument(
        "--version", "-v", action="version", version=f"NVIDIA Container Toolkit CLI version {VERSION}\ncommit: stand-in"
    )
    parser.add_argument("--quiet", "-q", action="store_true")
    parser.add_argument("--debug", action="store_true")
    commands = parser.add_subparsers(dest="command", required=True)

    runtime = commands.add_parser("runtime").add_subparsers(dest="action", required=True)
    configure = runtime.add_parser("configure")
    configure.add_argument("--runtime", default="docker")
    configure.add_argument("--config", "--config-path", default="")
    configure.add_argument("--nvidia-runtime-name", "--runtime-name", default="nvidia")
    configure.add_argument("--nvidia-runtime-path", "--runtime-path", default="nvidia-container-runtime")
    for name in ("dry-run", "set-as-default", "nvidia-set-as-default", "cdi.enabled", "enable-cdi"):
        configure.add_argument(f"--{name}", action="store_true", dest=name.replace("-", "_").replace(".", "_"))

    device = commands.add_parser("cdi").add_subparsers(dest="action", required=True)
    generate = device.add_parser("generate")
    generate.add_argument("--output", default=os.environ.get("NVIDIA_CTK_CDI_OUTPUT_FILE_PATH", ""))
    generate.add_argument("--format", default="yaml", choices=("yaml", "json"))
    for name in ("mode", "device-name-strategy", "vendor", "class", "nvidia-cdi-hook-path", "driver-root", "dev-root"):
        generate.add_argument(f"--{name}", action="append")
    device.add_parser("list").add_argument("--spec-dir", action="append")

    settings = commands.add_parser("config")
    settings.add_argument("--config-file", "--config", "-c", default=str(config.PATH))
    settings.add_argument("--in-place", "-i", action="store_true")
    settings.add_argument("--set", action="append", default=[])
    settings.add_argument("--output", "-o", default="")
    return parser.parse_args()


def read_json(path: Path) -> dict[str, Any]:
    """The engine's configuration, empty when there is no file.

    Raises Failure when it is not JSON; like the real program, integers become floats of 64 bits.
    """
    if not path.exists():
        info("Config file does not exist; using empty config")
        return {}
    info(f"Loading config from {path}")
    text = path.read_text(encoding="utf-8")
    try:
        found = json.loads(text, parse_int=lambda digits: int(float(digits)))
    except ValueError as error:
        raise Failure(f"unable to load config for runtime docker: failed to read config: {error}") from error
    if not isinstance(found, dict):
        raise Failure("unable to load config for runtime docker: cannot unmarshal into Go value of type docker.Config")
    return found


def configure_runtime(options: argparse.Namespace) -> None:
    """nvidia-ctk runtime configure, for Docker."""
    if options.runtime != "docker":
        raise Failure(f"the stand-in of the test bench configures docker only, not {options.runtime}")
    path = Path(options.config or "/etc/docker/daemon.json")
    settings = read_json(path)
    runtime = {"args": [], "path": options.nvidia_runtime_path}
    settings.setdefault("runtimes", {})[options.nvidia_runtime_name] = runtime
    if options.set_as_default or options.nvidia_set_as_default:
        settings["default-runtime"] = options.nvidia_runtime_name
    if options.cdi_enabled or options.enable_cdi:
        # The real program drops the other features here.
        settings["features"] = {"cdi": True}
    text = json.dumps(settings, indent=4, sort_keys=True) + "\n"
    if options.dry_run:
        print(text, end="")
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    info(f"Wrote updated config to {path}")
    info("It is recommended that docker daemon be restarted.")


def generate_cdi(options: argparse.Namespace) -> None:
    """nvidia-ctk cdi generate."""
    failed = "failed to generate CDI spec: failed to create device CDI specs: failed to initialize NVML: "
    try:
        found = driver.read()
    except driver.LibraryMissing as error:
        raise Failure(f"{failed}ERROR_LIBRARY_NOT_FOUND") from error
    except driver.DriverError as error:
        raise Failure(failed + NVML_WORDS.get(str(error), str(error))) from error
    if any(gpu.state == "lost" for gpu in found.gpus):
        raise Failure("failed to generate CDI spec: failed to create device CDI specs: GPU is lost")
    spec = cdi.specification(found)
    text = (json.dumps(spec, indent=2) if options.format == "json" else "---\n" + cdi.yaml(spec)) + "\n"
    if not options.output:
        print(text, end="")
    else:
        path = Path(options.output)
        path.parent.mkdir(parents=True, exist_ok=True)
        new = path.with_name(f".{path.name}.new")
        new.write_text(text, encoding="utf-8")
        new.replace(path)
    info(f"Generated CDI spec with version {spec['cdiVersion']}")


def list_cdi() -> None:
    """nvidia-ctk cdi list."""
    names = list(cdi.specifications())
    info(f"Found {len(names)} CDI devices")
    for name in names:
        print(name)


def set_value(text: str, key: str, value: str) -> str:
    """The configuration with one value set: its line (also one that is commented out) is replaced, or one is added."""
    table, _, name = key.rpartition(".")
    line = f"{name} = {value if value in ('true', 'false') else json.dumps(value)}"
    lines = text.splitlines()
    current, header = "", 0 if not table else None
    for index, old in enumerate(lines):
        if old.startswith("["):
            current = old.strip("[] ")
            header = index + 1 if current == table else header
        elif current == table and old.lstrip("# ").startswith(f"{name} ="):
            lines[index] = line
            return "\n".join(lines) + "\n"
    if header is None:
        lines += ["", f"[{table}]"]
        header = len(lines)
    lines.insert(header, line)
    return "\n".join(lines) + "\n"


def configure_toolkit(options: argparse.Namespace) -> None:
    """nvidia-ctk config."""
    path = Path(options.config_file)
    text = path.read_text(encoding="utf-8") if path.exists() else config.DEFAULT
    for pair in options.set:
        key, _, value = pair.partition("=")
        text = set_value(text, key, value or "true")
    target = path if options.in_place else Path(options.output) if options.output else None
    if target is None:
        print(text, end="")
    else:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, encoding="utf-8")


def main() -> int:
    """The command."""
    options = arguments()
    global quiet
    quiet = options.quiet
    try:
        if options.command == "runtime":
            configure_runtime(options)
        elif options.command == "config":
            configure_toolkit(options)
        elif options.action == "generate":
            generate_cdi(options)
        else:
            list_cdi()
    except Failure as error:
        log("error", str(error))
        return 1
    return 0
