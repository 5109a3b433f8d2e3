# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Docker Engine's API over its socket: the few calls that verifying an engine needs.

The standard library only, so that a node needs no Python packages for it, and credentials travel in a header of one
request instead of through a file. Source: Docker Engine API 1.40 (Engine 18.09 serves 1.39; calls used here are older).
Runs on managed nodes: Python 3.9.
"""

from __future__ import annotations

import base64
import calendar
import http.client
import json
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlencode

SOCKET = "/var/run/docker.sock"

#: The option of every module that asks the engine, documented in the fragment `attributes.docker_socket`.
DOCKER_SOCKET = {"docker_socket": {"type": "path", "default": SOCKET}}


class DockerError(Exception):
    """The engine refused a call, or does not answer; `str()` has its words, `status` the HTTP status (0: no answer)."""

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class _UnixConnection(http.client.HTTPConnection):
    """HTTP over a Unix socket."""

    def __init__(self, path: str, timeout: float) -> None:
        super().__init__("localhost", timeout=timeout)
        self.path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(self.timeout)
        self.sock.connect(self.path)


@dataclass(frozen=True)
class Container:
    """What the engine says of a container.

    status: `created`, `running`, `restarting`, `exited`, …; exit_code: of its last end; restarts: since it was created;
    error: the engine's words when it could not start it; host_ports: what it publishes, as configured.
    """

    name: str
    status: str
    exit_code: int
    restarts: int
    error: str
    image: str
    host_ports: list[int] = field(default_factory=list)
    tty: bool = False


def _message(body: bytes) -> str:
    """The engine's words in an error body."""
    try:
        return str(json.loads(body)["message"]).strip()
    except (ValueError, KeyError, TypeError):
        return body.decode(errors="replace").strip()


def call(path: str, method: str, target: str, headers: Mapping[str, str] | None = None, timeout: float = 30.0) -> bytes:
    """One call; the body of a 2xx answer. Raises DockerError with the engine's words for anything else."""
    connection = _UnixConnection(path, timeout)
    try:
        connection.request(method, target, headers=dict(headers or {}))
        answer = connection.getresponse()
        body = answer.read()
    except (OSError, http.client.HTTPException) as error:
        raise DockerError(f"Docker Engine does not answer at {path}: {error}") from error
    finally:
        connection.close()
    if not 200 <= answer.status < 300:
        raise DockerError(_message(body), answer.status)
    return body


def stream(path: str, method: str, target: str, headers: Mapping[str, str], timeout: float) -> Iterator[dict[str, Any]]:
    """A call that answers with one JSON object a line; raises DockerError as `call`, and when the stream breaks off.

    timeout: the longest silence, in seconds.
    """
    connection = _UnixConnection(path, timeout)
    try:
        connection.request(method, target, headers=dict(headers))
        answer = connection.getresponse()
        if not 200 <= answer.status < 300:
            raise DockerError(_message(answer.read()), answer.status)
        for line in answer:
            if line.strip():
                yield json.loads(line)
    except (OSError, http.client.HTTPException) as error:
        raise DockerError(f"Docker Engine broke off at {path}: {error}") from error
    finally:
        connection.close()


def ping(path: str) -> str | None:
    """None when the engine answers, else why not."""
    try:
        call(path, "GET", "/_ping", timeout=10)
    except DockerError as error:
        return str(error)
    return None


def _ports(settings: Mapping[str, Any]) -> list[int]:
    """The host ports in a HostConfig's PortBindings, sorted."""
    bindings = (settings.get("PortBindings") or {}).values()
    return sorted({int(row["HostPort"]) for rows in bindings for row in rows or [] if row.get("HostPort")})


def container(path: str, name: str) -> Container | None:
    """The container of that name, or None when there is none. Raises DockerError."""
    try:
        found = json.loads(call(path, "GET", f"/containers/{quote(name)}/json"))
    except DockerError as error:
        if error.status == 404:
            return None
        raise
    state, config = found.get("State") or {}, found.get("Config") or {}
    return Container(
        name=name,
        status=str(state.get("Status", "")),
        exit_code=int(state.get("ExitCode") or 0),
        restarts=int(found.get("RestartCount") or 0),
        error=str(state.get("Error") or ""),
        image=str(config.get("Image") or ""),
        host_ports=_ports(found.get("HostConfig") or {}),
        tty=bool(config.get("Tty")),
    )


