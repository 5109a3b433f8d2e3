# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""The fact `inferack_node`: everything about a node that the roles decide upon, read in one go.

Each probe reads files below a root folder or runs a tool bounded in time; it answers None for what is absent or cannot be
read, and never fails. Shape: docs/architecture.md, "Facts that roles hand on".
Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shlex
import struct
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils import (
    _boot_kernel,
    _docker_socket,
    _driver_facts,
    _initramfs,
    _modprobe,
    _packages,
    _run,
)

Runner = Callable[[Sequence[str], float], _run.Output]

#: os-release ID to the distribution's name as Ansible's facts spell it.
DISTRIBUTIONS = {
    "debian": "Debian",
    "ubuntu": "Ubuntu",
    "openeuler": "openEuler",
    "rhel": "RedHat",
    "centos": "CentOS",
    "rocky": "Rocky",
    "almalinux": "AlmaLinux",
    "fedora": "Fedora",
    "ol": "OracleLinux",
}
FAMILIES = {
    "debian": "Debian",
    "ubuntu": "Debian",
    "rhel": "RedHat",
    "centos": "RedHat",
    "fedora": "RedHat",
    "openeuler": "RedHat",
}

#: EFI variable of the global namespace (UEFI specification, 3.3 "Globally Defined Variables").
SECURE_BOOT = "sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c"

#: Locks of package managers: apt and dpkg and rpm take fcntl locks, dnf writes its process id.
FCNTL_LOCKS = {
    "apt": ("var/lib/dpkg/lock-frontend", "var/lib/dpkg/lock", "var/lib/apt/lists/lock", "var/cache/apt/archives/lock"),
    "dnf": ("var/lib/rpm/.rpm.lock", "usr/lib/sysimage/rpm/.rpm.lock"),
}
PID_LOCKS = (
    "var/cache/dnf/metadata_lock.pid",
    "var/cache/dnf/download_lock.pid",
    "var/lib/dnf/rpmdb_lock.pid",
    "var/run/yum.pid",
)

LIBRARY_FOLDERS = (
    "usr/lib/*-linux-gnu",
    "usr/lib/*-linux-gnu/nvidia/*",
    "usr/lib64",
    "usr/lib64/nvidia",
    "usr/lib",
    "usr/local/lib",
)

#: `struct flock` of 64-bit Linux: type, whence, start, length, process id (fcntl(2)).
FLOCK = "hhqqi4x"

CACHE = Path("/run/inferack/initramfs.json")


def _default_runner(command: Sequence[str], timeout: float) -> _run.Output:
    return _run.run(command, timeout)


@dataclass
class Node:
    """Where a node is read from.

    root: folder that stands for `/`.
    timeout: longest time one tool may take, in seconds.
    run: runs a tool; see `_run.run`.
    which: finds a tool's path; see `_run.which`.
    release, machine: of the running kernel.
    initramfs: look into the initramfs.
    cache: file that remembers what an unchanged image holds; None for none.
    """

    root: Path = Path("/")
    timeout: float = 10.0
    run: Runner = _default_runner
    which: Callable[[str], str | None] = _run.which
    release: str = field(default_factory=lambda: os.uname().release)
    machine: str = field(default_factory=lambda: os.uname().machine)
    initramfs: bool = True
    cache: Path | None = CACHE

    def path(self, name: str) -> Path:
        """A file of the node by its path without leading slash."""
        return self.root / name.lstrip("/")

    def text(self, name: str) -> str | None:
        """A file's text; None when it cannot be read."""
        try:
            return self.path(name).read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None

    def texts(self, folders: Sequence[str], pattern: str = "*") -> dict[str, str]:
        """The texts of the files in folders, by absolute path on the node."""
        found: dict[str, str] = {}
        for folder in folders:
            for file in sorted(self.path(folder).glob(pattern)):
                name = "/" + str(file.relative_to(self.root))
                if file.is_file() and (text := self.text(name)) is not None:
                    found[name] = text
        return found

    def output(self, *command: str) -> str | None:
        """What a tool prints; None when it is missing, fails without a word or takes too long."""
        result = self.run(command, self.timeout)
        return result.out if result.ok or (result.rc is not None and result.out.strip()) else None


