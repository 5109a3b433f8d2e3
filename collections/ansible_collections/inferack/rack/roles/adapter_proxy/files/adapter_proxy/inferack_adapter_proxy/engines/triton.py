"""NVIDIA Triton over HTTP: the KServe v2 protocol with BYTES tensors, and Triton's generate endpoint.

Sources: KServe open inference protocol v2 (REST); triton-inference-server/server, docs/protocol: extension_binary_data.md,
extension_generate.md, extension_parameters.md.
"""

from __future__ import annotations

import codecs
import json
import struct
from collections.abc import AsyncIterator, Mapping
from typing import Any, Literal, Optional
from urllib.parse import quote

import orjson
from pydantic import Field, field_validator, model_validator

from ..chat import ChatRule, NotText, as_text
from ..config import EngineConfig, Model, Timeouts, normalise_base_url
from ..faults import EngineFault
from ..sse import SseParser
from .base import Answer, Ask, HttpEngine, Piece, estimate, loads

#: Request parameters that steer the server itself; a caller must not set them (extension_parameters.md).
_RESERVED = frozenset(
    (
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "headers",
        "binary_data_output",
        "binary_data_size",
        "classification",
        "shared_memory_region",
        "shared_memory_offset",
        "shared_memory_byte_size",
    )
)
#: Fields of a chat completion that would change the answer's form; a model that takes a text cannot honour them.
_UNSUPPORTED = ("tools", "functions", "logprobs", "top_logprobs", "audio", "modalities")


class ModelOptions(Model):
    """How a model takes and gives text."""

    #: Name of the BYTES input and output tensors.
    input: str = Field(default="text", min_length=1)
    output: str = Field(default="output", min_length=1)
    #: Shape of the input: `[1, 1]` for a model with batching and dims `[1]`, `[1]` for one without batching.
    shape: list[int] = Field(default=[1, 1], min_length=1)
    #: `generate_stream` for models that answer piece by piece; also lets Triton stop when the caller leaves.
    protocol: Literal["infer", "generate_stream"] = "infer"
    #: How chat messages become the text (see `chat`).
    chat: ChatRule = "transcript"
    #: Pass numbers, texts and truth values of the request on as KServe request parameters.
    parameters: bool = True
    #: Ask for binary output: text that is not valid UTF-8 cannot break the answer then. Off for servers other than Triton.
    binary_output: bool = True
    #: The question of the readiness check; empty: none is asked.
    canary: str = "ping"

    @field_validator("shape")
    @classmethod
    def _one_element(cls, value: list[int]) -> list[int]:
        if any(size != 1 for size in value):
            raise ValueError("expected only ones: one text a request")
        return value


class Options(ModelOptions):
    """The same for all of an engine's models; `models` holds what differs for one of them."""

    models: dict[str, dict[str, Any]] = Field(default={})

    @model_validator(mode="after")
    def _models_fit(self) -> Options:
        for model in self.models:
            self.of(model)
        return self

    def of(self, model: str) -> ModelOptions:
        """One model's options. Raises ValueError (pydantic's) when they do not fit."""
        common = self.model_dump(exclude={"models"})
        return ModelOptions.model_validate({**common, **self.models.get(model, {})})


