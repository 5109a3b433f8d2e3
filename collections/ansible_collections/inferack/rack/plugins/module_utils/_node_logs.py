# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Collect from a node what `_diagnose` reads: bounded in time, and in size per text. Nothing is changed.

Logs of what was mended long ago accuse falsely, so that only logs of this boot, of the last installation, and of builds that
did not end are read. Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ansible_collections.inferack.rack.plugins.module_utils import _container_gpu, _docker_socket, _run
from ansible_collections.inferack.rack.plugins.module_utils._cause import Text

#: What can be collected, in the order of the stack.
SOURCES = ("node", "kernel", "build", "packages", "smi", "services", "docker", "containers")

#: Units by source. Names of units that a node lacks do no harm to journalctl.
UNITS = {
    "services": ("nvidia-fabricmanager", "nvidia-persistenced", "nvidia-cdi-refresh"),
    "docker": ("docker", "containerd"),
}

#: Lines asked of the journal, and of a container's log.
JOURNAL_LINES, CONTAINER_LINES = 20_000, 2_000

#: Containers whose logs are read when none is named, those that do not run first.
MOST_CONTAINERS = 20

#: The longest that one tool may take, in seconds; a GPU that fell off the bus makes nvidia-smi hang.
LONGEST_CALL = 20.0

Runner = Callable[[Sequence[str], float], _run.Output]


@dataclass
class Collector:
    """A node to read. root: for tests; timeout: seconds for all; most: characters per text; since: for the journal."""

    root: Path = Path("/")
    run: Runner = _run.run
    docker_socket: str = _docker_socket.SOCKET
    timeout: float = 60.0
    most: int = 4 * 1024 * 1024
    since: str = ""
    containers: Sequence[str] = ()
    skipped: list[dict[str, str]] = field(default_factory=list)
    clock: Callable[[], float] = time.monotonic

    def __post_init__(self) -> None:
        self._end = self.clock() + self.timeout

    def left(self) -> float:
        """Seconds left."""
        return self._end - self.clock()

    def skip(self, name: str, why: str) -> None:
        """Note what could not be read."""
        self.skipped.append({"name": name, "why": why})

    def cut(self, text: str) -> str:
        """The end of a text, as much of it as is wanted."""
        return text if len(text) <= self.most else text[-self.most :]

    def tail(self, path: Path) -> str | None:
        """The end of a file; None when there is none."""
        try:
            with path.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                file.seek(max(0, size - self.most))
                return file.read(self.most).decode(errors="replace")
        except OSError as error:
            if not isinstance(error, FileNotFoundError):
                self.skip(str(path), str(error))
            return None

    def call(self, name: str, command: Sequence[str]) -> _run.Output | None:
        """Run a tool in the time that is left; None when none is left or the node lacks the tool."""
        limit = min(LONGEST_CALL, self.left())
        if limit <= 0:
            self.skip(name, f"no time left of {self.timeout:g} s")
            return None
        output = self.run(command, limit)
        if output.problem == "missing":
            self.skip(name, f"no {command[0]} on this node")
            return None
        if output.problem:
            self.skip(name, f"{command[0]}: {output.problem} after {output.seconds:g} s")
        return output


def _node(collector: Collector) -> Iterator[Text]:
    """What the node's files say about kernel and headers, and about CDI specifications and the loaded module."""
    root = collector.root
    said: list[str] = []
    release = os.uname().release if root == Path("/") else ""
    told = collector.tail(root / "proc/sys/kernel/osrelease")
    release = (told or release).strip()
    loaded = (root / "sys/module/nvidia").exists()
    if release and not loaded and any((root / "var/lib/dkms").glob("nvidia*")):
        headers = sorted(path.parent.name for path in (root / "lib/modules").glob("*/build") if path.exists())
        if release not in headers and headers:
            said.append(
                f"kernel headers of the running kernel {release} are missing; there are headers of {', '.join(headers)}"
            )
        elif release not in headers:
            said.append(f"Your kernel headers for kernel {release} cannot be found")
    version = (collector.tail(root / "sys/module/nvidia/version") or "").strip()
    # of two specifications of one name the one under /var/run counts
    specs = {path.name: path for folder in ("etc/cdi", "var/run/cdi") for path in sorted((root / folder).glob("*"))}
    for path in specs.values():
        text = collector.tail(path) or ""
        other = [found for found in _container_gpu.spec_versions([text]) if found != version]
        if version and other and "nvidia.com" in text:
            shown = f"/{path.relative_to(root)}"
            said.append(f"CDI specification {shown} is for driver {other[0]}, the loaded module is {version}")
    if said:
        yield Text("node", "\n".join(said))