def parse_os_release(text: str) -> dict[str, str]:
    """The fields of os-release(5), quotes resolved; lines that are no assignment are left out."""
    fields: dict[str, str] = {}
    for line in text.splitlines():
        key, equals, value = line.strip().partition("=")
        if not equals or key.startswith("#"):
            continue
        with contextlib.suppress(ValueError):
            words = shlex.split(value)
            fields[key] = words[0] if words else ""
    return fields


def os_facts(text: str, machine: str) -> dict[str, Any]:
    """The fact `os` from os-release and the machine's name."""
    fields = parse_os_release(text)
    identity = fields.get("ID", "").lower()
    likes = [identity, *fields.get("ID_LIKE", "").lower().split()]
    version = fields.get("VERSION_ID") or None
    return {
        "distribution": DISTRIBUTIONS.get(identity) or fields.get("NAME") or None,
        "version": version,
        "major": version.split(".")[0] if version else None,
        "family": next((FAMILIES[like] for like in likes if like in FAMILIES), None),
        "codename": fields.get("VERSION_CODENAME") or None,
        "architecture": {"arm64": "aarch64", "amd64": "x86_64"}.get(machine, machine),
    }


def probe_os(node: Node) -> dict[str, Any]:
    """The fact `os`."""
    return os_facts(node.text("etc/os-release") or node.text("usr/lib/os-release") or "", node.machine)


def probe_kernel(node: Node) -> dict[str, Any]:
    """The fact `kernel`. Headers count when a module can be built against them: their Makefile is there."""
    build = node.path(f"lib/modules/{node.release}/build")
    headers = (build / "Makefile").exists()
    modules = node.path("lib/modules")
    installed = [folder.name for folder in sorted(modules.iterdir()) if folder.is_dir()] if modules.is_dir() else []
    return {
        "release": node.release,
        "headers": headers,
        "headers_path": os.path.realpath(build) if headers else None,
        "installed": installed,
        "bootable": _bootable(node, installed),
        "default": _boot_default(node, installed),
        "cmdline": (node.text("proc/cmdline") or "").strip() or None,
    }


def _bootable(node: Node, installed: Sequence[str]) -> list[str]:
    """The installed releases that a boot loader can start; a folder of modules alone is a leftover."""
    boot = node.path("boot")
    images = {
        release for path in (boot.iterdir() if boot.is_dir() else ()) if (release := _boot_kernel.image_release(path.name))
    }
    return [release for release in installed if release in images]


def _boot_default(node: Node, installed: Sequence[str]) -> str | None:
    """The release that boots next, by GRUB's files or the Boot Loader Specification's."""
    folders = ("boot/grub", "boot/grub2", "boot/efi/EFI/openEuler")
    config = next((text for folder in folders if (text := node.text(f"{folder}/grub.cfg"))), "")
    environment = next((text for folder in folders if (text := node.text(f"{folder}/grubenv"))), "")
    loader = {Path(name).stem: text for name, text in node.texts(["boot/loader/entries"], "*.conf").items()}
    return _boot_kernel.default_release(config, environment, loader, _bootable(node, installed))


def _pci(node: Node) -> list[dict[str, Any]]:
    """NVIDIA's PCI functions: bus id, class, device and subsystem ids, bound driver."""
    found: list[dict[str, Any]] = []
    devices = node.path("sys/bus/pci/devices")
    if not devices.is_dir():
        return found
    for device in sorted(devices.iterdir()):
        read = {name: node.text(f"sys/bus/pci/devices/{device.name}/{name}") for name in ("vendor", "class", "device")}
        if (read["vendor"] or "").strip() != _driver_facts.NVIDIA:
            continue
        driver = device / "driver"
        found.append(
            {
                "bus_id": device.name,
                "device_id": _driver_facts.hex_id(read["device"]),
                "subsystem_id": _driver_facts.hex_id(node.text(f"sys/bus/pci/devices/{device.name}/subsystem_device")),
                "class": _driver_facts.pci_class(read["class"]),
                "bound_driver": os.path.basename(os.path.realpath(driver)) if driver.exists() else None,
            }
        )
    return found


