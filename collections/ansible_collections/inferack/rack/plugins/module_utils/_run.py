# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Run a tool of the node, bounded in time, with its words kept apart from Python's exceptions.

A tool that hangs (nvidia-smi on a GPU that fell off the bus does) is killed with everything it started, and reported.
Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

#: Where administrators' tools live; a non-login SSH session of an ordinary user has not all of them in PATH.
SEARCH = ("/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin")

#: How long a killed process may take to go, in seconds. One in the kernel's D state never goes.
GRACE = 2.0


@dataclass(frozen=True)
class Output:
    """What a command did.

    rc: exit status, negative for a signal; None when it did not start or did not end by itself.
    out, err: its output as text, undecodable bytes replaced.
    seconds: how long it took.
    problem: why rc is None: `missing`, `timeout`, `stuck` (killed, but did not go), or the system's words.
    """

    rc: int | None
    out: str = ""
    err: str = ""
    seconds: float = 0.0
    problem: str = ""

    @property
    def ok(self) -> bool:
        """It ran and ended with 0."""
        return self.rc == 0


def search_path(environment: Mapping[str, str]) -> str:
    """The environment's PATH with the administrators' folders behind it."""
    folders = [folder for folder in environment.get("PATH", "").split(os.pathsep) if folder]
    return os.pathsep.join(dict.fromkeys([*folders, *SEARCH]))


def which(tool: str) -> str | None:
    """The tool's path, or None when the node lacks it."""
    return shutil.which(tool, path=search_path(os.environ))


def run(command: Sequence[str], timeout: float = 30.0, text: str | None = None) -> Output:
    """Run a command without a shell, in the C locale, for at most `timeout` seconds.

    command: program and arguments; the program is looked up in PATH and the administrators' folders.
    text: what it reads from standard input; nothing when None.
    Never raises for what the command does; `Output.problem` says why there is no exit status.
    """
    program = which(command[0])
    if program is None:
        return Output(None, problem="missing")
    environment = {**os.environ, "LC_ALL": "C", "LANGUAGE": "C", "PATH": search_path(os.environ)}
    start = time.monotonic()
    try:
        process = subprocess.Popen(
            [program, *command[1:]],
            stdin=subprocess.DEVNULL if text is None else subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=environment,
            start_new_session=True,  # so that what it starts can be ended with it
        )
    except OSError as error:
        return Output(None, problem=str(error))
    problem = ""
    try:
        out, err = process.communicate(None if text is None else text.encode(), timeout)
    except subprocess.TimeoutExpired:
        problem = "timeout"
        with contextlib.suppress(OSError):
            os.killpg(process.pid, signal.SIGKILL)
        try:
            out, err = process.communicate(timeout=GRACE)
        except subprocess.TimeoutExpired as late:
            problem = "stuck"
            out, err = late.output or b"", late.stderr or b""
    return Output(
        rc=None if problem else process.returncode,
        out=out.decode(errors="replace"),
        err=err.decode(errors="replace"),
        seconds=round(time.monotonic() - start, 3),
        problem=problem,
    )
