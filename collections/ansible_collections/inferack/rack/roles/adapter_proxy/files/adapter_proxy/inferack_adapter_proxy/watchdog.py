"""One timer per attempt, moved from phase to phase.

`asyncio.timeout` needs Python 3.11 and a timer object per chunk costs; here moving on is two assignments, and the one
event-loop timer looks when it fires whether it is still due.
"""

from __future__ import annotations

import asyncio
import sys
from types import TracebackType
from typing import Optional

from .faults import EngineFault


class Watchdog:
    """`with Watchdog(engine, total_at) as dog: dog.arm("ttft", 60.0)`: the block ends with an EngineFault when time is up.

    total_at: the end of the whole request in event-loop time, seconds; it holds in every phase.
    Cancelling from outside stays a cancellation.
    """

    def __init__(self, engine: str, total_at: float) -> None:
        self._engine = engine
        self._total_at = total_at
        self._loop = asyncio.get_running_loop()
        self._due = total_at
        self._phase = "total"
        self._seconds = max(0.0, total_at - self._loop.time())
        self._total_s = self._seconds
        self._task: Optional[asyncio.Task[object]] = None
        self._handle: Optional[asyncio.TimerHandle] = None
        self._fired = False
        self._cancelling = 0

    def arm(self, phase: str, seconds: float) -> None:
        """Give the phase that begins now this many seconds."""
        due = self._loop.time() + seconds
        if due < self._total_at:
            self._due, self._phase, self._seconds = due, phase, seconds
        else:
            self.rest()
        # Only an earlier end needs a new timer; for a later one the timer looks again.
        if self._handle is not None and self._due < self._handle.when():
            self._handle.cancel()
            self._handle = self._loop.call_at(self._due, self._look)

    def rest(self) -> None:
        """Only the total counts now: the proxy waits for the caller, not for the engine."""
        self._due, self._phase, self._seconds = self._total_at, "total", self._total_s

    def _look(self) -> None:
        if self._due > self._loop.time():
            self._handle = self._loop.call_at(self._due, self._look)
            return
        self._handle = None
        self._fired = True
        if self._task is not None:
            self._task.cancel()

    def __enter__(self) -> Watchdog:
        self._task = asyncio.current_task()
        if sys.version_info >= (3, 11) and self._task is not None:
            self._cancelling = self._task.cancelling()
        self._handle = self._loop.call_at(self._due, self._look)
        return self

    def __exit__(
        self, kind: Optional[type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]
    ) -> None:
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if not self._fired:
            return
        if sys.version_info >= (3, 11) and self._task is not None and self._task.uncancel() > self._cancelling:
            return
        if kind is asyncio.CancelledError:
            raise self.fault() from None

    def fault(self) -> EngineFault:
        """The time-out of the phase that is running."""
        said = {
            "ttft": f"no content within {self._seconds:g} s",
            "idle": f"silent for {self._seconds:g} s in the middle of a stream",
            "answer": f"no answer within {self._seconds:g} s",
        }.get(self._phase, "the request's total time is up")
        return EngineFault("timeout", self._engine, said, phase=self._phase)
