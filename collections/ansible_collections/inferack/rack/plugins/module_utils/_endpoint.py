# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Ask an inference engine whether it is ready, which models it has, and one question.

Two protocols: Triton's (KServe v2) and OpenAI's, as NIM, vLLM and cloud services speak it. A server that says it is ready
proves nothing (Triton answers 200 on its readiness path although a configuration could not be read, and a dead Python
process leaves a model "ready"), so that only an answer counts.

HTTP goes straight to the endpoint; proxies in the environment are not used. Keys are in no message.
Runs on managed nodes: Python 3.9 and the standard library only.
"""

from __future__ import annotations

import http.client
import json
import socket
import ssl
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote, urlsplit

from ansible_collections.inferack.rack.plugins.module_utils._checks import FAIL, PASS, SKIP, Check

#: How much of an answer or an error body is quoted, in characters.
QUOTED = 300

#: Largest body that is read, in bytes.
MAX_BODY = 16 * 1024 * 1024

#: States of an endpoint: it can be asked; it may become ready by itself; it will not.
READY, STARTING, BROKEN = "ready", "starting", "broken"


class EndpointError(Exception):
    """The endpoint could not be asked, or answered something that is no HTTP; `str()` says what in a few words.

    starting: waiting may help (nothing listens yet, or it does not answer yet).
    """

    def __init__(self, message: str, starting: bool = False) -> None:
        super().__init__(message)
        self.starting = starting


@dataclass(frozen=True)
class Target:
    """What to ask, and how.

    url: normalised base address; adapter: `triton` or `openai`; models: those it must have; model: the one to question
    (empty: the first); seconds in connect_timeout and timeout; context: TLS settings for https.
    """

    url: str
    adapter: str
    models: list[str] = field(default_factory=list)
    model: str = ""
    prompt: str = ""
    expect: str = ""
    api_key: str = ""
    ask: bool = True
    stream: bool = False
    max_tokens: int = 32
    input_name: str = ""
    output_name: str = ""
    connect_timeout: float = 5.0
    timeout: float = 60.0
    context: ssl.SSLContext | None = None


@dataclass
class Reply:
    """One HTTP answer: status, headers in lower case, body; first_ms: until the first streamed content, total_ms: in all."""

    status: int
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    total_ms: float = 0.0
    first_ms: float | None = None

    def json(self) -> Any:
        """The body as JSON, or None when it is none."""
        try:
            return json.loads(self.body)
        except ValueError:
            return None


@dataclass
class Result:
    """What an endpoint showed: its state, checks, models, answer, usage, and timings in milliseconds."""

    state: str
    checks: list[Check]
    models: list[str] = field(default_factory=list)
    model: str = ""
    answer: str | None = None
    usage: dict[str, Any] | None = None
    timings: dict[str, float | None] = field(default_factory=dict)


# -- addresses -----------------------------------------------------------------------------------------------


def normalise(url: str, adapter: str) -> str:
    """The base address of an engine, whatever of its path was written: without `/v2` for triton, with `/v1` for openai.

    `http://h:8000`, `http://h:8000/` and `http://h:8000/v1/chat/completions` are all `http://h:8000/v1`. A doubled version,
    the classic of pasted addresses, is one. Raises ValueError for what is no http(s) address.
    """
    parts = urlsplit(url.strip())
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"{url!r} is no address of the form http://host:port or https://host:port")
    if parts.username or parts.password:
        raise ValueError("the address must carry no user name or password; give the key as api_key")
    try:
        parts.port  # noqa: B018 - reading it is what checks it
    except ValueError as error:
        raise ValueError(f"{url!r} has no valid port: {error}") from error
    version = "v2" if adapter == "triton" else "v1"
    segments = [segment for segment in parts.path.split("/") if segment]
    if version in segments:
        segments = segments[: segments.index(version)]
    if adapter == "openai":
        segments.append(version)
    return f"{parts.scheme}://{parts.netloc}" + "".join(f"/{segment}" for segment in segments)


# -- HTTP ----------------------------------------------------------------------------------------------------


def words(error: BaseException) -> str:
    """A connection error in a few words, without Python's names."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted ({error.verify_message})"
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error})"
    if isinstance(error, socket.gaierror):
        return f"the name does not resolve ({error.strerror})"
    if isinstance(error, (socket.timeout, TimeoutError)):
        return "no answer in time"
    if isinstance(error, ConnectionRefusedError):
        return "connection refused"
    if isinstance(error, (ConnectionResetError, BrokenPipeError, http.client.RemoteDisconnected, http.client.IncompleteRead)):
        return "the connection was closed before the answer was complete"
    if isinstance(error, http.client.HTTPException):
        return f"what answers does not speak HTTP ({type(error).__name__})"
    return getattr(error, "strerror", None) or str(error) or type(error).__name__


