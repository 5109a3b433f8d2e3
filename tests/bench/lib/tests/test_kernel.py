"""The simulated kernel: how it reads initramfs images, what it shows of GPUs, what modprobe's words mean."""

from __future__ import annotations

import gzip
import lzma
import shutil
import subprocess

import pytest


def cpio(*entries: tuple[str, bytes]) -> bytes:
    """A cpio archive in the newc format; a content that begins with -> is a symbolic link."""
    data = b""
    for name, content in (*entries, ("TRAILER!!!", b"")):
        mode = 0o120777 if content.startswith(b"->") else 0o100644
        content = content[2:] if content.startswith(b"->") else content
        fields = [1, mode, 0, 0, 1, 0, len(content), 0, 0, 0, 0, len(name) + 1, 0]
        head = b"070701" + b"".join(b"%08x" % field for field in fields) + name.encode() + b"\0"
        data += head + b"\0" * (-len(head) % 4) + content + b"\0" * (-len(content) % 4)
    return data


MAIN = cpio(
    ("etc/modprobe.d/block.conf", b"blacklist nouveau\n"),
    ("usr/lib/modules/6.1.0/kernel/drivers/gpu/drm/nouveau/nouveau.ko", b"\x7fELF module"),
    ("conf/modules", b"ext4\n"),
)
EARLY = cpio(("kernel/x86/microcode/GenuineIntel.bin", b"\1" * 1021))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress], ids=["plain", "gzip", "xz"])
@pytest.mark.parametrize("early", [b"", EARLY, EARLY + b"\0" * 512], ids=["one part", "early part", "early part, padded"])
def test_image_is_read_whole(kernel, tmp_path, pack, early):
    image = tmp_path / "initrd.img"
    image.write_bytes(early + pack(MAIN))
    entries = kernel.read_image(image)
    assert entries["etc/modprobe.d/block.conf"] == b"blacklist nouveau\n"
    assert entries["conf/modules"] == b"ext4\n"
    assert entries["usr/lib/modules/6.1.0/kernel/drivers/gpu/drm/nouveau/nouveau.ko"] == b""
    assert ("kernel/x86/microcode/GenuineIntel.bin" in entries) == bool(early)


@pytest.mark.skipif(not shutil.which("zstd"), reason="zstd is not installed")
def test_image_packed_by_zstd(kernel, tmp_path):
    packed = subprocess.run(["zstd", "-c"], input=MAIN, capture_output=True, check=True).stdout
    image = tmp_path / "initrd.img"
    image.write_bytes(EARLY + packed)
    assert "etc/modprobe.d/block.conf" in kernel.read_image(image)


@pytest.mark.parametrize("target", [b"->/etc/alternatives/block", b"->../alternatives/block"], ids=["absolute", "relative"])
def test_links_in_the_image_lead_to_their_content(kernel, tmp_path, target):
    image = tmp_path / "initrd.img"
    image.write_bytes(
        cpio(
            ("etc/modprobe.d/block.conf", target),
            ("etc/alternatives/block", b"->/etc/nvidia/block.conf"),
            ("etc/nvidia/block.conf", b"blacklist nouveau\n"),
            ("etc/modprobe.d/dangling.conf", b"->/etc/nowhere"),
        )
    )
    entries = kernel.read_image(image)
    assert entries["etc/modprobe.d/block.conf"] == b"blacklist nouveau\n"
    assert entries["etc/modprobe.d/dangling.conf"] == b""


H100 = {"bus_id": "0000:07:00.0", "device_id": "2330", "subsystem_id": "16c1", "product": "NVIDIA H100 80GB HBM3"}


def test_modalias_is_the_kernels(kernel):
    assert kernel.modalias(H100) == "pci:v000010DEd00002330sv000010DEsd000016C1bc03sc02i00"


def test_config_space(kernel):
    space = kernel.config_space(H100)
    assert space[:4] == b"\xde\x10\x30\x23"
    assert space[9:12] == b"\x00\x02\x03"
    assert space[0x2C:0x30] == b"\xde\x10\xc1\x16"
    assert kernel.config_space({**H100, "state": "lost"}) == b"\xff" * 64


@pytest.mark.parametrize(
    ("words", "flags", "values", "rest"),
    [
        (["-va", "bridge", "br_netfilter"], {"-v", "-a"}, {}, ["bridge", "br_netfilter"]),
        (["--all", "--set-version=6.1.0", "--show-depends", "x"], {"-a", "-D"}, {"-S": "6.1.0"}, ["x"]),
        (["-S", "6.1.0", "-n", "x"], {"-n"}, {"-S": "6.1.0"}, ["x"]),
        (["nouveau", "modeset=0"], set(), {}, ["nouveau", "modeset=0"]),
        (["-rf", "nvidia"], {"-r", "-f"}, {}, ["nvidia"]),
    ],
)
def test_modprobe_command_line(kernel, words, flags, values, rest):
    assert kernel.parse(words) == (flags, values, rest)


def test_newest_kernel_is_by_number(kernel):
    names = ["6.1.0-9-amd64", "6.1.0-57-amd64", "6.1.0-10-amd64"]
    assert max(names, key=kernel.version_key) == "6.1.0-57-amd64"
