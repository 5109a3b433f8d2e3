"""The two system calls that Python has not: mount, and setns for Python before 3.12."""

from __future__ import annotations

import ctypes
import os

MS_RDONLY, MS_NOSUID, MS_NODEV, MS_NOEXEC, MS_REMOUNT, MS_BIND, MS_REC = 1, 2, 4, 8, 32, 4096, 16384
CLONE_NEWNS = 0x20000
_libc = ctypes.CDLL(None, use_errno=True)


def _check(result: int, what: str) -> None:
    if result:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number).lower()}")


def mount(source: str, target: str, kind: str | None, flags: int, data: str = "") -> None:
    """mount(2). Raises OSError naming the target."""
    words = [value.encode() if value else None for value in (source, target, kind, data)]
    _check(_libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]), target)


def bind(source: str, target: str, flags: int) -> None:
    """Bind `source` over `target` (which exists), then restrict it by `flags`."""
    mount(source, target, None, MS_BIND | MS_REC)
    mount("", target, None, MS_BIND | MS_REMOUNT | flags)


def enter_mounts(pid: int) -> None:
    """Enter the mount namespace of the process `pid`; nothing to do when it is ours."""
    path = f"/proc/{pid}/ns/mnt"
    if os.path.realpath(path) == os.path.realpath("/proc/self/ns/mnt"):
        return
    with open(path, "rb") as file:
        _check(_libc.setns(file.fileno(), CLONE_NEWNS), path)
