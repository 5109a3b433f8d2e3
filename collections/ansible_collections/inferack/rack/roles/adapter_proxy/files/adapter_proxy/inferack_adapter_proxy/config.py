"""The configuration: a YAML or JSON file without keys, and a JSON file with nothing but keys.

Every fault is a `ConfigFault` that names the file, the path inside it, what was expected and what was found.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Optional
from urllib.parse import urlsplit

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, field_validator, model_validator

Class = Literal["latency", "throughput"]

_ADAPTER = re.compile(r"[a-z][a-z0-9_]*")
_ENDPOINTS = ("/chat/completions", "/completions", "/embeddings", "/models")


class ConfigFault(Exception):
    """The configuration cannot be used; the message says where and why, one line per fault."""


def normalise_base_url(raw: str, version: str = "v1") -> str:
    """An engine's root: scheme, host and path without a trailing slash, `/v1` (any number of them) or endpoint.

    `http://h:8000`, `http://h:8000/`, `http://h:8000/v1/` and `http://h:8000/v1/chat/completions` are one engine; adapters
    append `/v1/…` or `/v2/…` themselves. `version` is the path segment to strip.
    Raises ValueError for anything that is no http(s) URL, holds a user or password, or a query.
    """
    url = raw.strip()
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"expected an http:// or https:// URL with a host, found {_without_userinfo(raw)!r}")
    if parts.username is not None or parts.password is not None:
        raise ValueError("the URL holds a user or password; put the engine's key into the secrets file instead")
    if parts.query or parts.fragment:
        raise ValueError(f"expected a URL without ? and #, found {parts.scheme}://{parts.netloc}{parts.path}?…")
    _ = parts.port  # raises ValueError for a port that is none
    path = parts.path.rstrip("/")
    for endpoint in _ENDPOINTS:
        if path.endswith(f"/{version}{endpoint}"):
            path = path[: -len(endpoint)]
    while path.endswith(f"/{version}"):
        path = path[: -len(version) - 1].rstrip("/")
    return f"{parts.scheme}://{parts.netloc}{path}"


def _without_userinfo(url: str) -> str:
    return re.sub(r"^.*@", "…@", url)


class Model(BaseModel):
    """Strict base: unknown keys are faults, since a misspelt option that is ignored is worse than a refusal."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, hide_input_in_errors=True)


class Listen(Model):
    """Where callers connect."""

    host: str = "127.0.0.1"
    port: int = Field(default=8080, ge=1, le=65535)


class Timeouts(Model):
    """The timers, in seconds. With streaming: connect, ttft, idle; without: connect, answer; total always."""

    connect_s: float = Field(default=2.0, gt=0)
    #: From asking the engine to the first content of a stream.
    ttft_s: float = Field(default=60.0, gt=0)
    #: Between two events of a stream.
    idle_s: float = Field(default=30.0, gt=0)
    #: Without streaming: one engine's whole answer.
    answer_s: float = Field(default=120.0, gt=0)
    #: The whole request, over all engines and repetitions.
    total_s: float = Field(default=300.0, gt=0)


class Retries(Model):
    """What happens when every engine of a model failed before the first content."""

    #: Pause before each further round over the engines, seconds.
    delays_s: list[float] = Field(default=[1.0, 2.0, 4.0], max_length=10)
    #: A longer Retry-After is not waited for but handed to the caller, seconds.
    longest_wait_s: float = Field(default=10.0, ge=0)

    @field_validator("delays_s")
    @classmethod
    def _not_negative(cls, value: list[float]) -> list[float]:
        if any(delay < 0 for delay in value):
            raise ValueError("expected pauses of zero or more seconds")
        return value


class Breaker(Model):
    """When an engine is left alone for a while."""

    #: Consecutive connect errors, time-outs and 5xx.
    failures: int = Field(default=5, ge=1)
    #: Then one trial request after this many seconds.
    rest_s: float = Field(default=10.0, gt=0)


class Health(Model):
    """How readiness is found out."""

    interval_s: float = Field(default=5.0, gt=0)
    timeout_s: float = Field(default=10.0, gt=0)
    #: A real question, when no caller's was answered in this time.
    canary_interval_s: float = Field(default=30.0, gt=0)


class Limits(Model):
    """What one request may cost the proxy."""

    request_bytes: int = Field(default=4 * 1024 * 1024, ge=1024)