def _connect(target: Target) -> http.client.HTTPConnection:
    """An open connection. Raises EndpointError."""
    parts = urlsplit(target.url)
    host, port = str(parts.hostname), parts.port
    connection: http.client.HTTPConnection
    if parts.scheme == "https":
        connection = http.client.HTTPSConnection(host, port, timeout=target.connect_timeout, context=target.context)
    else:
        connection = http.client.HTTPConnection(host, port, timeout=target.connect_timeout)
    try:
        connection.connect()
    except (OSError, http.client.HTTPException) as error:
        final = isinstance(error, (ssl.SSLCertVerificationError, socket.gaierror))
        raise EndpointError(f"{parts.netloc}: {words(error)}", starting=not final) from error
    if connection.sock is not None:
        connection.sock.settimeout(target.timeout)
    return connection


def ask(target: Target, method: str, path: str, body: dict[str, Any] | None = None) -> Reply:
    """One request; whatever the status. With `"stream": true` in the body the events are read to their end.

    Raises EndpointError when there is no complete answer.
    """
    headers = {"Accept": "application/json", "User-Agent": "inferack-rack"}
    payload = None
    if body is not None:
        payload = json.dumps(body).encode()
        headers["Content-Type"] = "application/json"
    if target.api_key:
        headers["Authorization"] = f"Bearer {target.api_key}"
    start = time.monotonic()
    connection = _connect(target)
    try:
        connection.request(method, urlsplit(target.url).path + path, payload, headers)
        answer = connection.getresponse()
        reply = Reply(answer.status, {name.lower(): value for name, value in answer.getheaders()})
        if body and body.get("stream") and "text/event-stream" in reply.headers.get("content-type", ""):
            reply.body, reply.first_ms = _read_events(answer, start)
        else:
            reply.body = answer.read(MAX_BODY)
            if answer.length and len(reply.body) < MAX_BODY:  # read() with a limit takes a truncated body for a whole one
                raise http.client.IncompleteRead(reply.body, answer.length)
    except (OSError, http.client.HTTPException) as error:
        raise EndpointError(
            f"{urlsplit(target.url).netloc}{path}: {words(error)}", starting=isinstance(error, OSError)
        ) from error
    finally:
        connection.close()
    reply.total_ms = _since(start)
    return reply


def _since(start: float) -> float:
    """Milliseconds since a moment of time.monotonic(), to a tenth."""
    return round((time.monotonic() - start) * 1000, 1)


def _read_events(answer: http.client.HTTPResponse, start: float) -> tuple[bytes, float | None]:
    """All server-sent events, and the milliseconds until the first with content."""
    taken, first = b"", None
    for line in iter(answer.readline, b""):
        taken += line
        if first is None and event_text(line):
            first = _since(start)
        if len(taken) > MAX_BODY:
            break
    return taken, first


def event_text(line: bytes) -> str:
    """The content in one line of an OpenAI stream; empty for anything else."""
    if not line.startswith(b"data:"):
        return ""
    try:
        choices = json.loads(line[5:]).get("choices") or [{}]
        return str((choices[0].get("delta") or {}).get("content") or "")
    except (ValueError, AttributeError, TypeError, IndexError):
        return ""


