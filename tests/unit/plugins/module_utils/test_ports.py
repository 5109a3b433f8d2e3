"""Who holds a TCP port."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _ports
from ansible_collections.inferack.rack.plugins.module_utils._ports import Listener

TABLE = """\
  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 0100007F:1F40 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4711 1 0000000000000000 100 0 0 10 0
   1: 00000000:1F41 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 4712 1 0000000000000000 100 0 0 10 0
   2: 0100007F:1F42 0100007F:C350 01 00000000:00000000 00:00000000 00000000     0        0 4713 1 0000000000000000 20 4 30 10 -1
   3: nonsense
"""
TABLE6 = """\
  sl  local_address                         remote_address                        st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode
   0: 00000000000000000000000000000000:1F40 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 815 1 0 100 0 0 10 0
   1: 0000000000000000FFFF00000100007F:1F43 00000000000000000000000000000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 816 1 0 100 0 0 10 0
"""


def test_listeners() -> None:
    assert _ports.listeners(TABLE) == [Listener("127.0.0.1", 8000, "4711"), Listener("0.0.0.0", 8001, "4712")]
    assert _ports.listeners(TABLE6) == [Listener("::", 8000, "815"), Listener("127.0.0.1", 8003, "816")]
    assert _ports.listeners("") == []


@pytest.mark.parametrize(
    ("held", "address", "port", "blocked"),
    [
        ("127.0.0.1", "0.0.0.0", 8000, True),
        ("127.0.0.1", "127.0.0.1", 8000, True),
        ("127.0.0.1", "10.0.0.5", 8000, False),
        ("0.0.0.0", "10.0.0.5", 8000, True),
        ("::", "10.0.0.5", 8000, True),
        ("127.0.0.1", "0.0.0.0", 8001, False),
    ],
)
def test_conflicts(held: str, address: str, port: int, blocked: bool) -> None:
    assert _ports.conflicts(Listener(held, 8000, "1"), address, port) is blocked


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    (tmp_path / "net").mkdir()
    (tmp_path / "net/tcp").write_text(TABLE)
    fds = tmp_path / "812/fd"
    fds.mkdir(parents=True)
    (tmp_path / "812/comm").write_text("python3\n")
    os.symlink("socket:[4711]", fds / "3")
    os.symlink("/dev/null", fds / "0")
    (tmp_path / "813").mkdir()  # ended meanwhile
    return tmp_path


def test_taken(proc: Path) -> None:
    assert _ports.taken([8000, 8001, 8002], "0.0.0.0", "triton", {}, proc) == {
        8000: "python3 (pid 812)",
        8001: "a process that cannot be seen",
    }


def test_containers_are_named_and_ones_own_is_free(proc: Path) -> None:
    assert _ports.taken([8000, 8001], "0.0.0.0", "triton", {8000: "triton", 8001: "nim"}, proc) == {8001: "container nim"}


def test_a_real_socket() -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        holder = _ports.taken([port], "0.0.0.0", "x", {})[port]
        assert holder.endswith(f"(pid {os.getpid()})")
    assert _ports.taken([port], "0.0.0.0", "x", {}) == {}