class Log(Model):
    """Log lines are JSON; they never hold a prompt or a key."""

    level: Literal["debug", "info", "warning", "error"] = "info"


class EngineConfig(Model):
    """One engine. `options` belong to its adapter, which checks them."""

    name: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")
    adapter: str
    base_url: str
    models: list[str] = Field(min_length=1)
    class_: Class = Field(default="throughput", alias="class")
    #: The rack's node it runs on; only for people.
    node: Optional[str] = None
    #: Public model name to the engine's own, where they differ.
    served_as: dict[str, str] = Field(default_factory=dict)
    key_required: bool = False
    #: Timers that differ from the common ones.
    timeouts: dict[str, float] = Field(default_factory=dict)
    options: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _no_keys_here(cls, value: Any) -> Any:
        if isinstance(value, Mapping) and ("api_key" in value or "key" in value):
            raise ValueError("a key stands in the configuration, which others can read; move it to the secrets file")
        return value

    @field_validator("adapter")
    @classmethod
    def _adapter_exists(cls, value: str) -> str:
        adapter_module(value)
        return value

    @field_validator("models")
    @classmethod
    def _models_named(cls, value: list[str]) -> list[str]:
        if any(not model.strip() for model in value):
            raise ValueError("a model has no name")
        if len(set(value)) != len(value):
            raise ValueError("a model is named twice")
        return value

    @field_validator("base_url")
    @classmethod
    def _base_url_usable(cls, value: str) -> str:
        return normalise_base_url(value)

    @field_validator("timeouts")
    @classmethod
    def _timeouts_known(cls, value: dict[str, float]) -> dict[str, float]:
        return Timeouts.model_validate(value).model_dump(include=set(value))

    @model_validator(mode="after")
    def _options_fit(self) -> EngineConfig:
        adapter_module(self.adapter).Options.model_validate(self.options)
        for model in self.served_as:
            if model not in self.models:
                raise ValueError(f"served_as names {model!r}, which is not among the engine's models: {', '.join(self.models)}")
        return self


class RouteConfig(Model):
    """A name that callers may use as a model; its models are tried class by class."""

    name: str = Field(min_length=1)
    models: list[str] = Field(min_length=1)
    classes: list[Class] = Field(default=["latency", "throughput"], min_length=1)


class Config(Model):
    """The whole file."""

    engines: list[EngineConfig] = Field(min_length=1)
    routes: list[RouteConfig] = Field(default_factory=list)
    #: What answers when the caller names no model; empty: the first route, or the first engine's first model.
    default_model: str = ""
    listen: Listen = Field(default_factory=Listen)
    timeouts: Timeouts = Field(default_factory=Timeouts)
    retries: Retries = Field(default_factory=Retries)
    breaker: Breaker = Field(default_factory=Breaker)
    health: Health = Field(default_factory=Health)
    limits: Limits = Field(default_factory=Limits)
    log: Log = Field(default_factory=Log)
    #: Seconds a stopping proxy waits for requests in progress.
    drain_s: float = Field(default=30.0, ge=0)

    @model_validator(mode="after")
    def _names_agree(self) -> Config:
        names = [engine.name for engine in self.engines]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two engines are named {name!r}; give each its own name")
        routes = [route.name for route in self.routes]
        for name in routes:
            if routes.count(name) > 1:
                raise ValueError(f"two routes are named {name!r}; give each its own name")
        served = {model: engine.class_ for engine in self.engines for model in engine.models}
        known = ", ".join(sorted(served))
        for route in self.routes:
            for model in route.models:
                if model not in served:
                    raise ValueError(f"route {route.name!r} names the model {model!r}, which no engine serves; known: {known}")
            if not any(engine.class_ in route.classes and set(engine.models) & set(route.models) for engine in self.engines):
                raise ValueError(
                    f"route {route.name!r} allows only the classes {', '.join(route.classes)}, "
                    f"and no engine of these serves {', '.join(route.models)}"
                )
        if self.default_model and self.default_model not in served and self.default_model not in routes:
            raise ValueError(f"default_model {self.default_model!r} is neither a route nor a model; known: {known}")
        return self

    def timeouts_of(self, engine: EngineConfig) -> Timeouts:
        """The common timers with the engine's own over them."""
        return self.timeouts.model_copy(update=engine.timeouts)