def brief(text: str) -> str:
    """A text on one line, at most QUOTED characters."""
    line = " ".join(text.split())
    return line if len(line) <= QUOTED else line[: QUOTED - 1] + "…"


def said(reply: Reply) -> str:
    """An error reply in a few words: the status and the message in its body."""
    data = reply.json()
    message = ""
    if isinstance(data, dict):
        error = data.get("error")
        message = str(error.get("message") or error.get("code") or "") if isinstance(error, dict) else str(error or "")
        message = message or str(data.get("message") or data.get("detail") or "")
    text = brief(message or reply.body.decode(errors="replace"))
    return f"HTTP {reply.status}" + (f" ({text})" if text else "")


# -- shared judgement ----------------------------------------------------------------------------------------


def fail(name: str, found: str, expected: Any, remedy: str, evidence: Sequence[str] = (), subject: str = "") -> Check:
    """A failing check."""
    return Check(name, FAIL, found=found, expected=expected, remedy=remedy, evidence=list(evidence), subject=subject)


def not_asked(name: str, why: str) -> Check:
    """A check that could not be made, since an earlier one failed."""
    return Check(name, SKIP, found=why)


def refusal(reply: Reply, target: Target) -> str:
    """The remedy for a 401 or 403, depending on whether a key was sent."""
    if target.api_key:
        return f"Give a key that {urlsplit(target.url).netloc} accepts and run again."
    return f"Give the key that {urlsplit(target.url).netloc} asks for and run again."


def judge_answer(target: Target, model: str, text: str | None, reply: Reply) -> Check:
    """The check engine.answer for a reply with status 200."""
    subject = f"model {model}"
    if text is None:
        found = f"an answer without text: {brief(reply.body.decode(errors='replace'))}"
        remedy = f"Correct the outputs of {model}, or name the output that holds the text, and run again."
        return fail("engine.answer", found, "a text", remedy, subject=subject)
    if not text.strip():
        return fail(
            "engine.answer", "an empty answer", "a text", f"Read the engine's log for {model} and run again.", subject=subject
        )
    if target.expect and target.expect not in text:
        remedy = f"Check that {model} is the model you mean, and run again."
        return fail("engine.answer", brief(text), f"an answer that contains {target.expect}", remedy, subject=subject)
    evidence = [f"asked: {brief(target.prompt)}", f"answered: {brief(text)}", f"in {reply.total_ms:.0f} ms"]
    return Check("engine.answer", PASS, found=brief(text), expected="a text", evidence=evidence, subject=subject)


# -- Triton --------------------------------------------------------------------------------------------------


def triton_index(target: Target) -> dict[str, tuple[str, str]]:
    """The models of a Triton as name -> (state, reason); of several versions the best one counts."""
    rank = {"READY": 2, "LOADING": 1}
    found: dict[str, tuple[str, str]] = {}
    rows = ask(target, "POST", "/v2/repository/index", {}).json()
    for row in rows if isinstance(rows, list) else []:
        name, state = str(row.get("name", "")), str(row.get("state") or "")
        if name not in found or rank.get(state, 0) > rank.get(found[name][0], 0):
            found[name] = (state, str(row.get("reason") or ""))
    return found


def triton_models(target: Target, index: dict[str, tuple[str, str]]) -> list[Check]:
    """engine.models for each expected model."""
    checks = []
    for name in target.models:
        state, reason = index.get(name, ("", ""))
        subject = f"model {name}"
        if state == "READY":
            checks.append(Check("engine.models", PASS, found="ready", expected="ready", subject=subject))
            continue
        why = brief(reason.split("\n\nAt:")[0])
        if name not in index:
            found, remedy = (
                "not in the model repository",
                f"Put {name} into the engine's model repository, or correct its name, and run again.",
            )
        elif why:
            found, remedy = f"not loaded: {why}", f"Correct the files or configuration of {name} and run again."
        elif state == "LOADING":
            found, remedy = "still loading", "Wait longer for the engine, or read its log, and run again."
        else:
            found, remedy = "not loaded", f"Correct config.pbtxt and the version folders of {name} and run again."
        checks.append(fail("engine.models", found, "ready", remedy, subject=subject))
    return checks


