"""Running commands, as root where that is needed, and saying what is being done."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache


class CommandFailed(Exception):
    """A command ended with another status than 0. The text names it and quotes the end of what it said."""


def say(text: str) -> None:
    """Print one progress line at once."""
    print(text, flush=True)


@contextmanager
def working(text: str, every_s: float = 20.0) -> Iterator[None]:
    """Say that `text` goes on every `every_s` seconds, and how long it took in the end."""
    start = time.monotonic()
    done = threading.Event()

    def tick() -> None:
        while not done.wait(every_s):
            say(f"    … {text}: {time.monotonic() - start:.0f} s so far")

    say(f"  {text}")
    thread = threading.Thread(target=tick, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    say(f"    {time.monotonic() - start:.1f} s")


def sudo() -> list[str]:
    """The prefix that makes a command run as root: empty for root."""
    return [] if os.geteuid() == 0 else ["sudo", "-n", "--preserve-env=DOCKER_HOST"]


def run(
    command: Sequence[str],
    *,
    stdin: str | None = None,
    check: bool = True,
    env: dict[str, str] | None = None,
    timeout_s: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run `command` and return its result with stdout and stderr as text.

    Raises CommandFailed when `check` is set and it ends with another status than 0.
    """
    result = subprocess.run(
        list(command),
        input=stdin,
        stdin=subprocess.DEVNULL if stdin is None else None,
        capture_output=True,
        text=True,
        errors="replace",
        env={**os.environ, **env} if env else None,
        timeout=timeout_s,
        check=False,
    )
    if check and result.returncode != 0:
        tail = "\n".join((result.stdout + result.stderr).strip().splitlines()[-25:])
        raise CommandFailed(f"{' '.join(command)[:300]} ended with {result.returncode}:\n{tail}")
    return result


@cache
def docker_prefix() -> tuple[str, ...]:
    """The docker command, through sudo where the engine's socket is not ours to use.

    Raises SystemExit when no engine answers.
    """
    binary = shutil.which("docker") or "docker"
    for prefix in ([], ["sudo", "-n"]):
        if prefix and not shutil.which("sudo"):
            continue
        try:
            answer = run([*prefix, binary, "version", "--format", "{{.Server.Version}}"], check=False)
        except FileNotFoundError:
            continue
        if answer.returncode == 0:
            return (*prefix, binary)
    raise SystemExit("no Docker Engine answers; run tests/bench/setup first")


def engine_answers() -> bool:
    """Whether there is a Docker Engine to talk to."""
    try:
        docker_prefix()
    except SystemExit:
        return False
    return True


def docker(*args: str, check: bool = True, stdin: str | None = None) -> str:
    """Run `docker args…` and return what it printed, stripped. Raises CommandFailed as `run` does."""
    return run([*docker_prefix(), *args], check=check, stdin=stdin).stdout.strip()


def docker_ok(*args: str) -> bool:
    """Whether `docker args…` succeeds."""
    return run([*docker_prefix(), *args], check=False).returncode == 0


def die(text: str) -> None:
    """End the command with `text` on stderr and status 1."""
    print(text, file=sys.stderr, flush=True)
    raise SystemExit(1)
