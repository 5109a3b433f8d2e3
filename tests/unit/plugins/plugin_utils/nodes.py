"""Facts of nodes for the tests of plan and checks: what `node_info` finds on bare and on finished ones."""

from __future__ import annotations

import copy
from typing import Any

Node = dict[str, Any]

DEBIAN_SOURCES = [
    {
        "file": "/etc/apt/sources.list.d/debian.sources",
        "type": "deb",
        "uris": ["http://mirror.example/debian"],
        "suites": ["bookworm", "bookworm-updates"],
        "components": ["main"],
        "signed_by": "/usr/share/keyrings/debian-archive-keyring.gpg",
    },
    {
        "file": "/etc/apt/sources.list",
        "type": "deb",
        "uris": ["http://mirror.example/debian-security"],
        "suites": ["bookworm-security"],
        "components": ["main", "non-free-firmware"],
        "signed_by": None,
    },
]

SYSTEMS = {
    "debian-12": ("Debian", "12", "Debian", "bookworm", "6.1.0-42-amd64", "update-initramfs", "apt"),
    "debian-13": ("Debian", "13", "Debian", "trixie", "6.12.9-amd64", "update-initramfs", "apt"),
    "ubuntu-22": ("Ubuntu", "22.04", "Debian", "jammy", "5.15.0-100-generic", "update-initramfs", "apt"),
    "ubuntu-24": ("Ubuntu", "24.04", "Debian", "noble", "6.8.0-60-generic", "update-initramfs", "apt"),
    "openeuler-22": ("openEuler", "22.03", "RedHat", None, "5.10.0-216.0.0.115.oe2203sp4.x86_64", "dracut", "dnf"),
    "openeuler-24": ("openEuler", "24.03", "RedHat", None, "6.6.0-72.0.0.76.oe2403sp1.x86_64", "dracut", "dnf"),
}


def bare(system: str = "debian-12", device_ids: tuple[str, ...] = ("2330", "2330"), **changes: Any) -> Node:
    """A node before anything was installed, with these GPUs; keyword arguments replace whole facts."""
    name, version, family, codename, release, tool, manager = SYSTEMS[system]
    node: Node = {
        "os": {
            "distribution": name,
            "version": version,
            "major": version.split(".")[0],
            "family": family,
            "codename": codename,
            "architecture": "x86_64",
        },
        "kernel": {"release": release, "headers": False, "headers_path": None, "installed": [release], "cmdline": "quiet"},
        "boot_id": "b",
        "gpus": [
            {
                "bus_id": f"0000:{index + 7:02x}:00.0",
                "device_id": device,
                "subsystem_id": "16c1",
                "class": "0302",
                "bound_driver": None,
            }
            for index, device in enumerate(device_ids)
        ],
        "nvswitches": 0,
        "nouveau": {"loaded": False, "blacklisted": False, "modeset_disabled": False, "in_initramfs": False, "problems": []},
        "driver": {
            "loaded_version": None,
            "library_version": None,
            "module_version": None,
            "module_name": None,
            "flavour": None,
            "smi_path": None,
            "runfile": False,
        },
        "dkms": None,
        "initramfs": {"tool": tool, "image": f"/boot/initrd.img-{release}", "modprobe_files": [], "nouveau_blacklisted": False},
        "secure_boot": "unsupported",
        "packages": {},
        "held": [],
        "sources": copy.deepcopy(DEBIAN_SOURCES) if manager == "apt" else [],
        "docker": None,
        "toolkit": None,
        "disk": {"/": 50_000_000_000, "/var": 50_000_000_000, "/boot": 500_000_000, "/var/lib/docker": 50_000_000_000},
        "reboot_required": False,
        "package_manager": {"name": manager, "lock_held_by": None},
        "glibc": "2.36",
    }
    node.update(changes)
    return node


def finished(version: str = "535.309.01", dkms_name: str = "nvidia-current", **changes: Any) -> Node:
    """debian-12 with the driver built, loaded and agreeing with its library."""
    node = bare()
    release = node["kernel"]["release"]
    node["kernel"].update(headers=True, headers_path=f"/usr/src/linux-headers-{release}")
    node["nouveau"].update(blacklisted=True, modeset_disabled=True)
    node["driver"].update(
        loaded_version=version, library_version=version, module_version=version, module_name=dkms_name, flavour="proprietary"
    )
    node["dkms"] = {
        "version": "3.0.10",
        "modules": [{"name": dkms_name, "version": version, "kernel": release, "arch": "x86_64", "state": "installed"}],
    }
    for key, value in changes.items():
        node[key] = {**node[key], **value} if isinstance(node[key], dict) else value
    return node
