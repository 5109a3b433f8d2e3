"""Engines that fail: what the caller gets, and what the engine is spared."""

from __future__ import annotations

import asyncio
import email.utils
import json
import time
from typing import Any

import aiohttp
import pytest

from fake_engines import (
    DONE,
    Behaviour,
    FakeOpenAI,
    FakeTriton,
    chat_ok,
    chunk,
    engine,
    entry,
    finish,
    hang,
    proxy,
    raw_body,
    reset,
    sse,
    status,
    stream_of,
    text_of,
)

ROLE = chunk(role="assistant", content="")
HELLO = chunk(content="Hello ")
ERROR = sse({"error": {"message": "out of memory", "type": "server_error", "code": 500}})


def infer_bytes(text: bytes) -> Behaviour:
    output = {"name": "output", "datatype": "BYTES", "shape": [1], "data": ["@@"]}
    return raw_body(json.dumps({"outputs": [output]}).encode().replace(b"@@", text))


#: (name, behaviour, status, code, words in the message)
BEFORE_CONTENT: list[tuple[str, Behaviour, int, str, str]] = [
    ("500", status(500), 502, "engine_failed", "500: said so"),
    ("502", status(502, {"detail": "bad gateway"}), 502, "engine_failed", "bad gateway"),
    ("503", status(503), 503, "engine_busy", "503"),
    ("429", status(429, Retry_After="17"), 503, "engine_busy", "429"),
    ("400", status(400, {"error": {"message": "too long", "param": "messages"}}), 400, "invalid_request", "too long"),
    ("422", status(422, {"detail": "strict schema"}), 400, "invalid_request", "strict schema"),
    ("404", status(404), 502, "engine_lacks_model", "404"),
    ("401", status(401), 502, "engine_refused_key", "refused our key"),
    ("403", status(403), 502, "engine_refused_key", "refused our key"),
    ("302", status(302, Location="http://127.0.0.1:9/"), 502, "engine_answer_invalid", "check the base URL"),
    ("504", status(504), 504, "engine_timeout", "504"),
    ("hang", hang, 504, "engine_timeout", "within 0.4 s"),
    ("reset", reset, 502, "engine_closed_connection", "without an answer"),
    ("malformed json", raw_body(b'{"choices": ['), 502, "engine_answer_invalid", "not JSON"),
    ("html", raw_body(b"<html>", "text/html"), 502, "engine_answer_invalid", ""),
    ("json of another kind", raw_body(b'{"hello": 1}'), 502, "engine_answer_invalid", ""),
    ("200 with error", raw_body(b'{"error": {"message": "boom"}}'), 502, "engine_failed", "boom"),
    ("200 with error 400", raw_body(b'{"error": {"message": "bad", "code": 400}}'), 400, "invalid_request", "bad"),
]

STREAM_BEFORE_CONTENT: list[tuple[str, Behaviour, int, str, str]] = [
    ("error as first event", stream_of(ERROR), 502, "engine_failed", "out of memory"),
    ("error after the role", stream_of(ROLE, ERROR), 502, "engine_failed", "out of memory"),
    ("named error event", stream_of(b'event: error\ndata: {"message": "gone"}\n\n'), 502, "engine_failed", "gone"),
    ("error 429 as event", stream_of(sse({"error": {"message": "slow down", "code": "429"}})), 503, "engine_busy", "slow down"),
    ("silent after the role", stream_of(ROLE, then="hang"), 504, "engine_timeout", "no content within 0.4 s"),
    ("cut after the role", stream_of(ROLE, then="cut"), 502, "engine_closed_connection", "ended early"),
    ("ended after the role", stream_of(ROLE), 502, "engine_closed_connection", "before the answer did"),
    ("event that is no JSON", stream_of(sse(b"{nope")), 502, "engine_answer_invalid", "not JSON"),
    ("event of another kind", stream_of(sse(b"[1]")), 502, "engine_answer_invalid", "no JSON object"),
    ("heartbeats only", stream_of(b": ping\n\n" * 3, then="hang"), 504, "engine_timeout", "no content"),
]


