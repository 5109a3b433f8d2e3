"""Prometheus metrics, in a registry of their own. Labels are names from the configuration only, so they are few."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from . import __version__

if TYPE_CHECKING:
    from .routing import EngineState

_SECONDS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0)
CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


class Metrics:
    """All of the proxy's metrics; they outlive a reload of the configuration."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        name = "inferack_proxy"
        registry = self.registry
        self.requests = Counter(
            f"{name}_requests", "Requests by outcome", ["endpoint", "route", "engine", "status"], registry=registry
        )
        self.seconds = Histogram(
            f"{name}_request_seconds",
            "Whole request as the caller sees it",
            ["endpoint", "route", "engine"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.first_content = Histogram(
            f"{name}_first_content_seconds",
            "From the request to the first content of a stream",
            ["route", "engine"],
            buckets=_SECONDS,
            registry=registry,
        )
        self.tokens = Counter(f"{name}_tokens", "Tokens", ["route", "engine", "kind"], registry=registry)
        self.engine_faults = Counter(f"{name}_engine_faults", "Faults by kind", ["engine", "kind"], registry=registry)
        self.retries = Counter(f"{name}_retries", "Further rounds over all engines", ["route"], registry=registry)
        self.interrupted = Counter(
            f"{name}_streams_interrupted", "Streams that an engine cut after content", ["engine"], registry=registry
        )
        self.in_flight = Gauge(f"{name}_in_flight", "Requests an engine works on", ["engine"], registry=registry)
        self.ready = Gauge(f"{name}_engine_ready", "1 when the model answers", ["engine", "model"], registry=registry)
        self.breaker = Gauge(f"{name}_breaker_open", "1 when an engine is left alone", ["engine"], registry=registry)
        Gauge(f"{name}_build_info", "The version", ["version"], registry=registry).labels(__version__).set(1)

    def text(self, states: Iterable[EngineState]) -> bytes:
        """The exposition, text format 0.0.4. Gauges are read off the engines now, so none outlives its configuration."""
        for gauge in (self.in_flight, self.ready, self.breaker):
            gauge.clear()
        for state in states:
            self.in_flight.labels(state.name).set(state.in_flight)
            self.breaker.labels(state.name).set(state.breaker_open)
            for model in state.engine.config.models:
                self.ready.labels(state.name, model).set(state.ready(model))
        return generate_latest(self.registry)