def probe_gpus(node: Node) -> list[dict[str, Any]]:
    """The fact `gpus`, in the order of their bus ids."""
    return [device for device in _pci(node) if device["class"] in _driver_facts.GPU_CLASSES]


def probe_nvswitches(node: Node) -> int:
    """The fact `nvswitches`."""
    return sum(device["class"] == _driver_facts.NVSWITCH_CLASS for device in _pci(node))


def probe_nouveau(node: Node) -> dict[str, Any]:
    """The fact `nouveau`; `in_initramfs` is filled in by `gather`, from the image."""
    files = node.texts([folder.lstrip("/") for folder in _modprobe.FOLDERS])
    state = _modprobe.nouveau(files, node.text("proc/cmdline") or "")
    return {
        "loaded": node.path("sys/module/nouveau").is_dir(),
        "blacklisted": state.blacklisted,
        "modeset_disabled": state.modeset_disabled,
        "in_initramfs": None,
        "problems": state.problems,
    }


def _library_version(node: Node) -> str | None:
    """The version of the libnvidia-ml that programs load: where the link leads, else the only file there is."""
    names: list[str] = []
    for folder in LIBRARY_FOLDERS:
        for link in sorted(node.root.glob(f"{folder}/libnvidia-ml.so.1")):
            version = _driver_facts.library_version([os.path.basename(os.path.realpath(link))])
            if version:
                return version
        names += [file.name for file in node.root.glob(f"{folder}/libnvidia-ml.so.*")]
    return _driver_facts.library_version(names)


def _module_versions(node: Node) -> dict[str, str | None]:
    """NVIDIA's module on disk for each installed kernel but the running one: its version, None where there is none."""
    versions: dict[str, str | None] = {}
    folder = node.path("lib/modules")
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if not path.is_dir() or path.name == node.release:
            continue
        text = node.text(f"lib/modules/{path.name}/modules.dep") or ""
        names = _driver_facts.built_module_names(text)
        modules = _driver_facts.parse_modinfo(node.output("modinfo", "-k", path.name, *names) or "") if names else []
        versions[path.name] = next(
            (module.get("version") for name in names for module in modules if module["name"] == name), None
        )
    return versions


def probe_driver(node: Node) -> dict[str, Any]:
    """The fact `driver`: what is loaded, what is built for the running kernel, and what programs link against."""
    proc_version, proc_flavour = _driver_facts.parse_proc_version(node.text("proc/driver/nvidia/version") or "")
    loaded = node.path("sys/module/nvidia").is_dir()
    loaded_version = (node.text("sys/module/nvidia/version") or "").strip() or proc_version
    names = _driver_facts.module_names(node.text(f"lib/modules/{node.release}/modules.dep") or "")
    modules = _driver_facts.parse_modinfo(node.output("modinfo", "-k", node.release, *names) or "")
    module = next((module for name in names for module in modules if module["name"] == name), {})
    uninstallers = ("usr/bin/nvidia-uninstall", "usr/bin/nvidia-installer", "var/log/nvidia-installer.log")
    return {
        "loaded_version": loaded_version if loaded or proc_version else None,
        "library_version": _library_version(node),
        "module_version": module.get("version"),
        "module_name": module.get("name"),
        "flavour": _driver_facts.licence_flavour(module.get("license")) or proc_flavour,
        "kernels": {**_module_versions(node), node.release: module.get("version")},
        "smi_path": node.which("nvidia-smi"),
        "runfile": any(node.path(name).exists() for name in uninstallers),
    }


def probe_dkms(node: Node) -> dict[str, Any] | None:
    """The fact `dkms`; None on a node without it."""
    if node.which("dkms") is None:
        return None
    version = _driver_facts.parse_dkms_version(node.output("dkms", "--version") or "")
    return {"version": version, "modules": _driver_facts.parse_dkms_status(node.output("dkms", "status") or "")}