def times(behaviour: Behaviour) -> list[Behaviour]:
    """A reset is needed twice: on a connection that lay idle the first one is the engine's right."""
    return [behaviour] * (2 if behaviour is reset else 1)


def named(rows: list[Any]) -> Any:
    return pytest.mark.parametrize("row", rows, ids=[row[0] for row in rows])


@named(BEFORE_CONTENT)
async def test_a_single_engine_fails_without_streaming(row: Any) -> None:
    _name, behaviour, code, kind, words = row
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu-7", lpu)) as caller:
        lpu.script.extend(times(behaviour))
        status_, body, headers = await caller.infer()
        error = body["error"]
        assert (status_, error["code"], error["engine"]) == (code, kind, "lpu-7")
        assert "lpu-7" in error["message"]
        assert words in error["message"]
        assert error["trace_id"] == headers["x-trace-id"]
        assert error["type"] == ("engine_error" if code >= 500 else "invalid_request_error")
        # One fault closes nothing: the next request is answered.
        if kind != "engine_busy":
            assert (await caller.infer())[0] == 200


@named(BEFORE_CONTENT + STREAM_BEFORE_CONTENT)
async def test_a_single_engine_fails_before_the_first_content_of_a_stream(row: Any) -> None:
    name, behaviour, code, kind, words = row
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu-7", lpu)) as caller:
        lpu.script.extend(times(behaviour))
        status_, events, _headers = await caller.stream()
        error = events[0]["error"]
        assert (status_, error["code"], error["engine"]) == (code, kind, "lpu-7")
        if name != "malformed json":
            assert words in error["message"]


@named([row for row in BEFORE_CONTENT + STREAM_BEFORE_CONTENT if row[2] != 400])
async def test_the_next_engine_answers_instead(row: Any) -> None:
    async with engine(FakeOpenAI) as one, engine(FakeOpenAI) as two:
        first, second = entry("one", one, **{"class": "latency"}), entry("two", two)
        async with proxy(first, second) as caller:
            one.script.extend(times(row[1]))
            code, events, headers = await caller.stream()
            assert (code, text_of(events), events[-1]) == (200, "Hello world", "[DONE]")
            assert headers["x-inferack-engine"] == "two"


async def test_a_bad_request_is_not_tried_elsewhere() -> None:
    async with engine(FakeOpenAI) as one, engine(FakeOpenAI) as two:
        async with proxy(entry("one", one, **{"class": "latency"}), entry("two", two)) as caller:
            one.script.append(status(400))
            assert (await caller.infer())[0] == 400
            assert two.bodies == []


AFTER_CONTENT: list[tuple[str, Behaviour, str]] = [
    ("error event", stream_of(ROLE, HELLO, ERROR), "out of memory"),
    ("cut", stream_of(ROLE, HELLO, then="cut"), "ended early"),
    ("silent", stream_of(ROLE, HELLO, then="hang"), "silent for 0.3 s"),
    ("ended without a finish", stream_of(ROLE, HELLO), "before the answer did"),
    ("not JSON", stream_of(ROLE, HELLO, sse(b"{")), "not JSON"),
]


@named(AFTER_CONTENT)
async def test_an_interrupted_stream_says_so_and_is_never_replayed(row: Any) -> None:
    _name, behaviour, words = row
    async with engine(FakeOpenAI) as one, engine(FakeOpenAI) as two:
        async with proxy(entry("one", one, **{"class": "latency"}), entry("two", two)) as caller:
            one.script.append(behaviour)
            code, events, headers = await caller.stream(stream_options={"include_usage": True})
            assert code == 200
            assert text_of(events) == "Hello "
            error = events[-1]["error"]
            assert (error["code"], error["engine"], error["trace_id"]) == ("interrupted", "one", headers["x-trace-id"])
            assert words in error["message"]
            assert two.bodies == []
            metrics = (await caller.get("/metrics"))[1]
            assert 'streams_interrupted_total{engine="one"} 1.0' in metrics
            # What was delivered is accounted for.
            assert 'tokens_total{engine="one",kind="completion",route="m"} 2.0' in metrics