class Secrets(Model):
    """The secrets file: engine name to key."""

    engine_keys: dict[str, SecretStr] = Field(default_factory=dict)

    @field_validator("engine_keys")
    @classmethod
    def _keys_fit_a_header(cls, value: dict[str, SecretStr]) -> dict[str, SecretStr]:
        for name, key in value.items():
            text = key.get_secret_value()
            if len(text) < 4 or any(not "!" <= character <= "~" for character in text):
                raise ValueError(f"the key of engine {name!r} has fewer than 4 characters, or blanks, or other than ASCII")
        return value


@dataclass(frozen=True)
class Loaded:
    """A checked configuration, its keys, and the SHA-256 of its file in hexadecimal."""

    config: Config
    keys: Mapping[str, str]
    sha256: str


def adapter_module(name: str) -> Any:
    """The module of an adapter: it has `Options` (a pydantic model) and `Adapter`. Raises ValueError for an unknown one."""
    package = "inferack_adapter_proxy.engines"
    if _ADAPTER.fullmatch(name):
        try:
            module = importlib.import_module(f"{package}.{name}")
        except ModuleNotFoundError as error:
            if error.name != f"{package}.{name}":
                raise
        else:
            if hasattr(module, "Adapter"):
                return module
    folder = Path(__file__).parent / "engines"
    known = sorted(path.stem for path in folder.glob("*.py") if path.stem not in ("__init__", "base"))
    raise ValueError(f"unknown adapter {name!r}; known are {', '.join(known)}")


def _explain(path: str, error: ValidationError) -> str:
    lines = []
    for fault in error.errors(include_input=False, include_url=False, include_context=False):
        place = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in fault["loc"]).lstrip(".")
        message = fault["msg"].removeprefix("Value error, ")
        lines.append(f"{path}: {place}: {message}" if place else f"{path}: {message}")
    return "\n".join(lines)


def parse(text: bytes, path: str) -> Config:
    """The configuration in a file's bytes. JSON is read as YAML, of which it is a part. Raises ConfigFault."""
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigFault(f"{path}: neither YAML nor JSON: {' '.join(str(error).split())}") from error
    if not isinstance(data, dict):
        raise ConfigFault(f"{path}: expected a mapping with at least 'engines', found {type(data).__name__}")
    try:
        return Config.model_validate(data)
    except ValidationError as error:
        # `from None`: the causes may hold what stood in the file, and that may be a misplaced key.
        raise ConfigFault(_explain(path, error)) from None


def read_secrets(path: Path) -> dict[str, str]:
    """Engine name to key. Raises ConfigFault when the file is readable to others or not of the expected form."""
    try:
        mode = path.stat().st_mode
        text = path.read_bytes()
    except OSError as error:
        raise ConfigFault(f"{path}: cannot be read: {error.strerror}") from error
    if stat.S_IMODE(mode) & 0o077:
        raise ConfigFault(f"{path}: mode {stat.S_IMODE(mode):04o} lets others read the keys; run chmod 0600 on it")
    try:
        secrets = Secrets.model_validate_json(text or b"{}")
    except ValidationError as error:
        raise ConfigFault(_explain(str(path), error)) from None
    return {name: key.get_secret_value() for name, key in secrets.engine_keys.items()}


def secrets_path(given: Optional[str], environment: Mapping[str, str]) -> Optional[Path]:
    """The secrets file: as given, else `secrets.json` among systemd's credentials, else none."""
    if given:
        return Path(given)
    directory = environment.get("CREDENTIALS_DIRECTORY")
    if directory and os.path.exists(f"{directory}/secrets.json"):
        return Path(directory) / "secrets.json"
    return None


def load(path: str, secrets: Optional[str] = None) -> Loaded:
    """Read and check both files. Raises ConfigFault."""
    try:
        text = Path(path).read_bytes()
    except OSError as error:
        raise ConfigFault(f"{path}: cannot be read: {error.strerror}") from error
    config = parse(text, path)
    file = secrets_path(secrets, os.environ)
    keys = read_secrets(file) if file else {}
    for engine in config.engines:
        if engine.key_required and engine.name not in keys:
            where = str(file) if file else "no secrets file was given"
            raise ConfigFault(f"{path}: engine {engine.name!r} needs a key and has none ({where})")
    unknown = sorted(set(keys) - {engine.name for engine in config.engines})
    if unknown:
        raise ConfigFault(f"{file}: keys for engines that the configuration does not name: {', '.join(unknown)}")
    return Loaded(config, keys, hashlib.sha256(text).hexdigest())
