"""One configuration at work: engines, their health, and fail-over before the first content."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, Optional, TypeVar

from .config import Config, Loaded, adapter_module
from .engines.base import Answer, Ask, Engine, Usage
from .faults import EngineFault
from .metrics import Metrics
from .routing import Candidate, EngineState, Router
from .watchdog import Watchdog

T = TypeVar("T")
_log = logging.getLogger("inferack_adapter_proxy")


@dataclass
class Record:
    """What one request's log line and metrics say. Times in seconds; never a prompt, an answer or a key."""

    model: str = ""
    route: str = ""
    engine: str = ""
    stream: bool = False
    #: Status and headers of a stream have been sent.
    committed: bool = False
    attempts: int = 0
    timed_out: str = ""
    #: The error's code, empty when all went well.
    code: str = ""
    #: Set once the attempt that answers began, event-loop time.
    asked_at: float = 0.0
    first_content_s: Optional[float] = None
    engine_s: Optional[float] = None
    usage: Optional[Usage] = None
    faults: list[str] = field(default_factory=list)


def build_engine(config: Any, loaded: Loaded) -> Engine:
    """The adapter of one engine."""
    adapter = adapter_module(config.adapter).Adapter
    engine: Engine = adapter(config, loaded.config.timeouts_of(config), loaded.keys.get(config.name))
    return engine


