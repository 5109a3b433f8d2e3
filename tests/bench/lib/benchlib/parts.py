"""The bench's parts, what each needs, and building as many at once as the machine has cores."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from benchlib import paths
from benchlib.shell import CommandFailed, say

PARTS: Mapping[str, tuple[str, ...]] = {
    "kernel": (),
    "base": (),
    "openeuler": ("kernel", "base"),
    "ubuntu": ("kernel", "base"),
    "debian": ("kernel", "base"),
    "engines": ("base",),
    "services": ("base",),
    "toolkit": ("base",),
}
"""Part to the parts that must be there before it; those that take longest come first among equals."""


def build_part(name: str) -> int:
    """Run the part's `build`, each of its lines with the part's name before it; its exit status."""
    with subprocess.Popen(
        [str(paths.BENCH_DIR / name / "build")],
        env={**os.environ, "BENCH_STATE": str(paths.state()), "PYTHONUNBUFFERED": "1"},
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            say(f"  {name:<9} {line.strip()}")
    return process.returncode


def build_all(wanted: Collection[str], workers: int, build: Callable[[str], int] = build_part) -> None:
    """Build the parts in `wanted`, at most `workers` at once, none before what it needs.

    After a failure what is being built is finished, nothing is begun, and CommandFailed names the parts that failed.
    """
    waiting = [name for name in PARTS if name in wanted]
    total, finished, failed = len(waiting), 0, []
    running: dict[Future[int], tuple[str, float]] = {}
    with ThreadPoolExecutor(workers) as pool:
        while running or (waiting and not failed):
            unfinished = {*waiting, *(name for name, _start in running.values())}
            for name in list(waiting):
                if failed or len(running) >= workers or unfinished & set(PARTS[name]):
                    continue
                waiting.remove(name)
                say(f"  {name:<9} begins")
                running[pool.submit(build, name)] = (name, time.monotonic())
            done, _others = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                name, start = running.pop(future)
                status = future.result()
                if status:
                    failed.append(f"the part {name} failed with {status}; its words are above")
                else:
                    finished += 1
                    say(f"[{finished}/{total}] {name}: done in {time.monotonic() - start:.0f} s")
    if failed:
        raise CommandFailed("; ".join(failed))
