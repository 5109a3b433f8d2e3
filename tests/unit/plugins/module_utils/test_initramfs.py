"""Initramfs images in every form that the two tools write, built here byte by byte."""

from __future__ import annotations

import bz2
import gzip
import lzma
import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _initramfs

FILE, FOLDER, LINK = 0o100644, 0o040755, 0o120777


def entry(name: str, data: bytes = b"", mode: int = FILE) -> bytes:
    raw = name.encode() + b"\0"
    fields = [1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(raw), 0]
    head = b"070701" + b"".join(b"%08X" % value for value in fields) + raw
    head += b"\0" * (-len(head) % 4)
    return head + data + b"\0" * (-len(data) % 4)


def archive(*entries: bytes) -> bytes:
    return b"".join(entries) + entry(_initramfs.TRAILER)


EARLY = archive(entry("kernel/x86/microcode/GenuineIntel.bin", b"m" * 5001)) + b"\0" * 512
MAIN = archive(
    entry("usr", mode=FOLDER),
    entry("usr/lib/modules/6.1/kernel/drivers/gpu/drm/nouveau/nouveau.ko", b"k" * 70_001),
    entry("./etc/modprobe.d/blacklist-nouveau.conf", b"blacklist nouveau\n"),
    entry("etc/modprobe.d/nvidia.conf", b"/etc/nvidia/nvidia.conf", LINK),
    entry("etc/nvidia/nvidia.conf", b"options nvidia NVreg_X=1\n"),
    entry("etc/modprobe.d/dangling.conf", b"../gone.conf", LINK),
    entry("usr/lib/modprobe.d/systemd.conf", b"options bonding max_bonds=0\n"),
)
MODPROBE = {
    "/etc/modprobe.d/blacklist-nouveau.conf": "blacklist nouveau\n",
    "/etc/modprobe.d/nvidia.conf": "options nvidia NVreg_X=1\n",
    "/usr/lib/modprobe.d/systemd.conf": "options bonding max_bonds=0\n",
}


def tool(name: str, data: bytes) -> bytes:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed here")
    extra = ["-l"] if name == "lz4" else []  # the kernel reads lz4's legacy frames
    return subprocess.run([name, "-c", *extra], input=data, stdout=subprocess.PIPE, check=True, timeout=60).stdout


FORMS = {
    "plain": lambda: MAIN,
    "gzip": lambda: gzip.compress(MAIN),
    "gzip, padded": lambda: gzip.compress(MAIN) + b"\0" * 300,
    "xz": lambda: lzma.compress(MAIN, check=lzma.CHECK_CRC32),
    "lzma": lambda: lzma.compress(MAIN, lzma.FORMAT_ALONE),
    "bzip2": lambda: bz2.compress(MAIN),
    "zstd": lambda: tool("zstd", MAIN),
    "lz4": lambda: tool("lz4", MAIN),
    "early": lambda: EARLY + gzip.compress(MAIN),
    "early twice": lambda: EARLY + EARLY + lzma.compress(MAIN),
    "two archives in one": lambda: gzip.compress(archive(entry("init", b"#!/bin/sh\n")) + b"\0" * 64 + MAIN),
    "zeros in front": lambda: b"\0" * 4096 + EARLY + gzip.compress(MAIN),
}


@pytest.mark.parametrize("form", FORMS)
def test_every_form_is_read(form: str, tmp_path: Path) -> None:
    path = tmp_path / "initrd.img"
    path.write_bytes(FORMS[form]())
    image = _initramfs.read_image(str(path))
    assert image.has_nouveau
    assert image.modprobe == MODPROBE


@pytest.mark.parametrize("name", ["nouveau.ko", "nouveau.ko.xz", "nouveau.ko.zst", "nouveau.ko.gz"])
def test_a_compressed_module_counts(name: str, tmp_path: Path) -> None:
    path = tmp_path / "initrd.img"
    path.write_bytes(archive(entry(f"lib/modules/6.8/kernel/{name}")))
    assert _initramfs.read_image(str(path)).has_nouveau


@pytest.mark.parametrize("name", ["lib/firmware/nouveau.koala", "usr/share/nouveau.ko.txt/readme", "nouveau"])
def test_other_names_do_not(name: str, tmp_path: Path) -> None:
    path = tmp_path / "initrd.img"
    path.write_bytes(archive(entry(name)))
    assert not _initramfs.read_image(str(path)).has_nouveau


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"", "no file"),
        (b"\0" * 5000, "no file"),
        (b"MZ this is a kernel", "no compression known"),
        (MAIN[:200], "ends in the middle"),
        (EARLY + gzip.compress(MAIN)[:60], "middle|damaged"),
        (gzip.compress(b"not an archive" * 20), "expected a cpio entry"),
        (b"070701" + b"Z" * 200, "no number"),
        (lzma.compress(MAIN)[:40] + b"\1" * 100, "damaged|middle"),
    ],
)
def test_what_is_no_image_is_refused(data: bytes, words: str, tmp_path: Path) -> None:
    path = tmp_path / "initrd.img"
    path.write_bytes(data)
    with pytest.raises(_initramfs.UnreadableImageError, match=words):
        _initramfs.read_image(str(path))


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=400), st.integers(0, len(MAIN)), st.binary(max_size=8))
def test_damage_is_refused_or_read_but_never_anything_else(tmp_path: Path, junk: bytes, at: int, patch: bytes) -> None:
    path = tmp_path / "initrd.img"
    for data in (junk, MAIN[:at] + patch + MAIN[at + len(patch) :]):
        path.write_bytes(data)
        try:
            image = _initramfs.read_image(str(path))
        except _initramfs.UnreadableImageError:
            continue
        assert image.names


LSINITRD = """Image: /boot/initramfs-6.6.0.img: 33M
========================================================================
Early CPIO image
========================================================================
drwxr-xr-x   3 root     root            0 Jan  1  2024 .
-rw-r--r--   1 root     root            2 Jan  1  2024 early_cpio
========================================================================
Version: dracut-059

Arguments: --force

dracut modules:
systemd
========================================================================
drwxr-xr-x  12 root     root            0 Jan  1  2024 .
lrwxrwxrwx   1 root     root            7 Jan  1  2024 bin -> usr/bin
-rw-r--r--   1 root     root           45 Jan  1  2024 etc/modprobe.d/blacklist.conf
-rw-r--r--   1 root     root      3145728 Jan  1  2024 usr/lib/modules/6.6.0/kernel/drivers/gpu/drm/nouveau/nouveau.ko.xz
========================================================================
"""


@pytest.mark.parametrize("listing", [LSINITRD, ".\netc/modprobe.d/blacklist.conf\nusr/lib/modules/6.1/nouveau.ko\n"])
def test_the_tools_listings(listing: str) -> None:
    image = _initramfs.from_listing(listing)
    assert image.has_nouveau
    assert "etc/modprobe.d/blacklist.conf" in image.names