def publishers(path: str) -> dict[int, str]:
    """Which running container publishes which TCP port of the host."""
    found: dict[int, str] = {}
    for row in json.loads(call(path, "GET", "/containers/json")):
        for port in row.get("Ports") or []:
            if port.get("PublicPort") and port.get("Type", "tcp") == "tcp":
                found[int(port["PublicPort"])] = str((row.get("Names") or ["?"])[0]).lstrip("/")
    return found


def demultiplex(raw: bytes) -> str:
    """The text in a log stream whose pieces carry 8-byte headers; a raw one (a container with a terminal) as it is."""
    pieces, position = [], 0
    while position + 8 <= len(raw):
        kind, size = raw[position], struct.unpack(">I", raw[position + 4 : position + 8])[0]
        if kind > 2 or raw[position + 1 : position + 4] != b"\0\0\0":
            return raw.decode(errors="replace")
        pieces.append(raw[position + 8 : position + 8 + size])
        position += 8 + size
    return b"".join(pieces).decode(errors="replace")


def logs(path: str, name: str, lines: int = 2000, before_s: float = 0.0) -> str:
    """The last lines a container wrote since its last start, standard output and error together. Raises DockerError.

    before_s: seconds before that start to include, for a container that ends as soon as it starts.
    """
    started = json.loads(call(path, "GET", f"/containers/{quote(name)}/json")).get("State", {}).get("StartedAt", "")
    query = {"stdout": "1", "stderr": "1", "tail": str(lines)}
    if started and not started.startswith("0001"):
        query["since"] = _since(started, before_s)
    return demultiplex(call(path, "GET", f"/containers/{quote(name)}/logs?{urlencode(query)}"))


def _since(stamp: str, before_s: float) -> str:
    """An RFC 3339 stamp of the engine, less some seconds, as seconds since 1970: the form its `since` takes."""
    whole, _point, rest = stamp.partition(".")
    seconds = calendar.timegm(time.strptime(whole.rstrip("Z")[:19], "%Y-%m-%dT%H:%M:%S"))
    return f"{seconds - int(before_s)}.{rest.rstrip('Z')[:9].ljust(9, '0')}"


def has_image(path: str, image: str) -> bool:
    """Whether the engine holds the image. Raises DockerError."""
    try:
        call(path, "GET", f"/images/{quote(image, safe='/:@')}/json")
    except DockerError as error:
        if error.status == 404:
            return False
        raise
    return True


def split_image(image: str) -> tuple[str, str]:
    """A reference as (name, tag or digest); the tag is `latest` when none is given."""
    if "@" in image:
        name, _at, digest = image.partition("@")
        return name, digest
    name, colon, tag = image.rpartition(":")
    return (name, tag) if colon and "/" not in tag else (image, "latest")


def registry_of(image: str) -> str:
    """The registry's address in a reference: its first part when that has a dot or a port, else Docker's own."""
    first = image.split("/")[0]
    return first if "/" in image and ("." in first or ":" in first or first == "localhost") else "docker.io"


def pull(path: str, image: str, username: str = "", password: str = "", silence: float = 300.0) -> list[str]:
    """Pull an image with credentials that are stored nowhere; the engine's status lines. Raises DockerError.

    silence: the longest time without a word from the engine, in seconds.
    """
    name, tag = split_image(image)
    headers = {}
    if username or password:
        login = {"username": username, "password": password, "serveraddress": registry_of(image)}
        headers["X-Registry-Auth"] = base64.urlsafe_b64encode(json.dumps(login).encode()).decode()
    said: list[str] = []
    for event in stream(path, "POST", f"/images/create?{urlencode({'fromImage': name, 'tag': tag})}", headers, silence):
        if event.get("error"):
            raise DockerError(str(event["error"]).strip(), 200)
        if event.get("status") and not event.get("progressDetail") and not event.get("id"):
            said.append(str(event["status"]))
    return said
