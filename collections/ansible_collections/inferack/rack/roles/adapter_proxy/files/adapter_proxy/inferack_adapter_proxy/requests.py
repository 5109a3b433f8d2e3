"""Reading what callers send: every fault is a CallerFault that names the field."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

import orjson

from .engines.base import Ask
from .faults import CallerFault
from .trace import Trace

_INFER_FIELDS = ("text", "model", "parameters")
#: Of a chat completion, what the proxy decides itself.
_OWN = frozenset({"model", "messages", "stream", "stream_options"})


def _wrong(message: str, param: Optional[str] = None, code: str = "invalid_request") -> CallerFault:
    return CallerFault(400, code, message, param)


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "an array", str: "a string", bool: "a truth value", type(None): "null"}
    return names.get(type(value), "a number")


def json_object(body: bytes) -> dict[str, Any]:
    """The JSON object in a request's body."""
    if not body.strip():
        raise _wrong("the body is empty; expected a JSON object", code="invalid_json")
    try:
        data = orjson.loads(body)
    except orjson.JSONDecodeError as error:
        place = f"line {error.lineno}, column {error.colno}"
        raise _wrong(f"the body is not JSON: {error.msg} ({place})", code="invalid_json") from None
    if not isinstance(data, dict):
        raise _wrong(f"expected a JSON object, found {_kind(data)}")
    return data


def _text_or_none(data: dict[str, Any], name: str) -> Optional[str]:
    value = data.get(name)
    if value is not None and not isinstance(value, str):
        raise _wrong(f"{name} must be a string, found {_kind(value)}", name)
    return value


@dataclass(frozen=True)
class InferRequest:
    """`/infer`: a text, a model or None for the default one, and the options for the engine."""

    text: str
    model: Optional[str]
    parameters: dict[str, Any]

    def ask(self, trace: Trace) -> Ask:
        """The engine-neutral form."""
        return Ask([{"role": "user", "content": self.text}], self.parameters, trace, text=self.text)


def infer(data: dict[str, Any]) -> InferRequest:
    """Check the body of `/infer`."""
    unknown = sorted(set(data) - set(_INFER_FIELDS))
    if unknown:
        raise _wrong(f"unknown field {unknown[0]!r}; known are {', '.join(_INFER_FIELDS)}", unknown[0], "unknown_field")
    if "text" not in data:
        raise _wrong("text is missing", "text", "missing_text")
    text = _text_or_none(data, "text")
    if not text:
        raise _wrong("text must be a string that is not empty", "text", "missing_text")
    parameters = data.get("parameters")
    if parameters is None:
        parameters = {}
    if not isinstance(parameters, dict):
        raise _wrong(f"parameters must be an object, found {_kind(parameters)}", "parameters")
    for name in _OWN:
        if name in parameters:
            raise _wrong(f"parameters must not hold {name}", f"parameters.{name}")
    return InferRequest(text, _text_or_none(data, "model"), parameters)


@dataclass(frozen=True)
class ChatRequest:
    """`/v1/chat/completions`. show_usage: the caller asked for usage in the stream."""

    messages: list[dict[str, Any]]
    model: Optional[str]
    stream: bool
    show_usage: bool
    options: dict[str, Any]

    def ask(self, trace: Trace) -> Ask:
        """The engine-neutral form."""
        return Ask(self.messages, self.options, trace)


def chat(data: dict[str, Any]) -> ChatRequest:
    """Check the body of a chat completion as far as the proxy relies on it; the rest is the engine's to judge."""
    if "messages" not in data:
        raise _wrong("messages is missing", "messages", "missing_messages")
    messages = data["messages"]
    if not isinstance(messages, list) or not messages:
        raise _wrong("messages must be an array with at least one message", "messages")
    for number, message in enumerate(messages):
        place = f"messages[{number}]"
        if not isinstance(message, dict) or not isinstance(message.get("role"), str):
            raise _wrong(f"{place} must be an object with a role", place)
        content = message.get("content")
        if not isinstance(content, (str, list, type(None))):
            raise _wrong(f"{place}.content must be a string or an array, found {_kind(content)}", f"{place}.content")
    stream = data.get("stream")
    if stream is None:
        stream = False
    if not isinstance(stream, bool):
        raise _wrong(f"stream must be true or false, found {_kind(stream)}", "stream")
    stream_options = data.get("stream_options")
    if stream_options is not None:
        if not isinstance(stream_options, dict):
            raise _wrong(f"stream_options must be an object, found {_kind(stream_options)}", "stream_options")
        if not stream:
            raise _wrong("stream_options is only allowed when stream is true", "stream_options")
    show_usage = bool(stream_options and stream_options.get("include_usage"))
    options = {name: value for name, value in data.items() if name not in _OWN}
    return ChatRequest(messages, _text_or_none(data, "model"), stream, show_usage, options)