class Adapter(HttpEngine):
    """One text in, one text out."""

    #: Triton answers 500 to missing inputs and malformed requests as well.
    status_500 = "rejected"

    def __init__(self, config: EngineConfig, timeouts: Timeouts, key: Optional[str]) -> None:
        super().__init__(config, timeouts, key)
        self.base_url = normalise_base_url(config.base_url, "v2")
        options = Options.model_validate(config.options)
        self._options = {model: options.of(model) for model in config.models}

    def _text(self, options: ModelOptions, ask: Ask) -> str:
        for name in _UNSUPPORTED:
            if ask.options.get(name):
                raise EngineFault("unsupported", self.name, f"cannot honour {name}: its model takes and gives text", param=name)
        if ask.options.get("n") not in (None, 1):
            raise EngineFault("unsupported", self.name, "gives one answer a request", param="n")
        form = ask.options.get("response_format")
        if form and not (isinstance(form, dict) and form.get("type") == "text"):
            raise EngineFault("unsupported", self.name, "answers with plain text only", param="response_format")
        if ask.text is not None:
            return ask.text
        try:
            return as_text(ask.messages, options.chat)
        except NotText as error:
            raise EngineFault("unsupported", self.name, str(error), param="messages") from error

    def _parameters(self, options: ModelOptions, ask: Ask) -> dict[str, Any]:
        if not options.parameters:
            return {}
        return {
            name: value
            for name, value in ask.options.items()
            if isinstance(value, (bool, int, float, str)) and name not in _RESERVED and not name.startswith("triton_")
        }

    def _path(self, model: str, action: str) -> str:
        return f"/v2/models/{quote(self.served(model), safe='')}/{action}"

    async def complete(self, model: str, ask: Ask) -> Answer:
        """One inference."""
        options = self._options[model]
        prompt = self._text(options, ask)
        if options.protocol == "infer":
            output = await self._infer(model, prompt, self._parameters(options, ask), ask)
        else:
            output = "".join([text async for text in self._generate(model, prompt, ask)])
        return Answer(output, "stop", estimate(prompt, output))

    async def stream(self, model: str, ask: Ask) -> AsyncIterator[Piece]:
        """The answer as it comes with `generate_stream`, else as one piece."""
        options = self._options[model]
        prompt = self._text(options, ask)
        output = ""
        if options.protocol == "infer":
            output = await self._infer(model, prompt, self._parameters(options, ask), ask)
            yield Piece(output, content=bool(output))
        else:
            async for text in self._generate(model, prompt, ask):
                output += text
                yield Piece(text, content=bool(text))
        yield Piece(finish_reason="stop", usage=estimate(prompt, output))

    async def _infer(self, model: str, text: str, parameters: dict[str, Any], ask: Optional[Ask] = None) -> str:
        options = self._options[model]
        output: dict[str, Any] = {"name": options.output}
        if options.binary_output:
            output["parameters"] = {"binary_data": True}
        request: dict[str, Any] = {
            "inputs": [{"name": options.input, "datatype": "BYTES", "shape": options.shape, "data": [text]}],
            "outputs": [output],
        }
        if parameters:
            request["parameters"] = parameters
        path = self._path(model, "infer")
        trace = ask.trace if ask else None
        async with self.request("POST", path, orjson.dumps(request), trace) as response:
            body = await self.read(response)
            header_length = response.headers.get("Inference-Header-Content-Length")
        return self._output(options.output, body, header_length)

    def _output(self, name: str, body: bytes, header_length: Optional[str]) -> str:
        """The text in a response: the output's bytes behind the JSON header, or its `data` within the JSON."""
        if header_length is not None and not header_length.isdigit():
            raise EngineFault("garbled", self.name, "answered with an Inference-Header-Content-Length that is no number")
        cut = int(header_length) if header_length is not None else len(body)
        try:
            header = loads(body[:cut])
        except ValueError as error:
            raise EngineFault("garbled", self.name, "answered something that is not JSON") from error
        if isinstance(header, dict) and header.get("error"):
            raise self.fault_of(500, header["error"])
        outputs = header.get("outputs") if isinstance(header, dict) else None
        offset = cut
        names = []
        for output in outputs if isinstance(outputs, list) else []:
            if not isinstance(output, dict):
                continue
            size = (output.get("parameters") or {}).get("binary_data_size", 0)
            if output.get("name") == name:
                if output.get("datatype") != "BYTES":
                    detail = f"output {name} is {output.get('datatype')}, expected BYTES (TYPE_STRING)"
                    raise EngineFault("garbled", self.name, detail)
                if size:
                    return self._first_bytes(name, body[offset : offset + size])
                data = output.get("data")
                while isinstance(data, list) and data:  # rows may be nested as the shape says
                    data = data[0]
                if isinstance(data, str):
                    return data
                raise EngineFault("garbled", self.name, f"output {name} is empty")
            names.append(str(output.get("name")))
            offset += size
        raise EngineFault("garbled", self.name, f"answered without the output {name}; it has {', '.join(names) or 'none'}")

    def _first_bytes(self, name: str, blob: bytes) -> str:
        """The first element of a BYTES tensor: four bytes of length, little-endian, then that many bytes."""
        if len(blob) >= 4:
            (length,) = struct.unpack_from("<I", blob)
            if 4 + length <= len(blob):
                return blob[4 : 4 + length].decode("utf-8", "replace")
        raise EngineFault("garbled", self.name, f"output {name} is cut off")

    async def _generate(self, model: str, text: str, ask: Ask) -> AsyncIterator[str]:
        """The texts of `generate_stream`, one an event. There is no closing event; an error may come inside any of them."""
        options = self._options[model]
        body = orjson.dumps({**self._parameters(options, ask), options.input: text})
        parser = SseParser()
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        async with self.request("POST", self._path(model, "generate_stream"), body, ask.trace) as response:
            if response.content_type != "text/event-stream":
                raise self._no_stream(response.content_type, await self.read(response))
            async for chunk in response.content.iter_any():
                for event in self.events(parser, chunk):
                    yield decoder.decode(self._event_bytes(options.output, event.data))
            for event in self.events(parser):
                yield decoder.decode(self._event_bytes(options.output, event.data))
        rest = decoder.decode(b"", final=True)
        if rest:
            yield rest

    def _no_stream(self, kind: str, text: bytes) -> EngineFault:
        try:
            body = loads(text)
        except ValueError:
            body = None
        if isinstance(body, dict) and body.get("error"):
            return self.fault_of(500, body["error"])
        return EngineFault("garbled", self.name, f"was asked for a stream and answered {kind}")

    def _event_bytes(self, name: str, data: bytes) -> bytes:
        """The output's bytes in one event; a character may be split over two events, so decoding is the caller's."""
        try:
            try:
                event = orjson.loads(data)
            except orjson.JSONDecodeError:
                event = json.loads(data.decode("utf-8", "surrogateescape"))
        except ValueError as error:
            raise EngineFault("garbled", self.name, "sent an event that is not JSON") from error
        if isinstance(event, dict) and event.get("error"):
            raise self.fault_of(500, event["error"])
        text = event.get(name) if isinstance(event, dict) else None
        if isinstance(text, list):
            text = "".join(map(str, text))
        if not isinstance(text, str):
            raise EngineFault("garbled", self.name, f"sent an event without the output {name}")
        return text.encode("utf-8", "surrogateescape")

    async def ready(self, canary: bool) -> Mapping[str, str]:
        """Each model's own readiness, then a real inference.

        The server's readiness is not asked: one broken model turns it off for all. The model's alone does not do either: with
        a dead Python stub it stays on while inference gives 500.
        """
        state: dict[str, str] = {}
        for model in self.config.models:
            try:
                async with self.request("GET", self._path(model, "ready")) as response:
                    await self.read(response)
                if canary and self._options[model].canary:
                    await self._canary(model)
                state[model] = ""
            except EngineFault as fault:
                if fault.kind in ("no_model", "bad_request"):
                    state[model] = f"engine {self.name}: model {self.served(model)} is not ready"
                else:
                    state[model] = fault.message
        return state

    async def _canary(self, model: str) -> None:
        options = self._options[model]
        if options.protocol == "infer":
            await self._infer(model, options.canary, {})
            return
        body = orjson.dumps({options.input: options.canary})
        parser = SseParser()
        async with self.request("POST", self._path(model, "generate_stream"), body) as response:
            if response.content_type != "text/event-stream":
                raise self._no_stream(response.content_type, await self.read(response))
            async for chunk in response.content.iter_any():
                for event in self.events(parser, chunk):
                    self._event_bytes(options.output, event.data)
                    return  # the first content is proof enough; leaving stops the rest
