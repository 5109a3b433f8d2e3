"""What kernel, modinfo, DKMS, firmware and Docker print."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _driver_facts

OPEN = """NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.95.05  Release Build  (dvs-builder@U22)
GCC version:  gcc version 13.3.0 (Ubuntu 13.3.0-6ubuntu2~24.04)
"""
PROPRIETARY = """NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.309.01  Wed Nov 26 20:28:08 UTC 2025
GCC version:  gcc version 12.2.0 (Debian 12.2.0-14+deb12u1)
"""


@pytest.mark.parametrize(
    ("text", "version", "flavour"),
    [
        (OPEN, "580.95.05", "open"),
        (PROPRIETARY, "535.309.01", "proprietary"),
        ("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.76  Thu", "550.76", "proprietary"),
        ("NVRM version: something new", None, "proprietary"),
        ("", None, None),
    ],
)
def test_proc_version(text: str, version: str | None, flavour: str | None) -> None:
    assert _driver_facts.parse_proc_version(text) == (version, flavour)


MODINFO = """filename:       /lib/modules/6.1.0-35-amd64/updates/dkms/nvidia-current.ko
alias:          char-major-195-*
version:        535.309.01
supported:      external
license:        NVIDIA
firmware:       nvidia/535.309.01/gsp_tu10x.bin
name:           nvidia
vermagic:       6.1.0-35-amd64 SMP preempt mod_unload modversions
filename:       /lib/modules/6.1.0-35-amd64/updates/dkms/nvidia-current-open.ko.xz
version:        550.163.01
license:        Dual MIT/GPL
"""


def test_modinfo_of_several_modules() -> None:
    first, second = _driver_facts.parse_modinfo(MODINFO)
    assert (first["name"], first["version"], first["license"]) == ("nvidia-current", "535.309.01", "NVIDIA")
    assert first["vermagic"].startswith("6.1.0-35-amd64")
    assert (second["name"], second["version"]) == ("nvidia-current-open", "550.163.01")
    assert _driver_facts.licence_flavour(first["license"]) == "proprietary"
    assert _driver_facts.licence_flavour(second["license"]) == "open"
    assert _driver_facts.licence_flavour(None) is None
    assert _driver_facts.parse_modinfo("modinfo: ERROR: Module nvidia not found.\n") == []


def test_module_names_from_modules_dep() -> None:
    text = (
        "kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz: kernel/drivers/gpu/drm/drm.ko.xz\n"
        "updates/dkms/nvidia-tesla-470.ko:\nupdates/dkms/nvidia-tesla-470-drm.ko: updates/dkms/nvidia-tesla-470.ko\n"
        "updates/dkms/nvidia-uvm.ko: x\nupdates/dkms/nvidia-legacy-390xx.ko.zst:\nkernel/drivers/video/fbdev/nvidia/nvidiafb.ko: x\n"
    )
    assert _driver_facts.module_names(text) == [*_driver_facts.MODULE_NAMES, "nvidia-tesla-470", "nvidia-legacy-390xx"]


@pytest.mark.parametrize(
    ("text", "version"), [("dkms-3.0.10\n", "3.0.10"), ("dkms: 2.8.7\n", "2.8.7"), ("dkms-3.2.2", "3.2.2"), ("", None)]
)
def test_dkms_version(text: str, version: str | None) -> None:
    assert _driver_facts.parse_dkms_version(text) == version


@pytest.mark.parametrize(
    ("line", "module"),
    [
        (
            "nvidia, 535.183.01, 5.15.0-91-generic, x86_64: installed",
            ("nvidia", "535.183.01", "5.15.0-91-generic", "x86_64", "installed"),
        ),
        (
            "nvidia/580.95.05, 6.8.0-49-generic, x86_64: installed",
            ("nvidia", "580.95.05", "6.8.0-49-generic", "x86_64", "installed"),
        ),
        ("nvidia-current/535.309.01: added", ("nvidia-current", "535.309.01", None, None, "added")),
        ("nvidia-current, 535.309.01: added", ("nvidia-current", "535.309.01", None, None, "added")),
        (
            "nvidia/550.163.01, 6.12.48+deb13-amd64, x86_64: built",
            ("nvidia", "550.163.01", "6.12.48+deb13-amd64", "x86_64", "built"),
        ),
        (
            "nvidia/580.95.05, 6.8.0-49-generic, x86_64: installed (WARNING! Diff between built and installed module!)",
            ("nvidia", "580.95.05", "6.8.0-49-generic", "x86_64", "installed"),
        ),
        (
            "nvidia, 460.73.01, 5.4.0, x86_64: installed (original_module exists)",
            ("nvidia", "460.73.01", "5.4.0", "x86_64", "installed"),
        ),
        ("nvidia/535.1, 5.10.0, x86_64: installed-weak", ("nvidia", "535.1", "5.10.0", "x86_64", "installed-weak")),
        ("Error! Could not locate dkms.conf file.", None),
        ("Deprecated feature: REMAKE_INITRD (/usr/src/x/dkms.conf)", None),
        ("broken/1.0: ", None),
        ("", None),
    ],
)
def test_dkms_status(line: str, module: tuple[str | None, ...] | None) -> None:
    keys = ("name", "version", "kernel", "arch", "state")
    assert _driver_facts.parse_dkms_status(line + "\n") == ([] if module is None else [dict(zip(keys, module, strict=True))])


@pytest.mark.parametrize(
    ("names", "version"),
    [
        (["libnvidia-ml.so.1", "libnvidia-ml.so.580.95.05"], "580.95.05"),
        (["libnvidia-ml.so.550.76"], "550.76"),
        (["libnvidia-ml.so.1"], None),
        (["libnvidia-ml.so.580.95.05", "libnvidia-ml.so.535.1.1"], None),
        ([], None),
    ],
)
def test_library_version(names: list[str], version: str | None) -> None:
    assert _driver_facts.library_version(names) == version


@pytest.mark.parametrize(
    ("efi", "variable", "state"),
    [
        (False, None, "unsupported"),
        (True, None, "unsupported"),
        (True, b"\x06\0\0\0\x01", "enabled"),
        (True, b"\x06\0\0\0\x00", "disabled"),
        (True, b"\x06", "unsupported"),
    ],
)
def test_secure_boot(efi: bool, variable: bytes | None, state: str) -> None:
    assert _driver_facts.secure_boot(efi, variable) == state


@pytest.mark.parametrize(
    ("info", "facts"),
    [
        (
            {
                "ServerVersion": "20.10.24+dfsg1",
                "Runtimes": {"runc": {}, "nvidia": {}},
                "DefaultRuntime": "runc",
                "CgroupDriver": "systemd",
            },
            {
                "version": "20.10.24+dfsg1",
                "runtimes": ["nvidia", "runc"],
                "default_runtime": "runc",
                "cdi": None,
                "cgroup_driver": "systemd",
            },
        ),
        ({"ServerVersion": "28.0.1", "CDISpecDirs": ["/etc/cdi"]}, {"version": "28.0.1", "cdi": True}),
        ({"ServerVersion": "26.1.5", "CDISpecDirs": []}, {"cdi": False}),
        ({"ServerVersion": "26.1.5", "CDISpecDirs": None}, {"cdi": False}),
        ({}, {"version": None, "runtimes": [], "cdi": None}),
    ],
)
def test_docker_info(info: dict[str, Any], facts: dict[str, Any]) -> None:
    found = _driver_facts.parse_docker_info(info)
    assert {key: found[key] for key in facts} == facts


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("Docker version 20.10.24+dfsg1, build 297e128", "20.10.24+dfsg1"),
        ("Docker version 26.1.5+dfsg1, build a72d7cd", "26.1.5+dfsg1"),
        ("Docker version 18.09.0, build 384e3e9", "18.09.0"),
        ("bash: docker: not found", None),
    ],
)
def test_client_version(text: str, version: str | None) -> None:
    assert _driver_facts.parse_client_version(text) == version


@pytest.mark.parametrize(
    ("text", "number"), [("0x2330\n", "2330"), ("2330", "2330"), ("0x030200", "030200"), ("", None), (None, None), ("x", None)]
)
def test_hex_id(text: str | None, number: str | None) -> None:
    assert _driver_facts.hex_id(text) == number


@given(st.text())
def test_no_text_breaks_a_reader(text: str) -> None:
    _driver_facts.parse_proc_version(text)
    _driver_facts.parse_modinfo(text)
    _driver_facts.module_names(text)
    _driver_facts.parse_dkms_version(text)
    _driver_facts.parse_dkms_status(text)
    _driver_facts.parse_client_version(text)
    _driver_facts.pci_class(text)
