"""Keys are nowhere but in the header that the engine gets."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator

import pytest
from inferack_adapter_proxy.logs import JsonFormatter, Redactor

from fake_engines import (
    KEY,
    Behaviour,
    FakeOpenAI,
    chunk,
    engine,
    entry,
    hang,
    loaded,
    proxy,
    raw_body,
    reset,
    sse,
    status,
    stream_of,
)

#: What a careless engine answers: it repeats the key.
REPEATS: list[Behaviour] = [
    status(400, {"error": {"message": f"bad request with {KEY}"}}),
    status(401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}),
    status(500, {"error": {"message": f"crashed on {KEY}"}}),
    status(429, {"error": {"message": f"limit of {KEY}"}}),
    raw_body(KEY.encode()),
    raw_body(json.dumps({"error": {"message": KEY}}).encode()),
    raw_body(KEY.encode(), "text/html"),
    hang,
    reset,
    stream_of(sse({"error": {"message": f"no {KEY}"}})),
    stream_of(chunk(content="a"), sse({"error": {"message": f"no {KEY}"}})),
    stream_of(chunk(content="a"), sse(KEY.encode())),
]


class Lines(logging.Handler):
    """Log lines as they would be printed."""

    def __init__(self, redact: Redactor) -> None:
        super().__init__(logging.DEBUG)
        self.setFormatter(JsonFormatter(redact))
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def root_logger() -> Iterator[logging.Logger]:
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield root
    root.setLevel(level)
    root.handlers[:] = handlers


async def test_no_key_leaves_the_proxy(root_logger: logging.Logger, capfd: pytest.CaptureFixture[str]) -> None:
    async with engine(FakeOpenAI) as lpu:
        lpu.key = KEY
        async with proxy(entry("lpu", lpu, key_required=True), keys={"lpu": KEY}, breaker={"failures": 99}) as caller:
            log = Lines(caller.proxy.redact)
            root_logger.addHandler(log)
            root_logger.setLevel(logging.DEBUG)
            seen: list[str] = []
            for behaviour in REPEATS:
                for call in (caller.infer, caller.chat, caller.stream):
                    caller.proxy.service.states["lpu"].busy_until = 0
                    lpu.script.extend([behaviour] * (2 if behaviour is reset else 1))
                    code, body, headers = await call()
                    lpu.script.clear()
                    seen += [str(code), json.dumps(body), str(dict(headers))]
                    assert lpu.headers[-1]["Authorization"] == f"Bearer {KEY}"
            lpu.key = "another"  # and one whose key was changed at the engine
            seen.append(json.dumps((await caller.infer())[1]))
            await caller.proxy.service.probe(caller.proxy.service.states["lpu"], True)
            for path in ("/readyz", "/healthz", "/metrics", "/v1/models"):
                seen.append((await caller.get(path))[1])
            logging.getLogger("aiohttp.client").error("would say %s", KEY)
            try:
                raise RuntimeError(f"with {KEY}")
            except RuntimeError:
                logging.getLogger("other").exception("trouble")
        assert len(log.lines) >= 3 * len(REPEATS)
        everything = "\n".join([*seen, *log.lines, *capfd.readouterr()])
        for form in (KEY, json.dumps(KEY)[1:-1]):
            assert form not in everything
        assert "***" in everything


async def test_no_prompt_and_no_answer_in_the_log(root_logger: logging.Logger) -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu)) as caller:
        log = Lines(caller.proxy.redact)
        root_logger.addHandler(log)
        root_logger.setLevel(logging.INFO)
        await caller.infer("a very private prompt")
        await caller.infer("a very private prompt", model="a very private model")
        await caller.post("/infer", b'{"text": "a very private prompt"')
        lines = [json.loads(line) for line in log.lines]
        requests = [line for line in lines if line.get("event") == "request"]
        assert [line["status"] for line in requests] == [200, 404, 400]
        assert "private" not in "".join(log.lines)
        assert "Hello world" not in "".join(log.lines)
        first = requests[0]
        assert (first["engine"], first["model"], first["prompt_tokens"], first["completion_tokens"]) == ("lpu", "m", 7, 2)
        assert first["duration_s"] > 0
        assert len(first["trace_id"]) == 32


async def test_callers_headers_do_not_reach_the_engine() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu), keys={"lpu": KEY}) as caller:
        headers = {
            "Authorization": "Bearer of-the-caller",
            "Cookie": "a=b",
            "X-Forwarded-For": "1.2.3.4",
            "Accept-Encoding": "br",
        }
        code, _body, _headers = await caller.post("/infer", {"text": "a"}, **headers)
        assert code == 200
        sent = {name.lower() for name in lpu.headers[-1]}
        assert sent == {
            "host",
            "accept",
            "accept-encoding",
            "user-agent",
            "authorization",
            "content-type",
            "content-length",
            "traceparent",
        }
        assert lpu.headers[-1]["Authorization"] == f"Bearer {KEY}"


def test_a_loaded_configuration_does_not_show_keys() -> None:
    config = {"engines": [entry("lpu", "http://127.0.0.1:9")]}
    assert KEY not in repr(loaded(config, {"lpu": KEY}).config)