def triton_ready(target: Target) -> tuple[str, list[Check], dict[str, tuple[str, str]], float]:
    """State, checks, models and the milliseconds the readiness path took. Raises EndpointError."""
    reply = ask(target, "GET", "/v2/health/ready")
    if reply.status == 404:
        found = f"{said(reply)} on /v2/health/ready"
        return (
            BROKEN,
            [fail("engine.ready", found, "HTTP 200", "Give the HTTP port of a Triton Inference Server and run again.")],
            {},
            reply.total_ms,
        )
    index = triton_index(target)
    checks = triton_models(target, index)
    unhappy = [name for name, (state, reason) in index.items() if state == "UNAVAILABLE" and reason]
    if reply.status == 200:
        ready = Check("engine.ready", PASS, found="ready", expected="ready", evidence=[f"HTTP 200 in {reply.total_ms:.0f} ms"])
        state = READY if all(check.status == PASS for check in checks) else STARTING if _loading(index) else BROKEN
        return state, [ready, *checks], index, reply.total_ms
    found = f"not ready: {said(reply)}" + (f", models not loaded: {', '.join(unhappy)}" if unhappy else "")
    ready = fail(
        "engine.ready",
        found,
        "ready",
        "Correct the models that are not loaded and run again." if unhappy else "Read the engine's log and run again.",
    )
    # The model's own reason says more than "not ready", so that it comes first.
    return (BROKEN if unhappy else STARTING), [*checks, ready], index, reply.total_ms


def _loading(index: dict[str, tuple[str, str]]) -> bool:
    return any(state == "LOADING" for state, _reason in index.values())


def triton_tensors(target: Target, model: str) -> tuple[dict[str, Any] | None, str]:
    """The text input of a model, as its metadata names it, or None and why there is none."""
    reply = ask(target, "GET", f"/v2/models/{quote(model, safe='')}")
    data = reply.json()
    if reply.status != 200 or not isinstance(data, dict):
        return None, said(reply)
    inputs = data.get("inputs") or []
    if target.input_name:
        chosen = [tensor for tensor in inputs if tensor.get("name") == target.input_name]
        return (
            (chosen[0], "")
            if chosen
            else (None, f"no input {target.input_name}, only {', '.join(t.get('name', '?') for t in inputs)}")
        )
    texts = [tensor for tensor in inputs if tensor.get("datatype") == "BYTES"]
    if len(inputs) == 1 and texts:
        return texts[0], ""
    described = ", ".join(f"{tensor.get('name')} {tensor.get('datatype')}" for tensor in inputs) or "none"
    return None, f"its inputs are {described}"


def triton_text(data: Any, output_name: str) -> str | None:
    """The text in an infer answer: of the named output, else of the first of type BYTES."""
    for output in data.get("outputs") or [] if isinstance(data, dict) else []:
        if (output_name and output.get("name") == output_name) or (not output_name and output.get("datatype") == "BYTES"):
            values = output.get("data") or []
            while values and isinstance(values[0], list):
                values = values[0]
            return str(values[0]) if values else ""
    return None


