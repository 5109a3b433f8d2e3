"""A Docker Engine for tests: answers on a Unix socket what a table says."""

from __future__ import annotations

import http.server
import json
import socketserver
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_args: Any) -> None:
        pass

    def _answer(self) -> None:
        self.server.seen.append((self.command, self.path, dict(self.headers)))  # type: ignore[attr-defined]
        rows = self.server.table.items()  # type: ignore[attr-defined]
        missing = (404, {"message": f"no such object: {self.path}"})
        status, body = next(
            (reply for (method, start), reply in rows if method == self.command and self.path.startswith(start)), missing
        )
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    do_GET = do_POST = _answer


class _Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    daemon_threads = True

    def get_request(self) -> Any:
        request, _address = super().get_request()
        return request, ("unix", 0)


@contextmanager
def engine(folder: Path, table: dict[tuple[str, str], tuple[int, Any]]) -> Iterator[tuple[str, list[Any]]]:
    """The socket's path, and the list of calls seen: (method, path, headers)."""
    path = str(folder / "docker.sock")
    server = _Server(path, _Handler)
    server.table, server.seen = table, []  # type: ignore[attr-defined]
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield path, server.seen  # type: ignore[attr-defined]
    finally:
        server.shutdown()
        server.server_close()


def log_frames(*lines: str) -> bytes:
    """Lines as the engine's log stream carries them."""
    return b"".join(struct.pack(">BxxxI", 1, len(line) + 1) + line.encode() + b"\n" for line in lines)


def inspected(status: str = "running", exit_code: int = 0, restarts: int = 0, error: str = "") -> dict[str, Any]:
    """What the engine says of a container."""
    return {
        "RestartCount": restarts,
        "State": {"Status": status, "ExitCode": exit_code, "Error": error, "StartedAt": "2026-11-30T13:00:00.123456789Z"},
        "Config": {"Image": "r.test:5000/nvidia/tritonserver:1", "Tty": False},
        "HostConfig": {"PortBindings": {"8000/tcp": [{"HostIp": "0.0.0.0", "HostPort": "8000"}], "8001/tcp": None}},
    }


def lines(*events: dict[str, Any]) -> bytes:
    """Events as the engine streams them."""
    return b"".join(json.dumps(event).encode() + b"\r\n" for event in events)
