# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""What is inside an initramfs, read directly: lsinitramfs and lsinitrd take 5 seconds and more for the same answer.

An image is a row of cpio archives ("newc" format, Linux Documentation/driver-api/early-userspace/buffer-format.rst): first
uncompressed ones (microcode, firmware), zero padding between, then one that is compressed as a whole.

Runs on managed nodes: Python 3.9 and the standard library only; zstd and lz4 are read through the node's own tools, which
the kernel packages of distributions that use them bring along.
"""

from __future__ import annotations

import bz2
import contextlib
import io
import lzma
import posixpath
import re
import subprocess
import zlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import BinaryIO, Protocol

from ansible_collections.inferack.rack.plugins.module_utils import _run

NEWC = (b"070701", b"070702")
HEADER = 110
TRAILER = "TRAILER!!!"
BLOCK = 1 << 20

#: First bytes of a compressed archive and the tool that opens it; None: Python does.
MAGIC: tuple[tuple[bytes, str | None], ...] = (
    (b"\x1f\x8b", None),
    (b"\xfd7zXZ\x00", None),
    (b"\x5d\x00\x00", None),
    (b"BZh", None),
    (b"\x28\xb5\x2f\xfd", "zstd"),
    (b"\x02\x21\x4c\x18", "lz4"),
    (b"\x89LZO", "lzop"),
)

#: Files in these folders configure modprobe. Packages put links there that lead elsewhere in /etc, so that every small .conf
#: file in it is kept with its text until the links are followed.
MODPROBE = re.compile(r"^(?:etc|run|usr/lib|usr/local/lib|lib)/modprobe\.d/[^/]+$")
TARGET = re.compile(r"^etc/.+\.conf$")
KEEP_BYTES = 1 << 18


class UnreadableImageError(ValueError):
    """The image is not one this reader can open; the message says what was found."""


class Stream(Protocol):
    """Something to read bytes from."""

    def read(self, size: int = -1, /) -> bytes:
        """At most size bytes; fewer at the end."""


@dataclass
class Image:
    """What an image holds.

    names: every path in it, without leading slash.
    texts: text of each small configuration file, by path.
    links: where each link in a modprobe.d folder leads, as written.
    """

    names: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    links: dict[str, str] = field(default_factory=dict)

    @property
    def modprobe(self) -> dict[str, str]:
        """Text of each file in a modprobe.d folder by absolute path, links followed; a dangling link is left out."""
        found: dict[str, str] = {}
        for name in self.names:
            if not MODPROBE.match(name):
                continue
            target = name
            for _hop in range(8):
                if target not in self.links:
                    break
                target = posixpath.normpath(posixpath.join("/" + posixpath.dirname(target), self.links[target])).lstrip("/")
            if target in self.texts:
                found["/" + name] = self.texts[target]
        return found

    @property
    def has_nouveau(self) -> bool:
        """The module nouveau is in the image, compressed or not."""
        return any(re.search(r"/nouveau\.ko(\.\w+)?$", name) for name in self.names)


def _exactly(stream: Stream, size: int) -> bytes:
    """The next size bytes. Raises UnreadableImageError when the stream ends before."""
    parts: list[bytes] = []
    while size:
        part = stream.read(min(size, BLOCK))
        if not part:
            raise UnreadableImageError("the archive ends in the middle of an entry")
        parts.append(part)
        size -= len(part)
    return b"".join(parts)


def _skip(stream: Stream, size: int) -> None:
    while size > 0:
        part = stream.read(min(size, BLOCK))
        if not part:
            raise UnreadableImageError("the archive ends in the middle of an entry")
        size -= len(part)


def _after_padding(stream: Stream) -> bytes:
    """The first byte after zeros; empty at the end of the stream."""
    while True:
        byte = stream.read(1)
        if byte != b"\0":
            return byte


def read_archive(stream: Stream, image: Image, first: bytes = b"") -> int:
    """Read one newc archive up to and with its trailer into image; returns the bytes read.

    first: bytes of the header that were read already. Raises UnreadableImageError for anything but newc.
    """
    done = 0
    while True:
        header = first + _exactly(stream, HEADER - len(first))
        first = b""
        if header[:6] not in NEWC:
            raise UnreadableImageError(f"expected a cpio entry, found {header[:6]!r}")
        try:
            mode, size, name_size = (int(header[at : at + 8], 16) for at in (14, 54, 94))
        except ValueError:
            raise UnreadableImageError("a cpio header holds something that is no number") from None
        if not 0 < name_size <= 4096:
            raise UnreadableImageError(f"a name of {name_size} bytes")
        name = _exactly(stream, name_size)[:-1].decode(errors="replace")
        _skip(stream, -(HEADER + name_size) % 4)
        done += HEADER + name_size + (-(HEADER + name_size) % 4)
        if name == TRAILER:
            return done
        name = re.sub(r"^(?:\./|/)+", "", name)
        image.names.append(name)
        kind = mode & 0o170000
        if size <= KEEP_BYTES and kind == 0o100000 and (MODPROBE.match(name) or TARGET.match(name)):
            image.texts[name] = _exactly(stream, size).decode(errors="replace")
        elif size <= KEEP_BYTES and kind == 0o120000 and (MODPROBE.match(name) or TARGET.match(name)):
            image.links[name] = _exactly(stream, size).decode(errors="replace")
        else:
            _skip(stream, size)
        _skip(stream, -size % 4)
        done += size + (-size % 4)


class _Zlib(io.RawIOBase):
    """gzip without the length and checksum at its end, which a padded image has in another place."""

    def __init__(self, source: BinaryIO) -> None:
        super().__init__()
        self._source = source
        self._engine = zlib.decompressobj(wbits=31)
        self._buffer = b""

    def read(self, size: int = -1, /) -> bytes:
        """At most size bytes of what was compressed."""
        while not self._buffer and not self._engine.eof:
            block = self._engine.unconsumed_tail or self._source.read(1 << 16)
            if not block:
                break
            self._buffer = self._engine.decompress(block, BLOCK)
        part, self._buffer = self._buffer[:size], self._buffer[size:]
        return part


@contextlib.contextmanager
def _opened(source: BinaryIO, magic: bytes) -> Iterator[Stream]:
    """The decompressed stream of what starts at the source's position."""
    tool = next((tool for start, tool in MAGIC if magic.startswith(start)), "")
    if tool == "":
        raise UnreadableImageError(f"no compression known that starts with {magic!r}")
    if tool is None:
        if magic.startswith(b"\x1f\x8b"):
            yield _Zlib(source)
        elif magic.startswith(b"BZh"):
            with bz2.BZ2File(source) as archive:
                yield archive
        else:
            with lzma.LZMAFile(source) as opened:
                yield opened
        return
    program = _run.which(tool)
    if program is None:
        raise UnreadableImageError(f"it is compressed with {tool}, which is not installed")
    process = subprocess.Popen([program, "-dc"], stdin=source, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        if process.stdout is None:
            raise UnreadableImageError(f"{tool} gave no output")
        yield process.stdout
    finally:
        process.kill()
        if process.stdout is not None:
            process.stdout.close()
        process.wait()


def read_image(path: str) -> Image:
    """Read the image in a file.

    Raises UnreadableImageError when it is none or its compression is unknown, OSError when the file cannot be read.
    """
    image = Image()
    with open(path, "rb", buffering=0) as raw:
        source = io.BufferedReader(raw, BLOCK)
        position = 0
        while True:
            source.seek(position)
            block = source.read(4096)
            if not block:
                break
            rest = block.lstrip(b"\0")
            position += len(block) - len(rest)
            if not rest:
                continue
            source.seek(position)
            magic = source.read(6)
            if magic in NEWC:
                position += read_archive(source, image, magic)
                continue
            # A tool gets the file itself, so the position must be the descriptor's own.
            raw.seek(position)
            with _opened(raw, magic) as stream:
                try:
                    first = b""
                    while True:
                        read_archive(stream, image, first)
                        first = _after_padding(stream)
                        if not first:
                            break
                except (zlib.error, lzma.LZMAError, OSError, EOFError) as error:
                    raise UnreadableImageError(f"the compressed part is damaged: {error}") from error
            break
    if not image.names:
        raise UnreadableImageError("it holds no file")
    return image


def from_listing(text: str) -> Image:
    """The names in the output of `lsinitramfs` or `lsinitrd`; the texts of files are not in there.

    lsinitrd prints `ls -l` lines and a header of its own; of both, only the paths matter.
    """
    names: list[str] = []
    for line in text.splitlines():
        long = re.match(r"^[-dlcbps][-rwxsStT]{9}\s.*\s(\S+?)(?: -> .*)?$", line)
        if long:
            names.append(long.group(1))
        elif re.match(r"^[\w./+-][^\s:=]*$", line) and ("/" in line or line.isidentifier()):
            names.append(line)
    return Image(names=[re.sub(r"^(?:\./|/)+", "", name) for name in names])