def triton_answer(target: Target, model: str) -> tuple[Check, Reply | None, str | None]:
    """engine.answer of one model. Raises EndpointError."""
    subject = f"model {model}"
    tensor, why = triton_tensors(target, model)
    if tensor is None:
        if target.input_name or why.startswith("HTTP"):
            return (
                fail("engine.answer", why, "a text input", f"Correct the inputs of {model} and run again.", subject=subject),
                None,
                None,
            )
        return Check("engine.answer", SKIP, found=why, expected="one text input", subject=subject), None, None
    shape = [size if isinstance(size, int) and size > 0 else 1 for size in tensor.get("shape") or [1]]
    values: list[Any] = [target.prompt] * max(1, _product(shape))
    body: dict[str, Any] = {
        "inputs": [{"name": tensor["name"], "datatype": tensor.get("datatype"), "shape": shape, "data": values}]
    }
    reply = ask(target, "POST", f"/v2/models/{quote(model, safe='')}/infer", body)
    if reply.status != 200:
        remedy = f"Correct the model {model} (its files, or the data types in its configuration) and run again."
        return fail("engine.answer", said(reply), "a text", remedy, subject=subject), reply, None
    text = triton_text(reply.json(), target.output_name)
    return judge_answer(target, model, text, reply), reply, text


def _product(shape: Sequence[int]) -> int:
    total = 1
    for size in shape:
        total *= size
    return total


# -- OpenAI --------------------------------------------------------------------------------------------------


def openai_ready(target: Target) -> tuple[str, list[Check], list[str], float]:
    """State, checks, model names and the milliseconds readiness took. Raises EndpointError.

    NIM has a readiness path; other services answer 404 there, and their list of models is what says that they are ready.
    """
    health = ask(target, "GET", "/health/ready")
    if health.status in (502, 503, 504):
        remedy = "Wait longer for the engine, or read its log, and run again."
        return STARTING, [fail("engine.ready", f"not ready: {said(health)}", "ready", remedy)], [], health.total_ms
    reply = ask(target, "GET", "/models")
    took = health.total_ms if health.status == 200 else reply.total_ms
    if reply.status in (401, 403):
        return (
            BROKEN,
            [fail("engine.ready", f"the key was refused: {said(reply)}", "HTTP 200", refusal(reply, target))],
            [],
            took,
        )
    data = reply.json()
    rows = data.get("data") if isinstance(data, dict) else None
    if reply.status != 200 or not isinstance(rows, list):
        state = STARTING if reply.status >= 500 else BROKEN
        remedy = "Give the base address of a service that speaks the OpenAI API and run again."
        return (
            state,
            [fail("engine.ready", f"{said(reply)} on {urlsplit(target.url).path}/models", "a list of models", remedy)],
            [],
            took,
        )
    names = [str(row.get("id", "")) for row in rows if isinstance(row, dict)]
    checks = [Check("engine.ready", PASS, found="ready", expected="ready", evidence=[f"HTTP {reply.status} in {took:.0f} ms"])]
    for name in target.models:
        subject = f"model {name}"
        if name in names:
            checks.append(Check("engine.models", PASS, found="listed", expected="listed", subject=subject))
        else:
            found = f"not listed; it has {', '.join(names) or 'no models'}"
            checks.append(
                fail(
                    "engine.models",
                    found,
                    "listed",
                    f"Correct the model's name, or give the engine {name}, and run again.",
                    subject=subject,
                )
            )
    return (READY if all(check.status == PASS for check in checks) else BROKEN), checks, names, took


def stream_text(body: bytes) -> tuple[str, str, dict[str, Any] | None]:
    """The text of a stream, the error event in it (empty: none), and its usage."""
    text, error, usage = "", "", None
    for line in body.splitlines():
        text += event_text(line)
        if line.startswith(b"data:") and line[5:].strip() != b"[DONE]":
            try:
                data = json.loads(line[5:])
            except ValueError:
                continue
            if isinstance(data, dict):
                usage = data.get("usage") or usage
                if data.get("error") or data.get("object") == "error":
                    error = said(Reply(200, body=line[5:]))
    return text, error, usage


