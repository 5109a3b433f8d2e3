# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""What the kernel, modinfo, DKMS and the firmware say about GPUs and drivers: readers for their texts.

Pure functions; they run on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from ansible_collections.inferack.rack.plugins.module_utils import _dkms_status

NVIDIA = "0x10de"

#: PCI classes of a display controller that is a GPU (VGA, 3D) and of a bridge that is an NVSwitch (PCI Code and
#: ID Assignment Specification, base classes 03h and 06h).
GPU_CLASSES = ("0300", "0302")
NVSWITCH_CLASS = "0680"

#: What a distribution may call the module, the usual name first. Debian adds -current and -current-open.
MODULE_NAMES = ("nvidia", "nvidia-current", "nvidia-current-open")

VERSION = re.compile(r"\b(\d{3,4}\.\d{1,3}(?:\.\d{1,3})?)\b")


def hex_id(text: str | None) -> str | None:
    """A PCI id file's `0x2330` as `2330`; None for anything else."""
    match = re.match(r"^(?:0x)?([0-9a-f]{4,6})$", (text or "").strip().lower())
    return match.group(1) if match else None


def pci_class(text: str | None) -> str | None:
    """The first four digits of a PCI class file, `0x030200` as `0302`."""
    digits = hex_id(text)
    return digits[:4] if digits else None


def parse_proc_version(text: str) -> tuple[str | None, str | None]:
    """Version and flavour (`open`, `proprietary`) in /proc/driver/nvidia/version."""
    for line in text.splitlines():
        if line.startswith("NVRM"):
            version = VERSION.search(line)
            return (version.group(1) if version else None, "open" if "Open Kernel Module" in line else "proprietary")
    return (None, None)


def parse_modinfo(text: str) -> list[dict[str, str]]:
    """The modules in the output of `modinfo A B C`: file, name, version, license, vermagic as far as they are said.

    modinfo starts each module with `filename:`; those that it does not know it names on standard error only. The name is the
    file's, which modprobe takes: inside, Debian's nvidia-current.ko still calls itself nvidia.
    """
    modules: list[dict[str, str]] = []
    for line in text.splitlines():
        key, colon, value = line.partition(":")
        key, value = key.strip(), value.strip()
        if not colon:
            continue
        if key == "filename":
            name = value.rsplit("/", 1)[-1].split(".ko")[0]
            modules.append({"file": value, "name": name})
        elif modules and key in ("version", "license", "vermagic") and key not in modules[-1]:
            modules[-1][key] = value
    return modules


def licence_flavour(licence: str | None) -> str | None:
    """`open` for the license of NVIDIA's open modules (Dual MIT/GPL), `proprietary` for NVIDIA's own, None without one."""
    if not licence:
        return None
    return "open" if re.search(r"MIT|GPL", licence) else "proprietary"


def built_module_names(modules_dep: str) -> list[str]:
    """The names under which NVIDIA's main module is built for a kernel, from its modules.dep."""
    pattern = r"(?m)^[^:\n]*?(?:^|/)(nvidia(?:-current|-tesla(?:-\d+)?|-legacy-\d+xx)?(?:-open)?)\.ko[.\w]*:"
    return list(dict.fromkeys(re.findall(pattern, modules_dep)))


def module_names(modules_dep: str) -> list[str]:
    """`built_module_names`, behind the usual ones, which are there even where modules.dep is not."""
    return list(dict.fromkeys([*MODULE_NAMES, *built_module_names(modules_dep)]))


def parse_dkms_version(text: str) -> str | None:
    """The version in `dkms --version`, printed as `dkms-3.0.10` or `dkms: 2.8.7`."""
    match = re.search(r"dkms[-: ]+v?(\d[\w.]*)", text)
    return match.group(1) if match else None


def parse_dkms_status(text: str) -> list[dict[str, str | None]]:
    """The modules in `dkms status`, of every version of DKMS, as the fact `inferack_node` has them.

    A module that is only added has no kernel and no architecture. Warnings behind the state are left out.
    """
    return [
        {"name": row.name, "version": row.version, "kernel": row.kernel, "arch": row.arch, "state": row.state}
        for row in _dkms_status.parse_status(text)
    ]


def library_version(names: Iterable[str]) -> str | None:
    """The version in the names of libnvidia-ml's files; None when there is none, or when several disagree.

    `libnvidia-ml.so.1` is the link that programs load; it carries no version.
    """
    found = {match.group(1) for name in names if (match := re.search(r"libnvidia-ml\.so\.(\d{3,}\.\d[\d.]*)$", name))}
    return found.pop() if len(found) == 1 else None


def secure_boot(efi: bool, variable: bytes | None) -> str:
    """State of Secure Boot from the EFI variable SecureBoot (four bytes of attributes, then the value)."""
    if not efi:
        return "unsupported"
    if variable is None or len(variable) < 5:
        return "unsupported"
    return "enabled" if variable[4] == 1 else "disabled"


def parse_docker_info(info: dict[str, Any]) -> dict[str, Any]:
    """What matters in the engine's own answer (`docker info --format '{{json .}}'`, or GET /info).

    cdi is None on an engine too old to know CDI (before 25), where the key is absent.
    """
    runtimes = info.get("Runtimes")
    directories = info.get("CDISpecDirs")
    return {
        "version": info.get("ServerVersion") or None,
        "runtimes": sorted(runtimes) if isinstance(runtimes, dict) else [],
        "default_runtime": info.get("DefaultRuntime") or None,
        "cdi": bool(directories) if "CDISpecDirs" in info else None,
        "cgroup_driver": info.get("CgroupDriver") or None,
    }


def parse_client_version(text: str) -> str | None:
    """The version in `docker --version` or `dockerd --version`, such as `20.10.24+dfsg1`."""
    match = re.search(r"[Vv]ersion:? v?(\d+\.[\w.+~-]*\w)", text)
    return match.group(1) if match else None