def _kernel(collector: Collector) -> Iterator[Text]:
    since = ["--since", collector.since] if collector.since else ["-b"]
    output = collector.call("kernel", ["journalctl", "-k", *since, "--no-pager", "-q", "-n", str(JOURNAL_LINES)])
    if output is not None and output.ok and output.out.strip():
        yield Text("kernel log", collector.cut(output.out))
        return
    output = collector.call("kernel", ["dmesg"])
    if output is None:
        return
    if output.out.strip():
        yield Text("kernel log", collector.cut(output.out))
    elif not output.ok:
        collector.skip("kernel", (output.err or "dmesg said nothing").strip()[:200])


def _build(collector: Collector) -> Iterator[Text]:
    for path in sorted((collector.root / "var/lib/dkms").glob("nvidia*/*/build/make.log")):
        text = collector.tail(path)
        if text:
            yield Text(str(path), text)
    text = collector.tail(collector.root / "var/log/nvidia-installer.log")
    if text:
        yield Text("/var/log/nvidia-installer.log", text)


def _packages(collector: Collector) -> Iterator[Text]:
    text = collector.tail(collector.root / "var/log/apt/history.log")
    if text:
        yield Text("/var/log/apt/history.log", text)


def _smi(collector: Collector) -> Iterator[Text]:
    output = collector.call("nvidia-smi", ["nvidia-smi", "-q", "-x"])
    if output is not None and (output.out or output.err).strip():
        yield Text("nvidia-smi", collector.cut(f"{output.out}\n{output.err}" if output.err.strip() else output.out))


def _journal(name: str) -> Callable[[Collector], Iterator[Text]]:
    def collect(collector: Collector) -> Iterator[Text]:
        since = ["--since", collector.since] if collector.since else ["-b"]
        units = [part for unit in UNITS[name] for part in ("-u", unit)]
        output = collector.call(name, ["journalctl", *since, "--no-pager", "-q", "-n", str(JOURNAL_LINES // 4), *units])
        if output is not None and output.out.strip():
            yield Text(f"journal of {' and '.join(UNITS[name])}", collector.cut(output.out))

    return collect


def _containers(collector: Collector) -> Iterator[Text]:
    try:
        names = list(collector.containers) or _names(collector.docker_socket)
    except (_docker_socket.DockerError, ValueError) as error:
        collector.skip("containers", str(error))
        return
    for name in names:
        if collector.left() <= 0:
            collector.skip(f"container {name}", f"no time left of {collector.timeout:g} s")
            continue
        try:
            found = _docker_socket.container(collector.docker_socket, name)
            if found is None:
                collector.skip(f"container {name}", "no such container")
                continue
            log = _docker_socket.logs(collector.docker_socket, name, CONTAINER_LINES, before_s=60)
        except (_docker_socket.DockerError, ValueError) as error:
            collector.skip(f"container {name}", str(error))
            continue
        killed = "exit code 137, the kernel's log says whether for lack of memory" if found.exit_code == 137 else ""
        yield Text(f"container {name}", collector.cut("\n".join(part for part in (found.error, killed, log) if part)), name)


def _names(socket: str) -> list[str]:
    """Containers by name, those that do not run first, the youngest first among equals."""
    rows = json.loads(_docker_socket.call(socket, "GET", "/containers/json?all=1&limit=200"))
    rows.sort(key=lambda row: (row.get("State") == "running", -int(row.get("Created") or 0)))
    return [str((row.get("Names") or ["?"])[0]).lstrip("/") for row in rows[:MOST_CONTAINERS]]


_COLLECT: dict[str, Callable[[Collector], Iterator[Text]]] = {
    "node": _node,
    "kernel": _kernel,
    "build": _build,
    "packages": _packages,
    "smi": _smi,
    "services": _journal("services"),
    "docker": _journal("docker"),
    "containers": _containers,
}


def collect(collector: Collector, sources: Sequence[str] = SOURCES) -> list[Text]:
    """The texts of the sources, in the order of the stack; what could not be read is in `collector.skipped`."""
    return [text for name in SOURCES if name in sources for text in _COLLECT[name](collector)]
