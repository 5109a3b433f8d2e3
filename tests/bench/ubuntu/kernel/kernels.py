"""Ubuntu's kernel packages for the stand-in, made of Debian's headers under Ubuntu's release string.

Runs in the builder. `python3 -m ubuntu.kernel.kernels <cache> <output>` writes, for each release, linux-modules,
linux-image, linux-headers (common and generic), and the packages that name the newest release.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from pack.deb import Deb, build

HERE = Path(__file__).resolve().parent
FLAVOUR = "generic"
UPSTREAM = "6.8.0"
RUNNING = ("88", "89")
"""ABI number and upload of the kernel that the node runs."""

NEWEST = ("90", "91")
"""A newer one that waits in the repository: what linux-headers-generic brings does not fit the running kernel."""

NOT_NEEDED = ("include/dt-bindings", "include/trace", "tools/objtool/objtool.real-powerpc")
ARCHITECTURE = "arch/x86"

POST_INSTALL = """#!/bin/sh
set -e
if [ "$1" = configure ]; then
    depmod -a {release}
    if [ -d /etc/kernel/postinst.d ]; then
        DEB_MAINT_PARAMS="$*" run-parts --report --exit-on-error --arg={release} \\
            --arg=/boot/vmlinuz-{release} /etc/kernel/postinst.d
    fi
fi
"""
PRE_REMOVE = """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /etc/kernel/prerm.d ]; then
    DEB_MAINT_PARAMS="$*" run-parts --report --exit-on-error --arg={release} \\
        --arg=/boot/vmlinuz-{release} /etc/kernel/prerm.d
fi
"""
POST_REMOVE = """#!/bin/sh
set -e
if [ "$1" = remove ] && [ -d /etc/kernel/postrm.d ]; then
    DEB_MAINT_PARAMS="$*" run-parts --report --exit-on-error --arg={release} \\
        --arg=/boot/vmlinuz-{release} /etc/kernel/postrm.d
fi
"""
MODULES_POST_REMOVE = """#!/bin/sh
set -e
if [ "$1" = remove ]; then
    rm -f /lib/modules/{release}/modules.*
    rmdir --ignore-fail-on-non-empty /lib/modules/{release} 2> /dev/null || true
fi
"""
HEADERS_POST_INSTALL = """#!/bin/sh
set -e
if [ "$1" = configure ] && [ -d /etc/kernel/header_postinst.d ]; then
    DEB_MAINT_PARAMS="$*" run-parts --report --exit-on-error --arg={release} /etc/kernel/header_postinst.d
fi
"""


def fetch(cache: Path) -> dict[str, Path]:
    """Download Debian's newest headers into `cache`: {common, amd64, kbuild: path of the package}."""
    cache.mkdir(parents=True, exist_ok=True)
    subprocess.run(["apt-get", "update", "-qq"], check=True)
    shown = subprocess.run(["apt-cache", "depends", "linux-headers-amd64"], check=True, capture_output=True, text=True)
    amd64 = re.search(r"Depends: (linux-headers-\S+-amd64)$", shown.stdout, re.MULTILINE)
    if not amd64:
        raise SystemExit(f"linux-headers-amd64 names no headers package; apt says:\n{shown.stdout}")
    release = amd64[1].removeprefix("linux-headers-").removesuffix("-amd64")
    names = {
        "common": f"linux-headers-{release}-common",
        "amd64": amd64[1],
        "kbuild": f"linux-kbuild-{release}",
    }
    subprocess.run(["apt-get", "download", "-qq", "-o", "APT::Sandbox::User=root", *names.values()], check=True, cwd=cache)
    found = {}
    for kind, name in names.items():
        files = sorted(cache.glob(f"{name}_*.deb"), key=lambda path: path.stat().st_mtime)
        found[kind] = files[-1]
    return found