def initramfs_tool(node: Node) -> str | None:
    """`update-initramfs` or `dracut`.

    Debian's and Ubuntu's dracut bring an update-initramfs that only calls dracut, so that the name alone proves nothing:
    where both are there, mkinitramfs decides.
    """
    update, dracut = node.which("update-initramfs"), node.which("dracut")
    if update and (not dracut or node.which("mkinitramfs")):
        return "update-initramfs"
    return "dracut" if dracut else None


def _initramfs_path(node: Node, tool: str | None) -> Path | None:
    names = [f"boot/initrd.img-{node.release}", f"boot/initramfs-{node.release}.img", f"boot/initrd-{node.release}"]
    if tool == "dracut" and node.which("dpkg") is None:
        names = [names[1], names[0], names[2]]
    return next((node.path(name) for name in names if node.path(name).is_file()), None)


def _cached(node: Node, path: Path, build: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """What `build` found in the image, remembered for as long as the file stays the same one with the same times."""
    state = path.stat()
    key = [str(path), state.st_ino, state.st_size, state.st_mtime_ns, state.st_ctime_ns]
    if node.cache is not None:
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            remembered = json.loads(node.cache.read_text(encoding="utf-8"))
            if remembered["key"] == key and isinstance(remembered["content"], dict):
                return dict(remembered["content"])
    content = build()
    if node.cache is not None and content.get("modprobe_files") is not None:
        fresh = node.cache.with_suffix(f".{os.getpid()}")
        with contextlib.suppress(OSError):
            node.cache.parent.mkdir(mode=0o700, exist_ok=True)
            fresh.write_text(json.dumps({"key": key, "content": content}), encoding="utf-8")
            fresh.replace(node.cache)
    return content


def _initramfs_content(node: Node, path: Path, tool: str | None) -> dict[str, Any]:
    """modprobe_files, nouveau and nouveau_blacklisted of an image; None for what cannot be told."""
    texts: dict[str, str] | None
    try:
        image = _initramfs.read_image(str(path))
        texts = image.modprobe
    except _initramfs.UnreadableImageError:
        lister = {"update-initramfs": "lsinitramfs", "dracut": "lsinitrd"}.get(tool or "", "lsinitramfs")
        listing = node.run([lister, str(path)], max(node.timeout, 60.0))
        if not listing.ok:
            return {"modprobe_files": None, "nouveau": None, "nouveau_blacklisted": None}
        image, texts = _initramfs.from_listing(listing.out), None
    files = sorted("/" + name for name in image.names if _initramfs.MODPROBE.match(name))
    return {
        "modprobe_files": files,
        "nouveau": image.has_nouveau,
        "nouveau_blacklisted": None if texts is None else _modprobe.nouveau(texts).blacklisted,
    }


def probe_initramfs(node: Node) -> dict[str, Any]:
    """The fact `initramfs`, and under `nouveau` whether the module is inside."""
    tool = initramfs_tool(node)
    path = _initramfs_path(node, tool)
    content: dict[str, Any] = {"modprobe_files": None, "nouveau": None, "nouveau_blacklisted": None}
    if path is not None and node.initramfs:
        image = path
        with contextlib.suppress(OSError):
            content = _cached(node, image, lambda: _initramfs_content(node, image, tool))
    return {"tool": tool, "image": None if path is None else "/" + str(path.relative_to(node.root)), **content}


def probe_secure_boot(node: Node) -> str | None:
    """The fact `secure_boot`; None on an EFI machine whose variables cannot be read."""
    efi = node.path("sys/firmware/efi").is_dir()
    try:
        value = node.path(SECURE_BOOT).read_bytes()
    except FileNotFoundError:
        return (
            None if efi and not any(node.path("sys/firmware/efi/efivars").glob("*")) else _driver_facts.secure_boot(efi, None)
        )
    except OSError:
        return None
    return _driver_facts.secure_boot(efi, value)


def package_manager(node: Node) -> str | None:
    """`apt` or `dnf`, by the tool and the database that are there."""
    if node.which("apt-get") and node.path("var/lib/dpkg/status").exists():
        return "apt"
    return "dnf" if node.which("dnf") or node.which("yum") else None


def probe_packages(node: Node) -> _packages.Packages | None:
    """Packages and holds; None when the database cannot be asked."""
    manager = package_manager(node)
    if manager == "apt":
        text = node.output("dpkg-query", "-W", "-f", _packages.DPKG_FORMAT)
        return None if text is None else _packages.parse_dpkg(text)
    if manager is None:
        return None
    text = node.output("rpm", "-qa", "--qf", _packages.RPM_FORMAT)
    if text is None:
        return None
    found = _packages.parse_rpm(text, node.release)
    locks = ("etc/dnf/plugins/versionlock.list", "etc/yum/pluginconf.d/versionlock.list")
    held = {name for file in locks for name in _packages.parse_versionlock(node.text(file) or "")}
    held.update(_packages.parse_versionlock_toml(node.text("etc/dnf/versionlock.toml") or ""))
    return _packages.Packages(found.versions, sorted(held), [])


def probe_sources(node: Node) -> list[dict[str, Any]]:
    """The fact `sources`: those of the node's own package manager."""
    if package_manager(node) == "dnf":
        return _packages.sources(node.texts(["etc/yum.repos.d"], "*.repo"))
    files = node.texts(["etc/apt"], "sources.list")
    files.update(node.texts(["etc/apt/sources.list.d"], "*.list"))
    files.update(node.texts(["etc/apt/sources.list.d"], "*.sources"))
    return _packages.sources(files)


def engine_info(path: str, timeout: float) -> dict[str, Any] | None:
    """The engine's answer to `GET /info`, the same that `docker info` prints; None when it does not answer."""
    try:
        answer = json.loads(_docker_socket.call(path, "GET", "/info", timeout=timeout))
    except (_docker_socket.DockerError, ValueError):
        return None
    return answer if isinstance(answer, dict) and "ServerVersion" in answer else None


def _engine_started(node: Node) -> bool:
    """A dockerd is there already, so that asking its socket starts none."""
    if any(node.path(name).exists() for name in ("run/docker.pid", "run/snap.docker/docker.pid")):
        return True
    return any((node.text(f"proc/{entry.name}/comm") or "").strip() == "dockerd" for entry in node.path("proc").glob("[0-9]*"))


def probe_docker(node: Node) -> dict[str, Any] | None:
    """The fact `docker`; None on a node without it. A stopped engine that its socket would start is left stopped."""
    snap = node.path("snap/bin/docker")
    path = node.which("docker") or node.which("dockerd") or (str(snap) if snap.exists() else None)
    if path is None:
        return None
    listening = node.path("run/docker.sock")
    info = engine_info(str(listening), node.timeout) if listening.exists() and _engine_started(node) else None
    facts = _driver_facts.parse_docker_info(info or {})
    version = facts["version"] or _driver_facts.parse_client_version(node.output(path, "--version") or "")
    is_snap = path.startswith("/snap/") or os.path.realpath(path).startswith(("/snap/", "/usr/bin/snap")) or snap.exists()
    return {"path": path, **facts, "version": version, "snap": is_snap, "running": info is not None}


def probe_toolkit(node: Node) -> str | None:
    """The version that nvidia-ctk prints; None without it."""
    if node.which("nvidia-ctk") is None:
        return None
    match = re.search(r"version v?(\d+\.\d+[\w.~-]*)", node.output("nvidia-ctk", "--version") or "")
    return match.group(1) if match else None


def probe_disk(node: Node) -> dict[str, int | None]:
    """Bytes free for an ordinary user, by folder; for a folder not there yet, of where it would be created."""
    free: dict[str, int | None] = {}
    for name in ("/", "/var", "/boot", "/var/lib/docker"):
        folder = node.path(name)
        while not folder.exists() and folder != node.root:
            folder = folder.parent
        try:
            state = os.statvfs(folder)
            free[name] = state.f_bavail * state.f_frsize
        except OSError:
            free[name] = None
    return free


def probe_reboot_required(node: Node) -> bool:
    """The node's own packages ask for a reboot (Debian's policy 9.10 marker)."""
    return any(node.path(name).exists() for name in ("run/reboot-required", "var/run/reboot-required"))


def _holder(node: Node, pid: int) -> str:
    """A process as `name (pid 12)`; a process of another namespace has no id here."""
    name = (node.text(f"proc/{pid}/comm") or "").strip() if pid > 0 else ""
    return f"{name or 'a process'} (pid {pid})" if pid > 0 else "a process that cannot be seen from here"


def lock_holder(node: Node, file: Path) -> str | None:
    """Who holds a write lock on a file, tested without taking it; None when nobody does or it cannot be told."""
    try:
        with file.open("rb") as handle:
            wanted = struct.pack(FLOCK, fcntl.F_RDLCK, os.SEEK_SET, 0, 0, 0)
            kind, _whence, _start, _length, pid = struct.unpack(FLOCK, fcntl.fcntl(handle, fcntl.F_GETLK, wanted))
    except OSError:
        return None
    return None if kind == fcntl.F_UNLCK else _holder(node, pid)


def probe_package_manager(node: Node) -> dict[str, Any]:
    """The fact `package_manager`."""
    manager = package_manager(node)
    holder: str | None = None
    for name in FCNTL_LOCKS.get(manager or "", ()):
        holder = holder or lock_holder(node, node.path(name))
    if manager == "dnf":
        for name in PID_LOCKS:
            pid = (node.text(name) or "").strip()
            if holder is None and pid.isdigit() and node.path(f"proc/{pid}").is_dir():
                holder = _holder(node, int(pid))
    return {"name": manager, "lock_held_by": holder}


def probe_glibc(node: Node) -> str | None:
    """The C library's version as the running Python sees it."""
    del node
    with contextlib.suppress(ValueError, OSError):
        words = (os.confstr("CS_GNU_LIBC_VERSION") or "").split()
        return words[1] if len(words) == 2 else None
    return None


PROBES: dict[str, Callable[[Node], Any]] = {
    "os": probe_os,
    "kernel": probe_kernel,
    "boot_id": lambda node: (node.text("proc/sys/kernel/random/boot_id") or "").strip() or None,
    "gpus": probe_gpus,
    "nvswitches": probe_nvswitches,
    "nouveau": probe_nouveau,
    "driver": probe_driver,
    "dkms": probe_dkms,
    "initramfs": probe_initramfs,
    "secure_boot": probe_secure_boot,
    "packages": probe_packages,
    "sources": probe_sources,
    "docker": probe_docker,
    "toolkit": probe_toolkit,
    "disk": probe_disk,
    "reboot_required": probe_reboot_required,
    "package_manager": probe_package_manager,
    "glibc": probe_glibc,
}


def gather(node: Node) -> tuple[dict[str, Any], dict[str, str]]:
    """The fact `inferack_node`, and for each probe that broke its own words; its fact is None.

    Most probes wait for a tool, so that they run side by side.
    """
    raw: dict[str, Any] = {}
    broken: dict[str, str] = {}
    with ThreadPoolExecutor(max_workers=8) as pool:
        waiting = {name: pool.submit(probe, node) for name, probe in PROBES.items()}
        for name, future in waiting.items():
            try:
                raw[name] = future.result()
            except Exception as error:  # a fact that cannot be read is null, whatever the reason
                raw[name] = None
                broken[name] = f"{type(error).__name__}: {error}"
    image = raw["initramfs"] or {}
    inside = image.pop("nouveau", None)
    if raw["nouveau"] is not None:
        raw["nouveau"]["in_initramfs"] = inside
    packages: _packages.Packages | None = raw["packages"]
    raw["packages"] = None if packages is None else packages.versions
    raw["held"] = None if packages is None else packages.held
    raw["broken_packages"] = None if packages is None else packages.broken
    toolkit = raw["toolkit"]
    if toolkit is None and packages is not None:
        packaged = packages.versions.get("nvidia-container-toolkit", "")
        toolkit = packaged.split(":")[-1].rsplit("-", 1)[0] or None
    raw["toolkit"] = {"version": toolkit} if toolkit else None
    return raw, broken