@pytest.mark.parametrize(
    "parts",
    [
        [ROLE, HELLO, finish()],  # no [DONE]
        [ROLE, HELLO, finish(), b"data: [DONE]"],  # no empty line at the end
        [(ROLE + HELLO + finish() + DONE).replace(b"\n", b"\r\n")],
        [b": hi\n\n", ROLE, b"event: message\n" + HELLO, finish(), DONE],
        [b"\xef\xbb\xbf" + ROLE, HELLO, finish(), DONE],
        [ROLE[:20], ROLE[20:] + HELLO[:9], HELLO[9:] + finish() + DONE[:5], DONE[5:]],
    ],
)
async def test_unusual_but_whole_streams(parts: list[bytes]) -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu)) as caller:
        lpu.script.append(stream_of(*parts))
        code, events, _headers = await caller.stream()
        assert (code, text_of(events), events[-1]) == (200, "Hello ", "[DONE]")


async def test_an_answer_without_content_is_an_answer() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu)) as caller:
        lpu.script.append(stream_of(ROLE, finish("length"), DONE))
        code, events, _headers = await caller.stream()
        assert (code, events[-1]) == (200, "[DONE]")
        assert events[-2]["choices"][0]["finish_reason"] == "length"


async def test_tool_calls_and_reasoning_count_as_content() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu)) as caller:
        for delta in ({"tool_calls": [{"index": 0}]}, {"reasoning_content": "hm"}):
            lpu.script.append(stream_of(ROLE, chunk(**delta), then="hang"))
            code, events, _headers = await caller.stream()
            assert (code, events[-1]["error"]["code"]) == (200, "interrupted")
            assert events[1]["choices"][0]["delta"] == delta


async def test_invalid_utf8() -> None:
    async with engine(FakeOpenAI) as lpu, engine(FakeTriton, "t") as gpu:
        async with proxy(entry("lpu", lpu), entry("gpu", gpu)) as caller:
            lpu.script.append(raw_body(b'{"choices":[{"message":{"content":"a\xffb"},"finish_reason":"stop"}]}'))
            assert (await caller.infer(model="m"))[1]["output"] == "a�b"
            lpu.script.append(stream_of(ROLE, b'data: {"choices":[{"delta":{"content":"a\xffb"}}]}\n\n', finish(), DONE))
            assert text_of((await caller.stream(model="m"))[1]) == "a�b"
            gpu.answer = b"a\xffb"
            assert (await caller.infer(model="t"))[1]["output"] == "a�b"
            gpu.script.append(infer_bytes(b"a\xffb"))  # JSON instead of binary
            assert (await caller.infer(model="t"))[1]["output"] == "a�b"


async def test_a_character_split_over_two_events_of_generate_stream() -> None:
    options = {"protocol": "generate_stream"}
    async with engine(FakeTriton) as gpu, proxy(entry("gpu", gpu, options=options)) as caller:
        events = [sse(b'{"output":"' + part + b'"}') for part in (b"gr\xc3", b"\xbcn ", b"\xff!")]
        gpu.script.extend([stream_of(*events), stream_of(*events)])
        assert text_of((await caller.stream())[1]) == "grün �!"
        assert (await caller.infer())[1]["output"] == "grün �!"