def openai_answer(target: Target, model: str) -> tuple[Check, Reply, str | None, dict[str, Any] | None]:
    """engine.answer of one model. Raises EndpointError."""
    subject = f"model {model}"
    messages = [{"role": "user", "content": target.prompt}]
    body: dict[str, Any] = {"model": model, "messages": messages, "max_tokens": target.max_tokens, "stream": target.stream}
    reply = ask(target, "POST", "/chat/completions", body)
    if reply.status in (401, 403):
        return (
            fail("engine.answer", f"the key was refused: {said(reply)}", "a text", refusal(reply, target), subject=subject),
            reply,
            None,
            None,
        )
    if reply.status == 429:
        after = reply.headers.get("retry-after", "")
        found = f"too many requests: {said(reply)}" + (f", retry after {after} s" if after else "")
        return (
            fail("engine.answer", found, "a text", "Wait, or ask for a higher limit, and run again.", subject=subject),
            reply,
            None,
            None,
        )
    if reply.status != 200:
        remedy = f"Correct the request for {model}, or read the engine's log, and run again."
        return fail("engine.answer", said(reply), "a text", remedy, subject=subject), reply, None, None
    if target.stream and reply.first_ms is None and b"data:" not in reply.body:
        return (
            fail(
                "engine.answer",
                "an answer that is no stream",
                "a stream",
                "Turn streaming off for this engine and run again.",
                subject=subject,
            ),
            reply,
            None,
            None,
        )
    if target.stream:
        text, error, usage = stream_text(reply.body)
        if error:
            found = f"an error in the stream: {error.replace('HTTP 200 ', '')}"
            return (
                fail("engine.answer", found, "a text", "Read the engine's log and run again.", subject=subject),
                reply,
                None,
                usage,
            )
        return judge_answer(target, model, text, reply), reply, text, usage
    data = reply.json()
    try:
        whole: str | None = str(data["choices"][0]["message"]["content"] or "")
    except (TypeError, KeyError, IndexError):
        whole = None
    return judge_answer(target, model, whole, reply), reply, whole, data.get("usage") if isinstance(data, dict) else None


# -- one look ------------------------------------------------------------------------------------------------


def unreachable(error: EndpointError) -> Result:
    """The result for an endpoint that could not be asked."""
    remedy = "Start the engine, or correct its address, and run again."
    checks = [
        fail("engine.ready", str(error), "ready", remedy),
        not_asked("engine.answer", "not asked, since the engine is not ready"),
    ]
    return Result(STARTING if error.starting else BROKEN, checks)


def look(target: Target) -> Result:
    """Ask the endpoint once: ready, models, one question. Never raises for what the endpoint does."""
    try:
        if target.adapter == "triton":
            state, checks, index, ready_ms = triton_ready(target)
            names = list(index)
        else:
            state, checks, names, ready_ms = openai_ready(target)
    except EndpointError as error:
        return unreachable(error)
    result = Result(state, checks, models=names, timings={"ready_ms": ready_ms, "first_token_ms": None, "total_ms": None})
    wanted = target.model or (target.models[0] if target.models else "")
    result.model = wanted or (names[0] if names else "")
    if not target.ask:
        return result
    if state != READY:
        checks.append(not_asked("engine.answer", "not asked, since the engine is not ready"))
        return result
    if not result.model:
        checks.append(Check("engine.answer", SKIP, found="the engine has no model"))
        return result
    try:
        reply: Reply | None
        if target.adapter == "triton":
            check, reply, result.answer = triton_answer(target, result.model)
        else:
            check, reply, result.answer, result.usage = openai_answer(target, result.model)
    except EndpointError as error:
        remedy = "Read the engine's log and run again."
        checks.append(fail("engine.answer", str(error), "a text", remedy, subject=f"model {result.model}"))
        return result
    checks.append(check)
    if reply is not None:
        result.timings.update(first_token_ms=reply.first_ms, total_ms=reply.total_ms)
    return result


def tls_context(ca_path: str, verify: bool) -> ssl.SSLContext:
    """TLS settings: the system's authorities and those in ca_path. Raises OSError or ssl.SSLError for a file that is none."""
    context = ssl.create_default_context()
    if ca_path:
        context.load_verify_locations(cafile=ca_path)
    if not verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context
