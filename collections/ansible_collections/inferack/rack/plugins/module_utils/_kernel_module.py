# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""What a kernel module's file says about itself: version, licence, vermagic, and whose signature it carries.

The same as modinfo says, without it: a node that only installs modules may have a kmod that cannot read their compression.
Runs on managed nodes: Python 3.9 and the standard library only; zstd is the node's own tool.
"""

from __future__ import annotations

import gzip
import lzma
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

#: What a file's name may end in, and the module's own name is what stands before.
SUFFIX = re.compile(r"\.ko(?:\.(?:gz|xz|zst))?$")

#: Marks a signed module; the structure in front of it is `struct module_signature` (Linux, include/linux/module_signature.h).
SIGNED = b"~Module signature appended~\n"

#: Object identifier 2.5.4.3, commonName, as DER writes it.
COMMON_NAME = bytes((0x06, 0x03, 0x55, 0x04, 0x03))

#: The longest time that zstd may take for one module, in seconds.
ZSTD_TIMEOUT = 120


class UnreadableModuleError(Exception):
    """A module's file cannot be read or unpacked; the text says why."""


@dataclass(frozen=True)
class Module:
    """A kernel module's own words.

    name: of the file, without its suffix. version, licence, vermagic: None where the module does not say.
    signer: common name in its signature; empty text for a signature without one, None for no signature.
    """

    name: str
    version: str | None
    licence: str | None
    vermagic: str | None
    signer: str | None

    @property
    def release(self) -> str | None:
        """The kernel release it was built for."""
        return self.vermagic.split()[0] if self.vermagic and self.vermagic.split() else None


def module_name(file: str) -> str:
    """`nvidia-uvm.ko.xz` → `nvidia-uvm`."""
    return SUFFIX.sub("", file)


def unpack(file: Path) -> bytes:
    """A module's bytes, uncompressed. Raises UnreadableModuleError."""
    try:
        data = file.read_bytes()
        if file.name.endswith(".gz"):
            return gzip.decompress(data)
        if file.name.endswith(".xz"):
            return lzma.decompress(data)
        if file.name.endswith(".zst"):
            return _zstd(data)
    except (OSError, EOFError, lzma.LZMAError) as error:
        raise UnreadableModuleError(f"{file.name}: {error}") from error
    return data


def _zstd(data: bytes) -> bytes:
    tool = shutil.which("zstd")
    if tool is None:
        raise OSError("zstd is not installed, and the module is compressed with it")
    try:
        done = subprocess.run([tool, "-dcq"], input=data, capture_output=True, timeout=ZSTD_TIMEOUT, check=False)
    except subprocess.TimeoutExpired as error:
        raise OSError(f"zstd did not end within {ZSTD_TIMEOUT} s") from error
    if done.returncode:
        raise OSError(done.stderr.decode(errors="replace").strip() or f"zstd ended with {done.returncode}")
    return done.stdout


def same_content(one: Path, other: Path) -> bool:
    """Whether two files hold the same module, however each is compressed; False when one cannot be read."""
    try:
        return unpack(one) == unpack(other)
    except UnreadableModuleError:
        return False


def read(file: Path) -> Module:
    """What a module says about itself. Raises UnreadableModuleError for a file that is none."""
    data = unpack(file)
    if not data.startswith(b"\x7fELF"):
        raise UnreadableModuleError(f"{file.name}: not a kernel module (no ELF header)")
    return Module(
        name=module_name(file.name),
        version=_tag(data, b"version"),
        licence=_tag(data, b"license"),
        vermagic=_tag(data, b"vermagic"),
        signer=signer(data),
    )


def _tag(data: bytes, key: bytes) -> str | None:
    """An entry of the section .modinfo, which is a row of `key=value` texts with NUL behind each."""
    match = re.search(rb"(?:^|\x00)" + key + rb"=([^\x00]*)\x00", data)
    return match.group(1).decode(errors="replace").strip() if match else None


def signer(data: bytes) -> str | None:
    """The common name in the signature at a module's end; None when it carries no signature.

    The signature is a PKCS#7 message in which the issuer's name stands before its serial number; the last common name is the
    issuer's, since no certificates are included (Linux, scripts/sign-file.c).
    """
    if not data.endswith(SIGNED):
        return None
    length = int.from_bytes(data[-len(SIGNED) - 4 : -len(SIGNED)], "big")
    end = len(data) - len(SIGNED) - 12
    message = data[max(0, end - length) : end]
    at = message.rfind(COMMON_NAME)
    if at < 0:
        return ""
    size = message[at + len(COMMON_NAME) + 1 : at + len(COMMON_NAME) + 2]
    start = at + len(COMMON_NAME) + 2
    return message[start : start + size[0]].decode(errors="replace") if size and size[0] < 0x80 else ""
