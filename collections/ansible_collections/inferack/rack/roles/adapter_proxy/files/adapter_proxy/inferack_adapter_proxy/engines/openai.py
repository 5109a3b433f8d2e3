"""Engines that speak OpenAI's API: NIM, vLLM, Groq, LPU runtimes, llama.cpp."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, Optional

import orjson
from pydantic import Field

from ..config import EngineConfig, Model, Timeouts
from ..faults import EngineFault
from ..sse import DONE, Event, SseParser
from .base import Answer, Ask, HttpEngine, Piece, Usage, loads

#: Parts of a delta that a caller can see; an empty first delta that only names the role is none.
_CONTENT = ("content", "tool_calls", "function_call", "reasoning_content", "reasoning", "refusal", "audio")


class Options(Model):
    """What differs between engines that all call themselves OpenAI-compatible."""

    #: Between the base URL and `/chat/completions`.
    api_prefix: str = Field(default="/v1", pattern=r"^(/[A-Za-z0-9._-]+)*$")
    #: Ask for usage in streams; off for engines that refuse `stream_options`.
    stream_usage: bool = True
    #: Engines know one of the two names, and strict ones refuse the other.
    max_tokens_field: Literal["max_tokens", "max_completion_tokens"] = "max_tokens"
    #: Asked for readiness before the list of models, e.g. `/v1/health/ready`.
    ready_path: str = Field(default="", pattern=r"^(/.*)?$")
    #: Whether the list of models is asked at all, and must name the model.
    models_listed: bool = True


class Adapter(HttpEngine):
    """Passes chat completions on, and checks what comes back."""

    def __init__(self, config: EngineConfig, timeouts: Timeouts, key: Optional[str]) -> None:
        super().__init__(config, timeouts, key)
        self.options = Options.model_validate(config.options)

    def _body(self, model: str, ask: Ask, **more: Any) -> bytes:
        options = dict(ask.options)
        limits = [options.pop(name, None) for name in ("max_completion_tokens", "max_tokens")]
        limit = next((value for value in limits if value is not None), None)
        if limit is not None:
            options[self.options.max_tokens_field] = limit
        return orjson.dumps({**options, "model": self.served(model), "messages": ask.messages, **more})

    async def complete(self, model: str, ask: Ask) -> Answer:
        """One chat completion."""
        path = f"{self.options.api_prefix}/chat/completions"
        async with self.request("POST", path, self._body(model, ask), ask.trace) as response:
            text = await self.read(response)
        try:
            body = loads(text)
        except ValueError as error:
            raise EngineFault("garbled", self.name, "answered something that is not JSON") from error
        fault = _error_in(body)
        if fault:
            raise self._error(fault)
        try:
            choice = body["choices"][0]
            message = choice["message"]
            content = message.get("content") or ""
            finish = choice.get("finish_reason") or "stop"
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise EngineFault("garbled", self.name, "answered JSON that is no chat completion") from error
        if not isinstance(content, str):
            raise EngineFault("garbled", self.name, "answered with content that is no text")
        return Answer(content, str(finish), _usage(body.get("usage")), body)

    async def stream(self, model: str, ask: Ask) -> AsyncIterator[Piece]:
        """One chat completion, event by event."""
        more: dict[str, Any] = {"stream": True}
        if self.options.stream_usage:
            more["stream_options"] = {"include_usage": True}
        path = f"{self.options.api_prefix}/chat/completions"
        parser = SseParser()
        finished = False
        async with self.request("POST", path, self._body(model, ask, **more), ask.trace) as response:
            kind = response.content_type
            if kind != "text/event-stream":
                raise await self._not_a_stream(kind, await self.read(response))
            async for chunk in response.content.iter_any():
                for event in self.events(parser, chunk):
                    if event.data == DONE:
                        return
                    piece = self._piece(event)
                    finished = finished or piece.finish_reason is not None
                    yield piece
            for event in self.events(parser):
                if event.data == DONE:
                    return
                piece = self._piece(event)
                finished = finished or piece.finish_reason is not None
                yield piece
        if not finished:
            raise EngineFault("closed", self.name, "the stream ended before the answer did")

    async def _not_a_stream(self, kind: str, text: bytes) -> EngineFault:
        try:
            body = loads(text)
        except ValueError:
            body = None
        fault = _error_in(body)
        if fault:
            return self._error(fault)
        return EngineFault("garbled", self.name, f"was asked for a stream and answered {kind}")

    def _error(self, error: Any) -> EngineFault:
        """An error that came with status 200. Its code says which status was meant, where it is a number."""
        code = error.get("code") if isinstance(error, dict) else None
        digits = str(code)
        status = int(digits) if digits.isdigit() and 400 <= int(digits) < 600 else 502
        return self.fault_of(status, error)

    def _piece(self, event: Event) -> Piece:
        try:
            chunk = orjson.loads(event.data)
            raw: Optional[bytes] = event.data
        except orjson.JSONDecodeError:
            raw = None
            try:
                chunk = loads(event.data)
            except ValueError as error:
                raise EngineFault("garbled", self.name, "sent an event that is not JSON") from error
        if not isinstance(chunk, dict):
            raise EngineFault("garbled", self.name, "sent an event that is no JSON object")
        fault = _error_in(chunk) or (chunk if event.name == b"error" else None)
        if fault:
            raise self._error(fault)
        text, content, finish = "", False, None
        try:
            for choice in chunk.get("choices") or ():
                delta = choice.get("delta") or {}
                content = content or any(delta.get(part) for part in _CONTENT)
                if not choice.get("index"):
                    text += delta.get("content") or ""
                finish = finish or choice.get("finish_reason")
        except (AttributeError, TypeError) as error:
            raise EngineFault("garbled", self.name, "sent an event that is no part of a chat completion") from error
        if raw is not None and b"\n" in raw:
            raw = None  # multi-line data: written anew on one line
        return Piece(text, content, finish, _usage(chunk.get("usage")), chunk, raw)

    async def ready(self, canary: bool) -> Mapping[str, str]:
        """The engine's own word and its list of models; a question would cost tokens, so `canary` asks none."""
        models = self.config.models
        try:
            if self.options.ready_path:
                async with self.request("GET", self.options.ready_path) as response:
                    await self.read(response)
            if not self.options.models_listed:
                return dict.fromkeys(models, "")
            async with self.request("GET", f"{self.options.api_prefix}/models") as response:
                listed = loads(await self.read(response))
        except EngineFault as fault:
            return dict.fromkeys(models, fault.message)
        except ValueError:
            return dict.fromkeys(models, f"engine {self.name}: its list of models is not JSON")
        entries = listed.get("data") if isinstance(listed, dict) else None
        names = [entry.get("id") for entry in entries if isinstance(entry, dict)] if isinstance(entries, list) else []
        return {
            model: ""
            if self.served(model) in names
            else f"engine {self.name}: does not list {self.served(model)}, but {', '.join(map(str, names)) or 'nothing'}"
            for model in models
        }


def _error_in(body: Any) -> Any:
    """The error in a body that came with status 200: OpenAI nests it, vLLM marks the whole object as one."""
    if not isinstance(body, dict):
        return None
    return body.get("error") or (body if body.get("object") == "error" else None)


def _usage(raw: Any) -> Optional[Usage]:
    if not isinstance(raw, dict):
        return None
    counts = [raw.get("prompt_tokens"), raw.get("completion_tokens")]
    if not all(isinstance(count, int) and count >= 0 for count in counts):
        return None
    return Usage(counts[0], counts[1])  # type: ignore[arg-type]
