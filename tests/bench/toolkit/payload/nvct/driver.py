"""What the host's driver shows: version, GPUs, libraries, and why it does not work, in NVML's words."""

from __future__ import annotations

import os
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc/driver/nvidia")
CONTROL_DEVICES = ("/dev/nvidiactl", "/dev/nvidia-uvm", "/dev/nvidia-uvm-tools")
CUDA_OF_BRANCH = (
    (620, "13.4"), (610, "13.3"), (595, "13.2"), (590, "13.1"), (580, "13.0"), (575, "12.9"), (570, "12.8"),
    (565, "12.7"), (560, "12.6"), (555, "12.5"), (550, "12.4"), (545, "12.3"), (535, "12.2"), (530, "12.1"),
    (525, "12.0"), (515, "11.7"), (510, "11.6"), (495, "11.5"), (470, "11.4"), (450, "11.0"),
)  # fmt: skip
"""Branch and the CUDA version that its libcuda reports; from the drivers' release notes."""

COMPUTE_OF_ARCHITECTURE = {
    "Volta": "7.0", "Turing": "7.5", "Ampere": "8.0", "Ada Lovelace": "8.9", "Hopper": "9.0", "Blackwell": "10.0",
}  # fmt: skip

UTILITY_LIBRARIES = ("libnvidia-ml.so", "libnvidia-cfg.so")
COMPUTE_LIBRARIES = ("libcuda.so", "libnvidia-ptxjitcompiler.so", "libnvidia-nvvm.so")


class DriverError(Exception):
    """The driver cannot be used; the text is NVML's (`driver not loaded`, `driver/library version mismatch`, …)."""


class LibraryMissing(Exception):
    """A library is not in the loader's cache; the text is its name."""


@dataclass(frozen=True)
class Gpu:
    """A GPU that the driver holds. `bus_id` is as in /proc: 0000:07:00.0."""

    index: int
    minor: int
    uuid: str
    bus_id: str
    model: str
    compute: str
    state: str

    @property
    def device(self) -> str:
        """The device node."""
        return f"/dev/nvidia{self.minor}"


@dataclass(frozen=True)
class Driver:
    """A working driver."""

    version: str
    cuda: str
    gpus: tuple[Gpu, ...]


def text_of(path: Path) -> str:
    """The content of `path`, empty when it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def load_modules() -> None:
    """Load those of the driver's modules that are not, as libnvidia-container does with --load-kmods.

    Failures show later.
    """
    for name in ("nvidia", "nvidia-uvm", "nvidia-modeset"):
        if os.path.exists(f"/sys/module/{name.replace('-', '_')}/initstate"):
            continue
        subprocess.run(["/sbin/modprobe", "-q", name], check=False, capture_output=True, env={"PATH": "/usr/sbin:/usr/bin"})


def loader_cache() -> dict[str, str]:
    """Names in the loader's cache and the files that they lead to."""
    told = subprocess.run(["/sbin/ldconfig", "-p"], check=False, capture_output=True, text=True).stdout
    found: dict[str, str] = {}
    for name, path in re.findall(r"^\s+(\S+) \([^)]*x86-64[^)]*\) => (\S+)$", told, re.MULTILINE):
        found.setdefault(name, path)
    return found


def library(cache: dict[str, str], name: str) -> str | None:
    """The versioned file of the library `name` (libcuda.so), None when the cache has none that exists."""
    for soname in sorted(key for key in cache if key.startswith(f"{name}.")):
        path = os.path.realpath(cache[soname])
        if os.path.isfile(path):
            return path
    return None


def libraries(names: tuple[str, ...], cache: dict[str, str]) -> list[str]:
    """The files of those libraries that are there."""
    return [path for path in (library(cache, name) for name in names) if path]


def module_version() -> str:
    """The version of the loaded module, empty when none is loaded."""
    found = re.search(r"Module(?: for \S+)?\s+(\d+(?:\.\d+)+)\s", text_of(PROC / "version"))
    return found[1] if found else ""


def read_gpu(index: int, folder: Path) -> Gpu:
    """One GPU from its folder in /proc/driver/nvidia/gpus."""
    fields = dict(re.findall(r"^([^:]+):[ \t]+(.*?)\s*$", text_of(folder / "information"), re.MULTILINE))
    simulated = dict(re.findall(r"^(\w+)=(.*)$", text_of(folder / "simulated"), re.MULTILINE))
    return Gpu(
        index=index,
        minor=int(fields.get("Device Minor", index)),
        uuid=fields.get("GPU UUID", ""),
        bus_id=folder.name,
        model=fields.get("Model", ""),
        compute=COMPUTE_OF_ARCHITECTURE.get(simulated.get("architecture", ""), "8.0"),
        state=simulated.get("state", "ok"),
    )


def cuda_version(version: str) -> str:
    """The CUDA version of a driver version."""
    branch = int(version.split(".")[0])
    return next((cuda for first, cuda in CUDA_OF_BRANCH if branch >= first), "10.2")


def read() -> Driver:
    """The driver as NVML sees it.

    Raises LibraryMissing without libnvidia-ml, DriverError when the module is absent or of another version.
    """
    path = library(loader_cache(), "libnvidia-ml.so")
    if path is None:
        raise LibraryMissing("libnvidia-ml.so.1")
    loaded = module_version()
    if not loaded:
        raise DriverError("driver not loaded")
    if not path.endswith(f".{loaded}"):
        raise DriverError("driver/library version mismatch")
    folders = sorted((PROC / "gpus").iterdir()) if (PROC / "gpus").is_dir() else []
    gpus = tuple(read_gpu(index, folder) for index, folder in enumerate(folders))
    return Driver(loaded, cuda_version(loaded), gpus)
