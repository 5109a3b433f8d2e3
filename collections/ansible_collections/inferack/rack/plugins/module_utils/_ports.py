# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Who listens on a TCP port, from /proc: the kernel's table of sockets, and the processes that hold them.

Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import struct
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

LISTEN = "0A"  # TCP_LISTEN in the kernel's include/net/tcp_states.h

_WILDCARDS = ("0.0.0.0", "::")  # noqa: S104 - read, not bound


@dataclass(frozen=True)
class Listener:
    """A listening socket: address, port, and the inode that /proc/<pid>/fd names it by."""

    address: str
    port: int
    inode: str


def address_of(text: str) -> str:
    """An address as /proc/net/tcp writes it (32-bit words in the machine's byte order), as people do."""
    words = [int(text[start : start + 8], 16) for start in range(0, len(text), 8)]
    packed = b"".join(struct.pack("=I", word) for word in words)
    address = ipaddress.ip_address(packed)
    mapped = getattr(address, "ipv4_mapped", None)
    return str(mapped or address)


def listeners(table: str) -> list[Listener]:
    """The listening sockets in the text of /proc/net/tcp or tcp6; lines that do not look like sockets are skipped."""
    found = []
    for line in table.splitlines()[1:]:
        columns = line.split()
        if len(columns) > 9 and columns[3] == LISTEN and ":" in columns[1]:
            address, _colon, port = columns[1].partition(":")
            found.append(Listener(address_of(address), int(port, 16), columns[9]))
    return found


def conflicts(listener: Listener, address: str, port: int) -> bool:
    """Whether a listener keeps us from listening on the port of the address."""
    return listener.port == port and (listener.address == address or address in _WILDCARDS or listener.address in _WILDCARDS)


def holders(inodes: Iterable[str], proc: Path = Path("/proc")) -> dict[str, str]:
    """`name (pid N)` of a process that holds each inode, where that can be seen."""
    wanted = {f"socket:[{inode}]": inode for inode in inodes}
    found: dict[str, str] = {}
    for folder in proc.glob("[0-9]*"):
        # A process may end, or close a file, while it is looked at; some are not ours to look into.
        with contextlib.suppress(OSError):
            for entry in list((folder / "fd").iterdir()):
                with contextlib.suppress(OSError):
                    inode = wanted.get(os.readlink(entry))
                    if inode:
                        found[inode] = f"{(folder / 'comm').read_text().strip()} (pid {folder.name})"
    return found


def read_listeners(proc: Path = Path("/proc")) -> list[Listener]:
    """All listening TCP sockets of this network namespace."""
    found = []
    for name in ("tcp", "tcp6"):
        try:
            found += listeners((proc / "net" / name).read_text())
        except OSError:
            continue  # IPv6 may be off
    return found


def taken(
    ports: Iterable[int], address: str, own: str, published: Mapping[int, str], proc: Path = Path("/proc")
) -> dict[int, str]:
    """The ports that someone else holds, and who.

    own: the container that may hold them; published: which container publishes which port.
    """
    found: dict[int, str] = {}
    blocking: dict[int, str] = {}
    listening = read_listeners(proc)
    for port in ports:
        if published.get(port) == own:
            continue
        if port in published:
            found[port] = f"container {published[port]}"
            continue
        for listener in listening:
            if conflicts(listener, address, port):
                blocking[port] = listener.inode
    names = holders(blocking.values(), proc) if blocking else {}
    found.update({port: names.get(inode, "a process that cannot be seen") for port, inode in blocking.items()})
    return dict(sorted(found.items()))
