"""Ubuntu's NVIDIA packages (the -server series of 24.04) with Ubuntu's names, relations and maintainer scripts' effects.

Names and relations follow debian/control of Ubuntu's source packages nvidia-graphics-drivers-<branch>-server and
fabric-manager-<branch>; what the files do is in module/ and userspace/.
"""

from __future__ import annotations

import subprocess
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pack.deb import Deb

HERE = Path(__file__).resolve().parent
MODULE = HERE.parent / "module"
USERSPACE = HERE.parent / "userspace"
LIBRARIES = "/usr/lib/x86_64-linux-gnu"
DKMS_NAME = "nvidia-srv"
"""The name under which Ubuntu's -server packages register with DKMS."""


@dataclass(frozen=True)
class Driver:
    """A driver in the archive: NVIDIA's version, the rest of the package's version, CUDA version (13000: 13.0)."""

    branch: str
    version: str
    upload: str
    cuda: int

    @property
    def full(self) -> str:
        """The version of the packages."""
        return f"{self.version}-{self.upload}"


DRIVERS = (
    Driver("535", "535.274.02", "0ubuntu0.24.04.2", 12020),
    Driver("570", "570.195.03", "0ubuntu0.24.04.1", 12080),
    Driver("580", "580.95.05", "0ubuntu0.24.04.3", 13000),
    Driver("580", "580.126.09", "0ubuntu0.24.04.1", 13000),
)
TRANSITIONAL = ("565", "580")
"""An old branch whose packages only pull in a newer one, and that branch."""

LICENCES = {"open": ("Dual MIT/GPL", "Dual MIT/GPL"), "proprietary": ("NVIDIA", "Dual MIT/GPL")}
"""Licences of nvidia.ko and of nvidia-uvm.ko by flavour."""

BLACKLIST = """blacklist nouveau
blacklist lbm-nouveau
alias nouveau off
alias lbm-nouveau off
"""
PERSISTENCED = """[Unit]
Description=NVIDIA Persistence Daemon
Wants=syslog.target
Before=systemd-backlight@backlight:nvidia_0.service

[Service]
Type=forking
ExecStart=/usr/bin/nvidia-persistenced --user nvidia-persistenced --no-persistence-mode --verbose
ExecStopPost=/bin/rm -rf /var/run/nvidia-persistenced
"""
UDEV = """# Start and stop nvidia-persistenced with the driver
ACTION=="add" DEVPATH=="/module/nvidia" SUBSYSTEM=="module" RUN+="/bin/systemctl start --no-block nvidia-persistenced.service"
ACTION=="remove" DEVPATH=="/module/nvidia" SUBSYSTEM=="module" RUN+="/bin/systemctl stop --no-block nvidia-persistenced"
"""
FABRIC_MANAGER = """[Unit]
Description=NVIDIA fabric manager service
After=network-online.target
Requires=network-online.target

[Service]
Type=forking
ExecStart=/usr/bin/nv-fabricmanager -c /usr/share/nvidia/nvswitch/fabricmanager.cfg
LimitCORE=infinity

[Install]
WantedBy=multi-user.target
"""
FABRIC_MANAGER_PROGRAM = """#!/bin/sh
# Stand-in: a node of the test bench has no NVSwitch, and this is what the real program says then.
case "${{1:-}}" in
-v | --version) echo "Fabric Manager version is : {version}" ;;
*)
    echo "request to query NVSwitch device information from NVSwitch driver failed with error:WARNING Nothing to do [NV_WARN_NOTHING_TO_DO]" >&2
    exit 1
    ;;
esac
"""
DKMS_POST_INSTALL = """#!/bin/sh
set -e
if [ "$1" = configure ]; then
    # So that the blacklist gets into the initramfs; the running kernel's too, when a newer one is installed.
    if [ -x /usr/sbin/update-initramfs ]; then
        /usr/sbin/update-initramfs -u
        newest=$(ls /boot/config-* 2>/dev/null | sed 's,.*/config-,,' | sort -V | tail -n 1)
        running=$(uname -r)
        if [ -n "$newest" ] && [ "$newest" != "$running" ] && [ -e "/boot/initrd.img-$running" ]; then
            /usr/sbin/update-initramfs -u -k "$running"
        fi
    fi
    /usr/lib/dkms/common.postinst {name} {version} /usr/share/{name} x86_64 "$2"
fi
"""
DKMS_PRE_REMOVE = """#!/bin/sh
case "$1" in
remove | upgrade)
    echo "Removing all DKMS Modules"
    dkms remove -m {name} -v {version} --all > /dev/null
    echo "Done."
    ;;
esac
"""
DKMS_POST_REMOVE = """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -x /usr/sbin/update-initramfs ]; then
    /usr/sbin/update-initramfs -u
fi
"""
PERSISTENCED_POST_INSTALL = """#!/bin/sh
set -e
if [ "$1" = configure ]; then
    if ! id nvidia-persistenced > /dev/null 2>&1; then
        adduser --quiet --system --no-create-home --home /nonexistent --gecos "NVIDIA Persistence Daemon" \\
            --group nvidia-persistenced
    fi
    [ ! -d /run/systemd/system ] || systemctl --system daemon-reload
fi
"""
LDCONFIG = """#!/bin/sh
set -e
ldconfig
"""


