"""Telling systemd how the service does: sd_notify(3), without its library."""

from __future__ import annotations

import asyncio
import os
import socket
from typing import Optional


def notify(state: str) -> None:
    """Send a state such as `READY=1`; nothing happens when systemd does not listen."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as notification:
            notification.connect(address)
            notification.sendall(state.encode())
    except OSError:
        return  # a lost notification ends in systemd's own time-out, which is the right judge


def watchdog_s() -> Optional[float]:
    """Seconds between two signs of life: half of what systemd allows; None when it does not watch."""
    usec, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID", "")
    if not usec.isdigit() or int(usec) == 0 or (pid and pid != str(os.getpid())):
        return None
    return int(usec) / 2_000_000


async def keep_alive(seconds: float) -> None:
    """Give signs of life from the event loop, so that a blocked loop is restarted."""
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(seconds)