def header_trees(debs: dict[str, Path], abi: str, root: Path) -> str:
    """Lay out /usr/src/linux-headers-… (common and flavour) below `root`; the release string.

    The trees are Debian's with the release replaced in the places that decide a module's vermagic, and without other
    architectures.
    """
    release = f"{UPSTREAM}-{abi}-{FLAVOUR}"
    with tempfile.TemporaryDirectory(dir=root) as name:
        original = Path(name)
        for path in debs.values():
            subprocess.run(["dpkg-deb", "-x", str(path), str(original)], check=True)
        (common,) = original.glob("usr/src/linux-headers-*-common")
        (flavour,) = original.glob("usr/src/linux-headers-*-amd64")
        (kbuild,) = original.glob("usr/lib/linux-kbuild-*")
        old_release = (flavour / "include/config/kernel.release").read_text(encoding="utf-8").strip()

        for folder in (common / "arch").iterdir():
            if folder.is_dir() and folder.name != "x86":
                shutil.rmtree(folder)
        for folder in (common, flavour):
            (folder / "scripts").unlink()
            (folder / "tools").unlink()
        shutil.copytree(kbuild / "scripts", common / "scripts", symlinks=True)
        shutil.copytree(kbuild / "tools", common / "tools", symlinks=True)
        for unneeded in NOT_NEEDED:
            if (common / unneeded).is_dir():
                shutil.rmtree(common / unneeded)
            else:
                (common / unneeded).unlink()
        # 6 MB that serve BTF only, which a module built on a node does not get on Ubuntu either.
        (flavour / "vmlinux").unlink(missing_ok=True)

        new_common = f"linux-headers-{UPSTREAM}-{abi}"
        (flavour / "Makefile").write_text(f"include /usr/src/{new_common}/Makefile\n", encoding="utf-8")
        variables = flavour / ".kernelvariables"
        text = variables.read_text(encoding="utf-8").replace(old_release, release)
        variables.write_text(re.sub(r"gcc-\d+", "gcc", text), encoding="utf-8")
        for inside in ("include/config/kernel.release", "include/generated/utsrelease.h"):
            text = (flavour / inside).read_text(encoding="utf-8")
            if old_release not in text:
                raise SystemExit(f"{inside} of Debian's headers does not name {old_release}; it says: {text[:200]}")
            (flavour / inside).write_text(text.replace(old_release, release), encoding="utf-8")

        sources = root / "usr/src"
        sources.mkdir(parents=True, exist_ok=True)
        shutil.move(common, sources / new_common)
        shutil.move(flavour, sources / f"linux-headers-{release}")
    for folder in ("scripts", "tools"):
        (sources / f"linux-headers-{release}" / folder).symlink_to(f"../{new_common}/{folder}")
    return release


