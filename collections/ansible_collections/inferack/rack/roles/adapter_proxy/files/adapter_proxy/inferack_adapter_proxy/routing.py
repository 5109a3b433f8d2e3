"""Which engine answers: classes in the route's order, ready ones first, fewest requests in flight first."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Optional

from .config import Breaker, Config, Timeouts
from .engines.base import Engine
from .faults import CallerFault, EngineFault, ProxyFault

#: Order of classes for a model that stands in no route.
DEFAULT_CLASSES = ("latency", "throughput")


class EngineState:
    """An engine and what is known about it. Times are event-loop times, seconds."""

    def __init__(self, engine: Engine, timeouts: Timeouts, breaker: Breaker) -> None:
        self.engine = engine
        self.name = engine.name
        self.class_ = engine.config.class_
        self.timeouts = timeouts
        self._breaker = breaker
        self.in_flight = 0
        self.last_used = 0
        self.busy_until = 0.0
        self.failures = 0
        self.open_until = 0.0
        self.trial = False
        #: Model to the reason why it is not ready, empty when it is. A model that was never probed is missing.
        self.health: dict[str, str] = {}
        self.last_success: dict[str, float] = {}

    def ready(self, model: str) -> bool:
        """Whether the last look, or a caller's request since, found the model answering."""
        return self.health.get(model) == ""

    def resting(self, now: float) -> str:
        """Why the engine is not asked now; empty when it may be."""
        if self.busy_until > now:
            return f"asked for a pause of {math.ceil(self.busy_until - now)} s more"
        if self.breaker_open and (self.open_until > now or self.trial):
            return f"failed {self.failures} times in a row and rests"
        return ""

    @property
    def breaker_open(self) -> bool:
        """Whether the engine failed so often that only single trials are sent."""
        return self.failures >= self._breaker.failures

    @contextmanager
    def use(self, counter: Iterator[int]) -> Iterator[None]:
        """Count a request in flight; with an open breaker it is the trial."""
        trial = self.breaker_open
        self.in_flight += 1
        self.last_used = next(counter)
        self.trial = self.trial or trial
        try:
            yield
        finally:
            self.in_flight -= 1
            if trial:
                self.trial = False

    def succeeded(self, model: str, now: float) -> None:
        """A caller's request was answered: better proof than any probe."""
        self.failures = 0
        self.health[model] = ""
        self.last_success[model] = now

    def failed(self, fault: EngineFault, now: float) -> None:
        """Take note of a fault."""
        if fault.retry_after is not None and fault.kind == "busy":
            self.busy_until = max(self.busy_until, now + fault.retry_after)
        if fault.rule.dead:
            self.failures += 1
            if self.breaker_open:
                self.open_until = now + self._breaker.rest_s


@dataclass(frozen=True)
class Candidate:
    """One way to answer: this model on this engine."""

    state: EngineState
    model: str


class Router:
    """Names to candidates."""

    def __init__(self, config: Config, states: Mapping[str, EngineState]) -> None:
        self.counter = itertools.count(1)
        self.states = states
        #: Public name (a route or a model) to its ways, class by class.
        self._ways: dict[str, list[list[Candidate]]] = {}
        #: Public name to the route's name, empty for a model that stands in no route.
        self._route: dict[str, str] = {}
        self.models: list[str] = []
        for engine in config.engines:
            for model in engine.models:
                if model not in self.models:
                    self.models.append(model)
        for route in config.routes:
            self._ways[route.name] = self._classes(route.models, route.classes)
            self._route[route.name] = route.name
        for route in config.routes:
            for model in route.models:
                if model not in self._ways:
                    self._ways[model] = self._classes([model], route.classes)
                    self._route[model] = route.name
        for model in self.models:
            if model not in self._ways:
                self._ways[model] = self._classes([model], DEFAULT_CLASSES)
                self._route[model] = ""
        first = config.routes[0].name if config.routes else self.models[0]
        self.default = config.default_model or first

    def _classes(self, models: list[str], classes: object) -> list[list[Candidate]]:
        ways = []
        for class_ in classes if isinstance(classes, (list, tuple)) else ():
            # Within a class the route's first model comes before its second.
            for model in models:
                of_model = [
                    Candidate(state, model)
                    for state in self.states.values()
                    if state.class_ == class_ and model in state.engine.config.models
                ]
                if of_model:
                    ways.append(of_model)
        return ways

    @property
    def names(self) -> list[str]:
        """Everything a caller may write as `model`: routes, then models."""
        return list(self._ways)

    def resolve(self, name: Optional[str]) -> str:
        """The public name to use. Raises CallerFault 404 for an unknown one, naming the known."""
        if name is None or name == "":
            return self.default
        if name not in self._ways:
            known = ", ".join(sorted(self._ways))
            shown = name if len(name) <= 100 else name[:99] + "…"
            raise CallerFault(404, "model_not_found", f"unknown model {shown!r}; known are {known}", param="model")
        return name

    def route(self, name: str) -> str:
        """The route a public name belongs to, empty when it stands in none."""
        return self._route[name]

    def all_of(self, name: str) -> list[Candidate]:
        """Every way to answer, in the configuration's order."""
        return [candidate for group in self._ways[name] for candidate in group]

    def order(self, name: str, now: float) -> list[Candidate]:
        """The ways to try now. Those that are not ready come last rather than never: a probe may be behind the times."""
        ready: list[Candidate] = []
        others: list[Candidate] = []
        for group in self._ways[name]:
            usable = [candidate for candidate in group if not candidate.state.resting(now)]
            usable.sort(key=lambda candidate: (candidate.state.in_flight, candidate.state.last_used))
            for candidate in usable:
                (ready if candidate.state.ready(candidate.model) else others).append(candidate)
        return ready + others

    def nobody(self, name: str, now: float) -> ProxyFault:
        """The error when every engine rests: which and why, and when to come again."""
        states = {candidate.state.name: candidate.state for candidate in self.all_of(name)}
        reasons = [f"engine {state.name} {state.resting(now) or 'is busy'}" for state in states.values()]
        waits = [max(state.busy_until, state.open_until) - now for state in states.values()]
        single = next(iter(states)) if len(states) == 1 else None
        return ProxyFault(
            503,
            "no_engine_available",
            f"no engine can answer for {name!r}: {'; '.join(reasons)}",
            engine=single,
            retry_after=max(1.0, min(waits)),
        )