class Service:
    """Engines and routes of one loaded configuration. `start` before use, `close` after."""

    def __init__(self, loaded: Loaded, metrics: Metrics) -> None:
        self.loaded = loaded
        self.config: Config = loaded.config
        self.metrics = metrics
        self.states = {
            config.name: EngineState(build_engine(config, loaded), self.config.timeouts_of(config), self.config.breaker)
            for config in self.config.engines
        }
        self.router = Router(self.config, self.states)
        self.in_flight = 0
        self._suspect = {name: asyncio.Event() for name in self.states}
        self._probes: list[asyncio.Task[None]] = []
        self._stopped = False

    def start(self) -> None:
        """Begin to look after the engines' health."""
        for state in self.states.values():
            self._probes.append(asyncio.create_task(self._look_after(state)))

    async def stop_probing(self) -> None:
        """Look no more after the engines' health; requests in progress go on."""
        # Before Python 3.12 `wait_for` loses a cancellation that comes while its awaitable ends; hence the flag.
        self._stopped = True
        for task in self._probes:
            task.cancel()
        await asyncio.gather(*self._probes, return_exceptions=True)
        self._probes.clear()

    async def close(self) -> None:
        """Stop probing and close connections."""
        await self.stop_probing()
        for state in self.states.values():
            await state.engine.close()

    async def complete(self, name: str, ask: Ask, record: Record) -> tuple[Candidate, Answer]:
        """A whole answer from the first engine that gives one. Raises ProxyFault."""

        async def once(candidate: Candidate, total_at: float) -> tuple[Candidate, Answer]:
            with Watchdog(candidate.state.name, total_at) as dog:
                dog.arm("answer", candidate.state.timeouts.answer_s)
                answer = await candidate.state.engine.complete(candidate.model, ask)
            record.usage = answer.usage
            return candidate, answer

        return await self.attempt(name, record, once)

    async def attempt(self, name: str, record: Record, once: Callable[[Candidate, float], Awaitable[T]]) -> T:
        """Try engine after engine, round after round, until `once` returns. Raises ProxyFault when none did.

        `once` raises EngineFault only while nothing has reached the caller.
        """
        loop = asyncio.get_running_loop()
        total_at = loop.time() + self.config.timeouts.total_s
        delays = iter(self.config.retries.delays_s)
        last: Optional[EngineFault] = None
        while True:
            again = False
            for candidate in self.router.order(name, loop.time()):
                if candidate.state.resting(loop.time()):
                    continue
                try:
                    return await self._one(candidate, total_at, record, once)
                except EngineFault as fault:
                    # An engine that cannot honour a field says less than one that failed.
                    last = fault if last is None or fault.kind != "unsupported" else last
                    if not fault.rule.next_engine or fault.phase == "total":
                        raise
                    again = again or fault.rule.again
            pause = self._pause(name, next(delays, None), again or last is None)
            if pause is None or loop.time() + pause >= total_at:
                raise self._last_word(name, last, loop.time())
            self.metrics.retries.labels(record.route).inc()
            await asyncio.sleep(pause)

    def _pause(self, name: str, delay: Optional[float], again: bool) -> Optional[float]:
        """Seconds until another round is worth it: the delay, or longer when every engine asked for that; None for never."""
        if delay is None or not again:
            return None
        now = asyncio.get_running_loop().time()
        states = [candidate.state for candidate in self.router.all_of(name)]
        # An open breaker is there so that nobody waits for that engine.
        waits = [state.busy_until - now for state in states if not (state.breaker_open and state.open_until > now)]
        if not waits or min(waits) > self.config.retries.longest_wait_s:
            return None
        return max(delay, min(waits) + 0.001)

    def _last_word(self, name: str, last: Optional[EngineFault], now: float) -> Exception:
        if last is None:
            return self.router.nobody(name, now)
        if last.kind == "busy" and last.retry_after is None:
            last.retry_after = 1.0
        return last

    async def _one(
        self, candidate: Candidate, total_at: float, record: Record, once: Callable[[Candidate, float], Awaitable[T]]
    ) -> T:
        state = candidate.state
        loop = asyncio.get_running_loop()
        record.attempts += 1
        record.engine = state.name
        record.asked_at = loop.time()
        with state.use(self.router.counter):
            try:
                result = await once(candidate, total_at)
                if not record.code:
                    state.succeeded(candidate.model, loop.time())
                return result
            except EngineFault as fault:
                self.note(candidate, fault, record)
                raise
            finally:
                record.engine_s = loop.time() - record.asked_at

    def note(self, candidate: Candidate, fault: EngineFault, record: Record) -> None:
        """Take note of a fault, also of one after the first content."""
        state = candidate.state
        state.failed(fault, asyncio.get_running_loop().time())
        if fault.suspect:
            self._suspect[state.name].set()
        if fault.phase:
            record.timed_out = fault.phase
        record.faults.append(f"{state.name}:{fault.kind}")
        self.metrics.engine_faults.labels(state.name, fault.kind).inc()

    async def _look_after(self, state: EngineState) -> None:
        """Probe one engine until stopped; at once when it became suspect."""
        health = self.config.health
        loop = asyncio.get_running_loop()
        suspect = self._suspect[state.name]
        canary_at = 0.0
        while not self._stopped:
            now = loop.time()
            models = state.engine.config.models
            long_ago = now - health.canary_interval_s
            fresh = all(state.last_success.get(model, long_ago) > long_ago for model in models)
            doubtful = suspect.is_set() or not all(state.ready(model) for model in models)
            canary = doubtful or (now >= canary_at and not fresh)
            suspect.clear()
            if canary:
                canary_at = now + health.canary_interval_s
            await self.probe(state, canary)
            try:
                await asyncio.wait_for(suspect.wait(), health.interval_s)
                await asyncio.sleep(min(0.2, health.interval_s))  # a burst of faults is one suspicion
            except asyncio.TimeoutError:
                pass

    async def probe(self, state: EngineState, canary: bool) -> None:
        """One look at an engine."""
        models = state.engine.config.models
        try:
            found = dict(await asyncio.wait_for(state.engine.ready(canary), self.config.health.timeout_s))
        except asyncio.TimeoutError:
            limit = self.config.health.timeout_s
            found = dict.fromkeys(models, f"engine {state.name}: did not answer the readiness check within {limit:g} s")
        except EngineFault as fault:
            found = dict.fromkeys(models, fault.message)
        except Exception:
            _log.exception("probing failed", extra={"fields": {"event": "probe_failed", "engine": state.name}})
            found = dict.fromkeys(models, f"engine {state.name}: the readiness check itself failed; see the proxy's log")
        for model, reason in found.items():
            if state.health.get(model) != reason:
                _log.log(
                    logging.WARNING if reason else logging.INFO,
                    reason or "ready",
                    extra={"fields": {"event": "engine_health", "engine": state.name, "model": model, "ready": not reason}},
                )
            state.health[model] = reason

    def readiness(self) -> tuple[bool, dict[str, Any]]:
        """Whether every route and model has an engine that is ready, and the body that says which has not."""
        report: dict[str, Any] = {}
        missing = []
        for name in self.router.names:
            engines = {
                f"{candidate.state.name}": candidate.state.health.get(candidate.model, "not looked at yet") or "ready"
                for candidate in self.router.all_of(name)
            }
            ready = "ready" in engines.values()
            if not ready:
                missing.append(name)
            report[name] = {"ready": ready, "engines": engines}
        return not missing, {
            "status": "not_ready" if missing else "ready",
            "not_ready": missing,
            "models": report,
            "engines": [self._engine_report(state) for state in self.states.values()],
        }

    def _engine_report(self, state: EngineState) -> dict[str, Any]:
        """An engine for people and for the role: ready when each of its models is."""
        config = state.engine.config
        reasons = {model: state.health.get(model, "not looked at yet") for model in config.models}
        return {
            "name": state.name,
            "adapter": config.adapter,
            "class": state.class_,
            "node": config.node,
            "models": config.models,
            "ready": not any(reasons.values()),
            "reason": "; ".join(sorted({reason for reason in reasons.values() if reason})),
        }
