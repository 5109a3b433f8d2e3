"""Putting GPUs into a container: what `nvidia-container-cli configure` mounts."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from nvct import driver, system

SMI = "/usr/bin/nvidia-smi"
FILE_FLAGS = system.MS_RDONLY | system.MS_NOSUID | system.MS_NODEV
DEVICE_FLAGS = system.MS_NOSUID | system.MS_NOEXEC


class MountError(Exception):
    """Something could not be mounted into the container."""


def inside(root: str, path: str) -> str:
    """`path` of the container as a path of the host, its links resolved without leaving `root`."""
    current = root
    parts = [part for part in path.split("/") if part]
    for _ in range(255):
        if not parts:
            return current
        part = parts.pop(0)
        if part == "..":
            current = root if current == root else os.path.dirname(current)
            continue
        step = os.path.join(current, part)
        if os.path.islink(step):
            goal = os.readlink(step)
            if goal.startswith("/"):
                current = root
            parts = [piece for piece in goal.split("/") if piece and piece != "."] + parts
        else:
            current = step
    raise MountError(f"too many links in {path}")


def touch(path: str) -> None:
    """Make an empty file to mount over, with the folders above it."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    if not os.path.exists(path):
        with open(path, "w", encoding="ascii"):
            pass


def library_folder(root: str) -> str:
    """Where libraries go in the container: Debian's folder in Debian's images, else /usr/lib64."""
    return "/usr/lib/x86_64-linux-gnu" if os.path.exists(inside(root, "/etc/debian_version")) else "/usr/lib64"


def mount_file(root: str, source: str, target: str, flags: int = FILE_FLAGS) -> None:
    """Mount a file of the host at `target` of the container."""
    place = inside(root, target)
    touch(place)
    system.bind(source, place, flags)


def mount_proc(root: str, bus_ids: Iterable[str]) -> None:
    """Show the driver's /proc folder in the container, with these GPUs only.

    The container has a procfs of its own, and the simulated driver is not in it: the whole of /proc/driver is covered.
    """
    place = inside(root, "/proc/driver")
    system.mount("tmpfs", place, "tmpfs", system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC, "mode=0555")
    copy = Path(place) / "nvidia"
    copy.mkdir()
    for path in driver.PROC.iterdir():
        if path.is_file():
            shutil.copyfile(path, copy / path.name)
    for bus_id in bus_ids:
        folder = copy / "gpus" / bus_id
        folder.mkdir(parents=True)
        system.bind(str(driver.PROC / "gpus" / bus_id), str(folder), FILE_FLAGS | system.MS_NOEXEC)
    system.mount("", place, None, system.MS_REMOUNT | system.MS_RDONLY | system.MS_NOSUID | system.MS_NODEV | system.MS_NOEXEC)


def allow_devices(pid: int, devices: Iterable[str]) -> None:
    """Allow the devices in the container's device cgroup (version 1; see the README for version 2)."""
    for line in driver.text_of(Path(f"/proc/{pid}/cgroup")).splitlines():
        _, controllers, path = line.split(":", 2)
        rules = Path("/sys/fs/cgroup/devices") / path.lstrip("/") / "devices.allow"
        if "devices" in controllers.split(",") and rules.exists():
            for device in devices:
                number = os.stat(device).st_rdev
                rules.write_text(f"c {os.major(number)}:{os.minor(number)} rw", encoding="ascii")


def configure(
    root: str, pid: int, gpus: tuple[driver.Gpu, ...], utility: bool, compute: bool, cgroups: bool, ldconfig: str
) -> None:
    """Mount driver files and devices for `gpus` into the container of the process `pid` whose file system is `root`.

    Raises MountError, in libnvidia-container's words.
    """
    cache = driver.loader_cache()
    files = []
    if utility:
        files += driver.libraries(driver.UTILITY_LIBRARIES, cache)
    if compute:
        files += driver.libraries(driver.COMPUTE_LIBRARIES, cache)
    devices = [path for path in driver.CONTROL_DEVICES if os.path.exists(path)]
    if not compute:
        devices = [path for path in devices if "uvm" not in path]
    devices += [gpu.device for gpu in gpus]
    if cgroups:
        allow_devices(pid, devices)
    try:
        system.enter_mounts(pid)
        folder = library_folder(root)
        mount_proc(root, [gpu.bus_id for gpu in gpus])
        if utility and os.path.exists(SMI):
            mount_file(root, os.path.realpath(SMI), SMI)
        for path in files:
            mount_file(root, path, f"{folder}/{os.path.basename(path)}")
        for device in devices:
            mount_file(root, device, device, DEVICE_FLAGS)
    except OSError as error:
        raise MountError(f"mount operation failed: {error.strerror or error}") from error
    update_ldcache(root, [folder], ldconfig)


def update_ldcache(root: str, folders: list[str], ldconfig: str = "/sbin/ldconfig") -> None:
    """Make the links (libcuda.so.1) and the loader's cache of the container, with the host's ldconfig.

    Raises MountError when ldconfig fails.
    """
    # The container's /etc may be a read-only layer or not be there at all: busybox images have no loader to serve.
    os.makedirs(inside(root, "/etc"), exist_ok=True)
    done = subprocess.run([ldconfig, "-r", root, *folders], check=False, capture_output=True, text=True)
    if done.returncode:
        raise MountError(f"process {ldconfig} failed with error code: {done.returncode}")