TRITON: list[tuple[str, dict[str, Any], Behaviour, int, str, str]] = [
    ("500 for bad input", {}, status(500, {"error": "expected 1 input"}), 502, "engine_rejected", "expected 1 input"),
    ("empty 200", {}, raw_body(b""), 502, "engine_answer_invalid", "not JSON"),
    ("200 with error", {}, raw_body(b'{"error": "stub died"}'), 502, "engine_rejected", "stub died"),
    ("no outputs", {}, raw_body(b'{"model_name": "m"}'), 502, "engine_answer_invalid", "without the output output"),
    ("other output", {}, raw_body(b'{"outputs":[{"name":"x"}]}'), 502, "engine_answer_invalid", "it has x"),
    (
        "wrong type",
        {},
        raw_body(b'{"outputs":[{"name":"output","datatype":"FP32","data":[1]}]}'),
        502,
        "engine_answer_invalid",
        "FP32, expected BYTES",
    ),
    (
        "cut binary",
        {},
        raw_body(
            b'{"outputs":[{"name":"output","datatype":"BYTES","parameters":{"binary_data_size":9}}]}\x09\x00\x00\x00a',
            Inference_Header_Content_Length="86",
        ),
        502,
        "engine_answer_invalid",
        "cut off",
    ),
    ("missing model", {}, status(404, {"error": "unknown model"}), 502, "engine_lacks_model", "unknown model"),
    ("generate: 200 with error", {"protocol": "generate_stream"}, raw_body(b'{"error":"x"}'), 502, "engine_rejected", "x"),
    ("generate: error event", {"protocol": "generate_stream"}, stream_of(sse({"error": "y"})), 502, "engine_rejected", "y"),
]


@named(TRITON)
async def test_triton_fails(row: Any) -> None:
    _name, options, behaviour, code, kind, words = row
    async with engine(FakeTriton) as gpu, proxy(entry("gpu", gpu, options={**options, "canary": ""})) as caller:
        for call in (caller.infer, caller.stream):
            gpu.script.append(behaviour)
            status_, body, _headers = await call()
            error = (body[0] if isinstance(body, list) else body)["error"]
            assert (status_, error["code"], error["engine"]) == (code, kind, "gpu")
            assert words in error["message"]


async def test_an_error_in_the_middle_of_generate_stream() -> None:
    options = {"protocol": "generate_stream", "canary": ""}
    async with engine(FakeTriton) as gpu, proxy(entry("gpu", gpu, options=options)) as caller:
        gpu.script.append(stream_of(sse({"output": "one "}), sse({"error": "late"})))
        code, events, _headers = await caller.stream()
        assert (code, text_of(events), events[-1]["error"]["code"]) == (200, "one ", "interrupted")


async def test_tritons_500_is_not_repeated_blindly_and_opens_no_breaker() -> None:
    async with engine(FakeTriton) as gpu:
        async with proxy(
            entry("gpu", gpu, options={"canary": ""}), retries={"delays_s": [0.01]}, breaker={"failures": 1}
        ) as caller:
            gpu.script.append(status(500, {"error": "bad shape"}))
            assert (await caller.infer())[0] == 502
            assert len(gpu.bodies) == 1
            assert (await caller.infer())[0] == 200


async def test_a_dead_stub_is_found_by_the_canary() -> None:
    async with engine(FakeTriton) as gpu, proxy(entry("gpu", gpu)) as caller:
        assert gpu.canaries == 1
        gpu.script.extend([status(500)] * 50)
        assert (await caller.infer())[0] == 502
        for _ in range(100):
            if (await caller.get("/readyz"))[0] == 503:
                break
            await asyncio.sleep(0.02)
        else:
            raise AssertionError("still ready")
        gpu.script.clear()
        await caller.until_ready()


async def test_connection_refused_names_the_engine_and_the_next_one_answers() -> None:
    async with engine(FakeOpenAI) as two:
        gone = entry("gone", "http://127.0.0.1:9")
        async with proxy(gone, ready=False) as caller:
            code, body, _headers = await caller.infer()
            assert (code, body["error"]["code"], body["error"]["engine"]) == (502, "engine_unreachable", "gone")
        async with proxy({**gone, "class": "latency"}, entry("two", two)) as caller:
            for _ in range(3):
                assert (await caller.infer())[1]["engine"] == "two"
            code, text = await caller.get("/readyz")
            assert code == 200
            assert "cannot be reached" in json.loads(text)["models"]["m"]["engines"]["gone"]


