"""nvidia-container-cli: info, list, configure."""

from __future__ import annotations

import argparse
import os
import sys

from nvct import container, driver, require
from nvct.version import VERSION


class Failure(Exception):
    """What the command says on stderr after its name."""


def arguments(words: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="nvidia-container-cli", allow_abbrev=False)
    parser.add_argument("-V", "--version", action="store_true")
    parser.add_argument("-k", "--load-kmods", action="store_true")
    parser.add_argument("-d", "--debug")
    parser.add_argument("-r", "--root")
    parser.add_argument("-u", "--user", nargs="?")
    commands = parser.add_subparsers(dest="command")
    info = commands.add_parser("info")
    info.add_argument("--csv", action="store_true")
    listing = commands.add_parser("list")
    listing.add_argument("-d", "--device", default="all")
    for name in ("libraries", "binaries", "ipcs", "firmwares", "compat32"):
        listing.add_argument(f"--{name}", action="store_true")
    configure = commands.add_parser("configure")
    configure.add_argument("-p", "--pid", type=int, required=True)
    configure.add_argument("-d", "--device", default="")
    configure.add_argument("-r", "--require", action="append", default=[])
    configure.add_argument("-l", "--ldconfig", default="@/sbin/ldconfig")
    configure.add_argument("--no-cgroups", action="store_true")
    for name in ("compute", "utility", "graphics", "video", "display", "ngx", "compat32", "no-devbind"):
        configure.add_argument(f"--{name}", action="store_true")
    configure.add_argument("rootfs")
    made = parser.parse_args(words)
    if not made.command and not made.version:
        parser.print_usage(sys.stderr)
        raise SystemExit(64)
    return made


def select(text: str, gpus: tuple[driver.Gpu, ...]) -> tuple[driver.Gpu, ...]:
    """The GPUs that `text` names: all, none, or a list of indexes, UUIDs or their beginnings.

    Raises Failure for a name that no GPU has.
    """
    if text in ("", "none", "void"):
        return ()
    chosen: dict[int, driver.Gpu] = {}
    for name in text.split(","):
        if name == "all":
            return gpus
        found = [gpu for gpu in gpus if str(gpu.index) == name or (len(name) > 4 and gpu.uuid.startswith(name))]
        if not found:
            raise Failure(f"device error: {name}: unknown device")
        chosen[found[0].index] = found[0]
    return tuple(chosen[index] for index in sorted(chosen))


def initialise(load: bool) -> driver.Driver:
    """The driver. Raises Failure in the real program's words."""
    if load:
        driver.load_modules()
    try:
        found = driver.read()
    except driver.LibraryMissing as error:
        told = f"load library failed: {error}: cannot open shared object file: no such file or directory"
        raise Failure(f"initialization error: {told}") from error
    except driver.DriverError as error:
        raise Failure(f"initialization error: nvml error: {error}") from error
    if any(gpu.state == "lost" for gpu in found.gpus):
        raise Failure("detection error: nvml error: gpu is lost")
    return found


def show_info(found: driver.Driver) -> None:
    """nvidia-container-cli info."""
    print(f"NVRM version:   {found.version}\nCUDA version:   {found.cuda}")
    for gpu in found.gpus:
        print(
            f"\nDevice Index:   {gpu.index}\nDevice Minor:   {gpu.minor}\nModel:          {gpu.model}\n"
            f"Brand:          Nvidia\nGPU UUID:       {gpu.uuid}\nBus Location:   0000{gpu.bus_id}\n"
            f"Architecture:   {gpu.compute}"
        )


def show_list(found: driver.Driver, options: argparse.Namespace) -> None:
    """nvidia-container-cli list: the paths that a container gets."""
    kinds = ("libraries", "binaries", "ipcs", "firmwares")
    everything = not any(getattr(options, kind) for kind in kinds)
    if everything:
        devices = [path for path in driver.CONTROL_DEVICES if os.path.exists(path)]
        print("\n".join(devices + [gpu.device for gpu in select(options.device, found.gpus)]))
    if (everything or options.binaries) and os.path.exists(container.SMI):
        print(container.SMI)
    if everything or options.libraries:
        print("\n".join(driver.libraries(driver.UTILITY_LIBRARIES + driver.COMPUTE_LIBRARIES, driver.loader_cache())))


def configure(found: driver.Driver, options: argparse.Namespace) -> None:
    """nvidia-container-cli configure: check the image's requirements, then mount."""
    gpus = select(options.device, found.gpus)
    values = {
        "cuda": found.cuda,
        "driver": found.version,
        "arch": gpus[0].compute if gpus else "0.0",
        "brand": "nvidia",
    }
    try:
        for expression in options.require:
            require.check(expression, values)
    except require.Unsatisfied as error:
        raise Failure(f"requirement error: {error}") from error
    try:
        container.configure(
            os.path.realpath(options.rootfs),
            options.pid,
            gpus,
            utility=options.utility,
            compute=options.compute,
            cgroups=not options.no_cgroups,
            ldconfig=options.ldconfig.lstrip("@"),
        )
    except container.MountError as error:
        kind = "ldcache" if "ldconfig" in str(error) else "mount"
        raise Failure(f"{kind} error: {error}") from error


def main() -> int:
    """The command."""
    options = arguments(sys.argv[1:])
    if options.version:
        print(f"cli-version: {VERSION}\nlib-version: {VERSION}\nbuild platform: {os.uname().machine}\nbuild flags: stand-in")
        return 0
    try:
        found = initialise(options.load_kmods)
        if options.command == "info":
            show_info(found)
        elif options.command == "list":
            show_list(found, options)
        else:
            configure(found, options)
    except Failure as error:
        print(f"nvidia-container-cli: {error}", file=sys.stderr)
        return 1
    return 0
