# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Wait for an engine, no longer than it makes sense, and say why it did not become ready.

Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace

from ansible_collections.inferack.rack.plugins.module_utils import _docker_socket, _endpoint
from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, Check
from ansible_collections.inferack.rack.plugins.module_utils._engine_log import first_error, suspects, tidy

#: A container that was restarted this often while we waited is not going to start.
RESTARTS = 2

#: How far back the run before the last start may lie, in seconds; Docker Engine waits up to a minute between two restarts.
RUN_BEFORE = 180.0

#: How many lines of a log go into a check's evidence.
EVIDENCE = 12


@dataclass(frozen=True)
class Watch:
    """The container an engine runs in."""

    name: str
    socket: str

    def state(self) -> _docker_socket.Container | None:
        """The container, or None when there is none or Docker Engine does not answer."""
        try:
            return _docker_socket.container(self.socket, self.name)
        except _docker_socket.DockerError:
            return None

    def log(self, restarts: int = 0) -> str:
        """What it wrote since its last start; empty when that cannot be read.

        One that was restarted and has not said what is wrong yet said it in the run before.
        """
        try:
            text = _docker_socket.logs(self.socket, self.name)
            if restarts and first_error(text) is None:
                text = _docker_socket.logs(self.socket, self.name, before_s=RUN_BEFORE)
            return text
        except _docker_socket.DockerError:
            return ""


def ended(now: _docker_socket.Container, restarts_before: int) -> bool:
    """Whether waiting for this container is in vain."""
    return now.status in ("exited", "dead") or now.restarts - restarts_before >= RESTARTS


def describe(container: _docker_socket.Container) -> str:
    """The container's state in a few words."""
    if container.status in ("exited", "dead", "restarting"):
        return f"container {container.name} ended with exit status {container.exit_code}" + (
            f" and was restarted {container.restarts} times" if container.restarts else ""
        )
    if container.restarts:
        return f"container {container.name} was restarted {container.restarts} times"
    if container.error:
        return f"container {container.name} could not be started: {container.error}"
    return f"container {container.name} is {container.status}"


def _is_unready(check: Check) -> bool:
    """A failed engine.ready."""
    return check.id == "engine.ready" and check.status == FAIL


def explain(checks: list[Check], container: _docker_socket.Container | None, log: str) -> list[Check]:
    """The checks with the cause from the container's log in front, and the log's telling lines as evidence."""
    if container is None:
        return checks
    found = first_error(log)
    said = [tidy(line) for line in log.splitlines() if line.strip()]
    lines = [tidy(line) for line in suspects(log)][:EVIDENCE] or said[-EVIDENCE:]
    if found is None:
        last = said[-1] if said else "it wrote nothing"
        cause = f"{describe(container)}; its last line: {last}"
        remedy = f"Read `docker logs {container.name}`, mend the cause and run again."
        if container.status == "running":
            remedy = f"Give it more time, or read `docker logs {container.name}` and mend the cause, and run again."
        return [
            replace(check, found=f"{check.found}; {cause}", remedy=remedy, evidence=[*check.evidence, *lines])
            if _is_unready(check)
            else check
            for check in checks
        ]
    checks = [
        replace(check, evidence=[*check.evidence, describe(container)]) if _is_unready(check) else check for check in checks
    ]
    subject = f"model {found.model}" if found.model else ""
    cause_check = _endpoint.fail(found.check, found.line, None, found.remedy, lines, subject)
    return [cause_check, *(c for c in checks if c.key != cause_check.key)]


def wait(
    target: _endpoint.Target, wait_s: float, interval_s: float, watch: Watch | None = None
) -> tuple[_endpoint.Result, float]:
    """Look until the engine is ready, cannot become ready, or `wait_s` is over; the last result and the seconds waited."""
    start = time.monotonic()
    container = watch.state() if watch else None
    restarts_before = container.restarts if container else 0
    while True:
        result = _endpoint.look(target)
        waited = time.monotonic() - start
        if result.state != _endpoint.STARTING or waited + interval_s > wait_s:
            break
        if watch and (container := watch.state()) and ended(container, restarts_before):
            result.state = _endpoint.BROKEN
            break
        time.sleep(interval_s)
    if watch and any(check.status == FAIL for check in result.checks):
        container = watch.state() or container
        if container and (ended(container, restarts_before) or container.status == "restarting"):
            result.state = _endpoint.BROKEN
        log = watch.log(container.restarts if container else 0)
        result.checks = explain(result.checks, container, log)
        if result.state == _endpoint.STARTING and result.checks[0].id != "engine.ready" and first_error(log):
            result.state = _endpoint.BROKEN
    return result, time.monotonic() - start