async def test_slow_but_alive_is_no_fault() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu)) as caller:
        lpu.script.append(chat_ok(*"abcdefgh", delay=0.15))  # longer than each timer together, shorter each
        code, events, _headers = await caller.stream()
        assert (code, text_of(events), events[-1]) == (200, "abcdefgh", "[DONE]")


async def test_the_total_time_bounds_a_stream_that_never_ends() -> None:
    timers = {"ttft_s": 1, "idle_s": 1, "total_s": 0.5}
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu), timeouts=timers) as caller:
        lpu.script.append(chat_ok(*"abcdefghijklmnopqrstuvwxyz", delay=0.05))
        began = time.monotonic()
        _code, events, _headers = await caller.stream()
        assert 0.4 < time.monotonic() - began < 1.5
        assert events[-1]["error"]["code"] == "interrupted"
        assert "total time" in events[-1]["error"]["message"]


async def test_a_full_round_is_repeated_after_the_pause() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu), retries={"delays_s": [0.05, 0.1]}) as caller:
        lpu.script.extend([status(502), status(503)])
        began = time.monotonic()
        code, body, _headers = await caller.infer()
        assert (code, body["timings"]["attempts"]) == (200, 3)
        assert time.monotonic() - began >= 0.15
        lpu.script.extend([status(502)] * 3)
        assert (await caller.infer())[0] == 502
        assert not lpu.script
        assert 'retries_total{route=""} 4.0' in (await caller.get("/metrics"))[1]


async def test_retry_after_is_a_floor() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu), retries={"delays_s": [0.01]}) as caller:
        lpu.script.append(status(429, Retry_After="0.4"))
        began = time.monotonic()
        code, body, _headers = await caller.infer()
        assert (code, body["timings"]["attempts"]) == (200, 2)
        assert time.monotonic() - began >= 0.4


@pytest.mark.parametrize("how", ["seconds", "date"])
async def test_a_long_retry_after_is_handed_on_and_kept_by_all_callers(how: str) -> None:
    async with engine(FakeOpenAI) as one, engine(FakeOpenAI) as two:
        value = "30" if how == "seconds" else email.utils.formatdate(time.time() + 30, usegmt=True)
        settings = {"retries": {"delays_s": [0.01], "longest_wait_s": 1}}
        async with proxy(entry("one", one), **settings) as caller:
            one.script.append(status(429, Retry_After=value))
            code, body, headers = await caller.infer()
            assert (code, body["error"]["code"]) == (503, "engine_busy")
            assert 28 <= int(headers["Retry-After"]) <= 30
            asked = len(one.bodies)
            code, body, headers = await caller.infer()
            assert (code, body["error"]["code"], body["error"]["engine"]) == (503, "no_engine_available", "one")
            assert 28 <= int(headers["Retry-After"]) <= 30
            assert len(one.bodies) == asked
        async with proxy(entry("one", one, **{"class": "latency"}), entry("two", two), **settings) as caller:
            one.script.append(status(429, Retry_After=value))
            began = time.monotonic()
            assert [(await caller.infer())[1]["engine"] for _ in range(3)] == ["two"] * 3
            assert time.monotonic() - began < 0.5


async def test_the_breaker_opens_tries_once_and_closes() -> None:
    async with engine(FakeOpenAI) as lpu:
        async with proxy(entry("lpu", lpu), breaker={"failures": 2, "rest_s": 0.4}, retries={"delays_s": [0.01]}) as caller:
            lpu.script.extend([status(500)] * 2)
            code, body, _headers = await caller.infer()
            assert (code, body["error"]["code"]) == (502, "engine_failed")
            code, body, headers = await caller.infer()
            assert (code, body["error"]["code"]) == (503, "no_engine_available")
            assert headers["Retry-After"] == "1"
            assert len(lpu.bodies) == 2
            assert 'breaker_open{engine="lpu"} 1.0' in (await caller.get("/metrics"))[1]
            await asyncio.sleep(0.45)
            lpu.script.append(chat_ok("x", delay=0.2))
            trial = asyncio.create_task(caller.infer())
            await asyncio.sleep(0.05)
            assert len(lpu.bodies) == 3  # one trial, and no other beside it
            assert (await trial)[0] == 200
            assert (await caller.infer())[0] == 200
            assert 'breaker_open{engine="lpu"} 0.0' in (await caller.get("/metrics"))[1]