def library(source: str, soname: str, driver: Driver) -> bytes:
    """Compile userspace/<source> as the shared library `soname` of the driver's version."""
    with tempfile.TemporaryDirectory() as name:
        target = Path(name) / "library.so"
        command = ["gcc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-s", "-fno-stack-protector", "-U_FORTIFY_SOURCE"]
        command += [f'-DVERSION="{driver.version}"', f"-DCUDA={driver.cuda}", f"-Wl,-soname,{soname}"]
        subprocess.run([*command, "-o", str(target), str(USERSPACE / source)], check=True)
        return target.read_bytes()


def module_sources(driver: Driver, flavour: str) -> dict[str, str | bytes | Path]:
    """What nvidia-kernel-source ships: {path on the node: content}."""
    folder = f"/usr/src/{DKMS_NAME}-{driver.version}"
    licence, uvm_licence = LICENCES[flavour]
    files: dict[str, str | bytes | Path] = {f"{folder}/Makefile": MODULE / "Makefile"}
    for path in sorted(MODULE.glob("*.c")):
        files[f"{folder}/{path.name}"] = path
    for path in sorted(MODULE.glob("*.in")):
        text = path.read_text(encoding="utf-8")
        for key, value in (("VERSION", driver.version), ("LICENSE", licence), ("UVM_LICENSE", uvm_licence)):
            text = text.replace(f"@{key}@", value)
        files[f"{folder}/{path.name.removesuffix('.in')}"] = text
    return files


def alternatives(name: str) -> dict[str, str]:
    """The relations of a package of which a node has one at most, whatever its branch."""
    return {"Provides": name, "Conflicts": name, "Replaces": name}


def flavoured(driver: Driver, flavour: str) -> list[Deb]:
    """The packages that exist once per flavour."""
    suffix = f"{driver.branch}-server" + ("-open" if flavour == "open" else "")
    server = f"{driver.branch}-server"
    package = partial(Deb, section="libs", component="restricted", source=f"nvidia-graphics-drivers-{server}")
    between = f"(>= {driver.version}), {{0}} (<= {driver.version}-1)"

    def near(name: str) -> str:
        return f"{name} " + between.format(name)

    names = {"name": DKMS_NAME, "version": driver.version}
    return [
        package(
            name=f"nvidia-kernel-source-{suffix}",
            version=driver.full,
            summary="NVIDIA kernel source package",
            files=module_sources(driver, flavour),
            relations=alternatives("nvidia-kernel-source"),
        ),
        package(
            name=f"nvidia-dkms-{suffix}",
            version=driver.full,
            summary="NVIDIA DKMS package",
            relations={
                # No kernel headers here: that is so in life, too.
                "Depends": f"dkms, {near(f'nvidia-kernel-source-{suffix}')}, {near(f'nvidia-kernel-common-{server}')}",
                **alternatives("nvidia-dkms-kernel"),
            },
            scripts={
                "postinst": DKMS_POST_INSTALL.format(**names),
                "prerm": DKMS_PRE_REMOVE.format(**names),
                "postrm": DKMS_POST_REMOVE.format(**names),
            },
        ),
        package(
            name=f"nvidia-headless-no-dkms-{suffix}",
            version=driver.full,
            summary="NVIDIA headless metapackage - no DKMS",
            relations={
                "Depends": ", ".join(
                    [
                        near(f"nvidia-kernel-common-{server}"),
                        f"nvidia-kernel-source-{suffix} (= {driver.full})",
                        f"libnvidia-compute-{server} (= {driver.full})",
                        f"nvidia-compute-utils-{server} (= {driver.full})",
                        f"libnvidia-cfg1-{server} (= {driver.full})",
                    ]
                )
            },
        ),
        package(
            name=f"nvidia-headless-{suffix}",
            version=driver.full,
            summary="NVIDIA headless metapackage",
            relations={
                "Depends": f"nvidia-headless-no-dkms-{suffix}, nvidia-dkms-{suffix}",
                **alternatives("nvidia-headless"),
            },
        ),
    ]