def nouveau(release: str, sources: Path) -> bytes:
    """nouveau.ko of the release, compiled against its headers, compressed as Ubuntu's modules are."""
    # The trees name each other by absolute paths, as on a node.
    for folder in sources.glob("linux-headers-*"):
        link = Path("/usr/src") / folder.name
        if not link.exists():
            link.symlink_to(folder)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        shutil.copy(HERE / "nouveau.c", work)
        (work / "Kbuild").write_text("obj-m := nouveau.o\n", encoding="utf-8")
        done = subprocess.run(
            ["make", "-C", f"/usr/src/linux-headers-{release}", f"M={work}", "modules"],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"nouveau.c does not compile for {release}:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
        vermagic = subprocess.run(
            ["modinfo", "-F", "vermagic", str(work / "nouveau.ko")], check=True, capture_output=True, text=True
        ).stdout.split()[0]
        if vermagic != release:
            raise SystemExit(f"nouveau.ko is for {vermagic}, expected {release}")
        subprocess.run(["strip", "--strip-debug", str(work / "nouveau.ko")], check=True)
        subprocess.run(["zstd", "-q", "-19", str(work / "nouveau.ko")], check=True)
        return (work / "nouveau.ko.zst").read_bytes()


def packages(release: str, abi: str, upload: str, sources: Path) -> list[Deb]:
    """The packages of one release."""
    version = f"{UPSTREAM}-{abi}.{upload}"
    flavour = sources / f"linux-headers-{release}"
    common = f"linux-headers-{UPSTREAM}-{abi}"
    config = (flavour / ".config").read_text(encoding="utf-8")
    modules = f"/usr/lib/modules/{release}"
    module = f"{modules}/kernel/drivers/gpu/drm/nouveau/nouveau.ko.zst"
    return [
        Deb(
            name=f"linux-modules-{release}",
            version=version,
            summary=f"Linux kernel modules for version {UPSTREAM} (stand-in: nouveau only)",
            section="kernel",
            source="linux",
            files={
                module: nouveau(release, sources),
                f"{modules}/modules.builtin": "",
                f"{modules}/modules.builtin.modinfo": b"",
                f"{modules}/modules.order": "kernel/drivers/gpu/drm/nouveau/nouveau.ko\n",
                f"/boot/config-{release}": config,
                f"/boot/System.map-{release}": "ffffffff81000000 T _text\n",
            },
            scripts={
                "postinst": f'#!/bin/sh\nset -e\n[ "$1" != configure ] || depmod -a {release}\n',
                "postrm": MODULES_POST_REMOVE.format(release=release),
            },
        ),
        Deb(
            name=f"linux-image-{release}",
            version=version,
            summary="Signed kernel image generic (stand-in: no kernel inside)",
            section="kernel",
            source="linux-signed",
            files={f"/boot/vmlinuz-{release}": f"Linux version {release} (stand-in of the test bench)\n"},
            relations={
                "Depends": f"kmod, linux-base, initramfs-tools | linux-initramfs-tool, linux-modules-{release}",
                "Recommends": "grub-pc | grub-efi-amd64",
                "Provides": "linux-image",
            },
            scripts={
                "postinst": POST_INSTALL.format(release=release),
                "prerm": PRE_REMOVE.format(release=release),
                "postrm": POST_REMOVE.format(release=release),
            },
        ),
        Deb(
            name=common,
            version=version,
            summary=f"Header files related to Linux kernel version {UPSTREAM}",
            section="devel",
            source="linux",
            architecture="all",
            files={f"/usr/src/{common}": sources / common},
        ),
        Deb(
            name=f"linux-headers-{release}",
            version=version,
            summary=f"Linux kernel headers for version {UPSTREAM} on 64 bit x86 SMP",
            section="devel",
            source="linux",
            files={f"/usr/src/linux-headers-{release}": flavour},
            links={f"{modules}/build": f"/usr/src/linux-headers-{release}"},
            relations={
                "Depends": f"{common} (= {version}), libc6, libelf1t64, libssl3t64, zlib1g",
                "Provides": "linux-headers",
            },
            scripts={"postinst": HEADERS_POST_INSTALL.format(release=release)},
        ),
    ]


def newest_packages(release: str, abi: str, upload: str) -> list[Deb]:
    """The packages that always name the newest release."""
    version = f"{UPSTREAM}-{abi}.{upload}"
    return [
        Deb(
            name=f"linux-{kind}-{FLAVOUR}",
            version=version,
            summary=f"Generic Linux kernel {kind}",
            section="kernel",
            source="linux-meta",
            relations={"Depends": f"linux-{kind}-{release}"},
        )
        for kind in ("headers", "image")
    ]


def main() -> None:
    """Fetch, make, and print the release that the node runs."""
    cache, output = Path(sys.argv[1]), Path(sys.argv[2])
    debs = fetch(cache)
    shutil.rmtree(output, ignore_errors=True)
    made: list[Deb] = []
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        root = Path(name)
        for abi, upload in (RUNNING, NEWEST):
            release = header_trees(debs, abi, root)
            made = packages(release, abi, upload, root / "usr/src")
            if (abi, upload) == NEWEST:
                made += newest_packages(release, abi, upload)
            else:
                print(release)
            for package in made:
                build(package, output)


if __name__ == "__main__":
    main()