async def test_callers_faults_and_busy_open_no_breaker() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu), breaker={"failures": 1}) as caller:
        for code in (400, 404, 401, 429, 503):
            lpu.script.append(status(code))
            await caller.infer()
        assert (await caller.infer())[0] == 200


async def test_classes_in_the_routes_order_and_fewest_in_flight() -> None:
    async with engine(FakeOpenAI) as lpu, engine(FakeOpenAI) as one, engine(FakeOpenAI) as two:
        engines = [entry("one", one), entry("two", two), entry("lpu", lpu, **{"class": "latency"})]
        async with proxy(*engines) as caller:
            assert (await caller.infer())[1]["engine"] == "lpu"
        routes = [{"name": "bulk", "models": ["m"], "classes": ["throughput"]}]
        async with proxy(*engines, routes=routes) as caller:
            for fake in (one, two):
                fake.script.extend([chat_ok("x", delay=0.2)] * 2)
            answers = await asyncio.gather(*(caller.infer(model="bulk") for _ in range(4)))
            assert sorted(body["engine"] for _code, body, _headers in answers) == ["one", "one", "two", "two"]


@pytest.mark.parametrize("streaming", [False, True])
async def test_a_caller_that_leaves_before_the_answer_cancels_the_engine(streaming: bool) -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu), timeouts={"answer_s": 30, "ttft_s": 30}) as caller:
        lpu.script.append(hang)
        body = {"messages": [{"role": "user", "content": "a"}], "stream": streaming}
        with pytest.raises(asyncio.TimeoutError):
            await caller.session.post(caller.url + "/v1/chat/completions", json=body, timeout=aiohttp.ClientTimeout(total=0.15))
        await asyncio.wait_for(lpu.left.wait(), 1)
        await asyncio.sleep(0.05)
        text = (await caller.get("/metrics"))[1]
        assert 'requests_total{endpoint="/v1/chat/completions",engine="lpu",route="m",status="499"} 1.0' in text
        assert 'in_flight{engine="lpu"} 0.0' in text
        assert caller.proxy.service.in_flight == 0


async def test_a_caller_that_leaves_in_the_middle_of_a_stream_cancels_the_engine() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu), timeouts={"idle_s": 30}) as caller:
        lpu.script.append(stream_of(ROLE, HELLO, then="hang"))
        body = {"messages": [{"role": "user", "content": "a"}], "stream": True}
        response = await caller.session.post(caller.url + "/v1/chat/completions", json=body)
        assert b"Hello" in await response.content.readany()
        response.close()
        await asyncio.wait_for(lpu.left.wait(), 1)
        await asyncio.sleep(0.05)
        text = (await caller.get("/metrics"))[1]
        assert 'status="499"} 1.0' in text
        assert 'tokens_total{engine="lpu",kind="completion",route="m"} 2.0' in text
        # The caller's leaving says nothing about the engine.
        assert "engine_faults_total{" not in text


async def test_tokens_are_not_held_back() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu)) as caller:
        lpu.script.append(chat_ok("a", "b", "c", "d", delay=0.1))
        body = {"messages": [{"role": "user", "content": "a"}], "stream": True}
        arrivals = []
        async with caller.session.post(caller.url + "/v1/chat/completions", json=body) as response:
            async for _chunk in response.content.iter_any():
                arrivals.append(time.monotonic())
        assert len(arrivals) >= 4
        assert arrivals[-1] - arrivals[0] > 0.3