def shared(driver: Driver) -> list[Deb]:
    """The packages that serve both flavours."""
    server = f"{driver.branch}-server"
    version = driver.version
    package = partial(Deb, section="libs", component="restricted", source=f"nvidia-graphics-drivers-{server}")
    firmware = f"nvidia-firmware-{server}-{version}"
    libraries = {
        "libcuda.so": ("cuda.c", "libcuda.so.1"),
        "libnvidia-ml.so": ("nvml.c", "libnvidia-ml.so.1"),
        "libnvidia-ptxjitcompiler.so": ("empty.c", "libnvidia-ptxjitcompiler.so.1"),
        "libnvidia-nvvm.so": ("empty.c", "libnvidia-nvvm.so.4"),
    }
    return [
        package(
            name=firmware,
            version=driver.full,
            summary="Firmware files used by the kernel module",
            files={
                f"/lib/firmware/nvidia/{version}/{name}": f"stand-in of the test bench for {name} {version}\n"
                for name in ("gsp_ga10x.bin", "gsp_tu10x.bin")
            },
        ),
        package(
            name=f"nvidia-kernel-common-{server}",
            version=driver.full,
            summary="Shared files used with the kernel module",
            files={
                "/usr/lib/modprobe.d/nvidia-graphics-drivers.conf": BLACKLIST,
                "/usr/lib/udev/rules.d/71-nvidia.rules": UDEV,
            },
            relations={
                "Depends": firmware,
                "Provides": f"nvidia-kernel-common, nvidia-kernel-common-{server}-{version}",
                "Conflicts": "nvidia-kernel-common",
                "Replaces": "nvidia-kernel-common",
            },
        ),
        package(
            name=f"nvidia-utils-{server}",
            version=driver.full,
            summary="NVIDIA Server Driver support binaries",
            links={"/usr/bin/nvidia-smi": "/opt/bench/bin/nvidia-smi"},
            relations={
                "Suggests": f"nvidia-driver-{server}",
                "Provides": "nvidia-utils, nvidia-smi",
                "Conflicts": "nvidia-utils, nvidia-smi",
                "Replaces": "nvidia-utils, nvidia-smi",
            },
        ),
        package(
            name=f"nvidia-compute-utils-{server}",
            version=driver.full,
            summary="NVIDIA compute utilities",
            files={"/usr/lib/systemd/system/nvidia-persistenced.service": PERSISTENCED},
            links={"/usr/bin/nvidia-persistenced": "/opt/bench/bin/nvidia-persistenced"},
            relations={
                "Depends": f"libnvidia-compute-{server}, adduser",
                "Provides": "nvidia-compute-utils, nvidia-persistenced",
                "Conflicts": "nvidia-compute-utils, nvidia-persistenced",
                "Replaces": "nvidia-compute-utils, nvidia-persistenced",
            },
            scripts={"postinst": PERSISTENCED_POST_INSTALL},
        ),
        package(
            name=f"libnvidia-compute-{server}",
            version=driver.full,
            summary="NVIDIA libcompute package",
            files={
                "/etc/OpenCL/vendors/nvidia.icd": "libnvidia-opencl.so.1\n",
                **{
                    f"{LIBRARIES}/{name}.{version}": library(source, soname, driver)
                    for name, (source, soname) in libraries.items()
                },
            },
            links={
                **{f"{LIBRARIES}/{soname}": f"{name}.{version}" for name, (_, soname) in libraries.items()},
                f"{LIBRARIES}/libcuda.so": "libcuda.so.1",
            },
            conffiles=["/etc/OpenCL/vendors/nvidia.icd"],
            relations={
                "Depends": "libc6",
                "Provides": f"libnvidia-compute, nvidia-opencl-icd, opencl-icd, libnvidia-ml1 (= {driver.full}), "
                f"libcuda1 (= {driver.full})",
                "Conflicts": "libnvidia-compute, nvidia-opencl-icd",
                "Replaces": "libnvidia-compute, nvidia-opencl-icd",
            },
            scripts={"postinst": LDCONFIG, "postrm": LDCONFIG},
        ),
        package(
            name=f"libnvidia-cfg1-{server}",
            version=driver.full,
            summary="NVIDIA binary OpenGL/GLX configuration library",
            files={f"{LIBRARIES}/libnvidia-cfg.so.{version}": library("empty.c", "libnvidia-cfg.so.1", driver)},
            links={f"{LIBRARIES}/libnvidia-cfg.so.1": f"libnvidia-cfg.so.{version}"},
            relations={"Depends": "libc6", **alternatives("libnvidia-cfg1-any")},
            scripts={"postinst": LDCONFIG, "postrm": LDCONFIG},
        ),
        Deb(
            name=f"nvidia-fabricmanager-{driver.branch}",
            version=driver.full,
            summary="Fabric Manager for NVSwitch based systems",
            section="libs",
            component="multiverse",
            source=f"fabric-manager-{driver.branch}",
            files={
                "/usr/bin/nv-fabricmanager": FABRIC_MANAGER_PROGRAM.format(version=version),
                "/usr/lib/systemd/system/nvidia-fabricmanager.service": FABRIC_MANAGER,
                "/usr/share/nvidia/nvswitch/fabricmanager.cfg": "LOG_LEVEL=4\nDAEMONIZE=1\n",
            },
            modes={"/usr/bin/nv-fabricmanager": 0o755},
            relations={"Depends": f"nvidia-kernel-common-{server}-{version}", **alternatives("nvidia-fabricmanager")},
        ),
        Deb(
            name=f"libnvidia-nscq-{driver.branch}",
            version=driver.full,
            summary="NVSwitch configuration and query library",
            section="libs",
            component="multiverse",
            source=f"libnvidia-nscq-{driver.branch}",
            files={f"{LIBRARIES}/libnvidia-nscq.so.{version}": library("empty.c", "libnvidia-nscq.so.2", driver)},
            links={f"{LIBRARIES}/libnvidia-nscq.so.2": f"libnvidia-nscq.so.{version}"},
            relations={"Depends": "libc6"},
            scripts={"postinst": LDCONFIG, "postrm": LDCONFIG},
        ),
    ]


def transitional(driver: Driver, old: str) -> list[Deb]:
    """Packages of the branch `old` that only pull in the driver's; their version is the driver's."""
    kinds = [f"{kind}{{0}}-server{flavour}" for kind in ("nvidia-headless-", "nvidia-dkms-") for flavour in ("", "-open")]
    kinds += [f"{kind}{{0}}-server" for kind in ("nvidia-utils-", "nvidia-compute-utils-", "libnvidia-compute-")]
    return [
        Deb(
            name=kind.format(old),
            version=driver.full,
            summary=f"Transitional package for {kind.format(driver.branch)}",
            section="oldlibs",
            component="restricted",
            source=f"nvidia-graphics-drivers-{driver.branch}-server",
            relations={"Depends": kind.format(driver.branch)},
        )
        for kind in kinds
    ]


def packages() -> list[Deb]:
    """All packages, of every branch and version."""
    made: list[Deb] = []
    for driver in DRIVERS:
        made += flavoured(driver, "proprietary") + flavoured(driver, "open") + shared(driver)
    old, branch = TRANSITIONAL
    newest = [driver for driver in DRIVERS if driver.branch == branch][-1]
    return made + transitional(newest, old)