async def test_an_idle_connection_that_the_engine_closed_is_replaced_once() -> None:
    """A plain TCP engine: it answers once on a connection and closes it when the next request comes in."""
    served: list[int] = []
    answer = json.dumps({"choices": [{"message": {"content": "ok"}}]}).encode()

    async def connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        number = len(served)
        served.append(0)
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(
                    (int(line[15:]) for line in head.split(b"\r\n") if line.lower().startswith(b"content-length:")), 0
                )
                await reader.readexactly(length)
                if served[number] == 1:
                    return
                served[number] += 1
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n")
                writer.write(b"Content-Length: %d\r\n\r\n%s" % (len(answer), answer))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionResetError):
            return
        finally:
            writer.close()

    server = await asyncio.start_server(connection, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
    setting = entry("tcp", url, options={"models_listed": False})
    async with proxy(setting) as caller:
        assert [(await caller.infer())[0] for _ in range(3)] == [200] * 3
        assert served == [1, 1, 1]
        assert "engine_faults_total{" not in (await caller.get("/metrics"))[1]
    server.close()


async def test_reload_drops_no_stream() -> None:
    from fake_engines import loaded

    async with engine(FakeOpenAI) as one, engine(FakeTriton) as two, proxy(entry("one", one)) as caller:
        one.script.append(chat_ok(*"abcdef", delay=0.1))
        running = asyncio.create_task(caller.stream())
        await asyncio.wait_for(one.asked.wait(), 1)
        await caller.proxy.swap(loaded({"engines": [entry("two", two)]}))
        await caller.until_ready()
        assert (await caller.infer("x"))[1] | {"timings": 0, "trace_id": ""} == {
            "output": "X",
            "model": "m",
            "engine": "two",
            "timings": 0,
            "trace_id": "",
        }
        _code, events, _headers = await running
        assert (text_of(events), events[-1]) == ("abcdef", "[DONE]")
        assert 'engine_ready{engine="one"' not in (await caller.get("/metrics"))[1]


async def test_a_caller_that_reads_nothing_is_bounded_by_the_total_time() -> None:
    """The engine sends more than the sockets between hold; the caller reads nothing."""
    timers = {"ttft_s": 1, "idle_s": 1, "total_s": 0.6}
    big = [chunk(content="x" * 100_000)] * 200
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu), timeouts=timers) as caller:
        lpu.script.append(stream_of(*big, then="hang"))
        host, port = caller.url.removeprefix("http://").split(":")
        reader, writer = await asyncio.open_connection(host, int(port), limit=1024)
        body = json.dumps({"messages": [{"role": "user", "content": "a"}], "stream": True}).encode()
        writer.write(b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        await asyncio.wait_for(lpu.left.wait(), 3)
        for _ in range(100):
            if not caller.proxy.service.in_flight:
                break
            await asyncio.sleep(0.05)
        assert caller.proxy.service.in_flight == 0
        writer.close()
        del reader


async def test_a_limit_that_was_reloaded_holds() -> None:
    from fake_engines import loaded

    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu)) as caller:
        assert (await caller.infer("a" * 3000))[0] == 200
        await caller.proxy.swap(loaded({"engines": [entry("lpu", lpu)], "limits": {"request_bytes": 1024}}))
        assert (await caller.infer("a" * 3000))[0] == 413

        async def pieces() -> Any:
            for _ in range(4):
                yield b" " * 500

        async with caller.session.post(caller.url + "/infer", data=pieces()) as response:
            assert response.status == 413


async def test_a_drain_finishes_streams() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu)) as caller:
        lpu.script.append(chat_ok(*"abcdef", delay=0.1))
        running = asyncio.create_task(caller.stream())
        await asyncio.wait_for(lpu.asked.wait(), 1)
        await caller.proxy.drain()
        assert caller.proxy.service.in_flight == 0
        assert (await caller.get("/readyz"))[0] == 503
        _code, events, _headers = await running
        assert (text_of(events), events[-1]) == ("abcdef", "[DONE]")
