"""What callers see when all goes well, and what they are told when their request is wrong."""

from __future__ import annotations

import json
import re

import pytest

from fake_engines import FakeOpenAI, FakeTriton, chat_ok, engine, entry, proxy, text_of


async def test_infer_over_triton() -> None:
    async with engine(FakeTriton) as gpu, proxy(entry("gpu-1", gpu)) as caller:
        code, body, headers = await caller.infer("hello")
        assert code == 200
        assert (body["output"], body["model"], body["engine"]) == ("HELLO", "m", "gpu-1")
        assert body["trace_id"] == headers["x-trace-id"]
        assert body["timings"]["attempts"] == 1
        assert headers["x-inferack-engine"] == "gpu-1"
        assert headers["Server"] == "inferack-adapter-proxy"


async def test_infer_over_openai_passes_parameters_on() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu)) as caller:
        code, body, _headers = await caller.infer("hello", parameters={"max_tokens": 5, "temperature": 0})
        assert (code, body["output"]) == (200, "Hello world")
        assert lpu.bodies[-1] == {
            "model": "m",
            "messages": [{"role": "user", "content": "hello"}],
            "max_tokens": 5,
            "temperature": 0,
        }


@pytest.mark.parametrize(
    ("field", "sent"),
    [("max_tokens", {"max_completion_tokens": 5}), ("max_completion_tokens", {"max_tokens": 5, "max_completion_tokens": 5})],
)
async def test_an_engine_gets_one_name_for_the_token_limit(field: str, sent: dict[str, int]) -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu, options={"max_tokens_field": field})) as caller:
        await caller.chat(**sent)
        assert {name: value for name, value in lpu.bodies[-1].items() if "tokens" in name} == {field: 5}


async def test_chat_without_streaming() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu)) as caller:
        code, body, _headers = await caller.chat(model="m", tools=[{"type": "function"}])
        assert code == 200
        assert body["choices"][0]["message"]["content"] == "Hello world"
        assert body["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
        assert lpu.bodies[-1]["tools"] == [{"type": "function"}]
        assert "stream_options" not in lpu.bodies[-1]


async def test_chat_streams_and_hides_usage_nobody_asked_for() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu)) as caller:
        code, events, headers = await caller.stream(model="m")
        assert code == 200
        assert text_of(events) == "Hello world"
        assert events[-1] == "[DONE]"
        assert not any("usage" in event for event in events[:-1])
        assert headers["Content-Type"] == "text/event-stream; charset=utf-8"
        assert (headers["Cache-Control"], headers["X-Accel-Buffering"]) == ("no-cache", "no")
        assert re.fullmatch("[0-9a-f]{32}", headers["x-trace-id"])
        # The engine is asked for usage all the same: the proxy counts.
        assert lpu.bodies[-1]["stream_options"] == {"include_usage": True}
        assert 'inferack_proxy_tokens_total{engine="lpu",kind="completion",route="m"} 2.0' in (await caller.get("/metrics"))[1]


async def test_chat_streams_usage_that_was_asked_for() -> None:
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu)) as caller:
        _code, events, _headers = await caller.stream(stream_options={"include_usage": True})
        assert events[-2]["usage"] == {"prompt_tokens": 7, "completion_tokens": 2, "total_tokens": 9}
        assert events[-2]["choices"] == []
        assert len([event for event in events[:-1] if event.get("usage")]) == 1
        lpu.script.append(chat_ok("Hello world", usage=False))
        _code, events, _headers = await caller.stream(stream_options={"include_usage": True})
        assert events[-2]["usage"]["estimated"] is True
        assert events[-2]["usage"]["completion_tokens"] == 3


async def test_chat_over_triton_streaming_and_not() -> None:
    async with engine(FakeTriton) as gpu, proxy(entry("gpu", gpu)) as caller:
        code, body, _headers = await caller.chat()
        assert (code, body["object"]) == (200, "chat.completion")
        assert body["choices"][0]["message"] == {"role": "assistant", "content": "HELLO"}
        assert body["choices"][0]["finish_reason"] == "stop"
        assert body["usage"]["total_tokens"] == body["usage"]["prompt_tokens"] + body["usage"]["completion_tokens"] == 4
        code, events, _headers = await caller.stream(stream_options={"include_usage": True})
        assert code == 200
        assert events[0]["choices"][0]["delta"] == {"role": "assistant", "content": ""}
        assert text_of(events) == "HELLO"
        assert [event["choices"][0]["finish_reason"] for event in events[:-2]] == [None, None, "stop"]
        assert events[-2]["usage"]["completion_tokens"] == 2
        assert events[-1] == "[DONE]"


async def test_triton_gets_the_transcript_and_scalar_parameters_only() -> None:
    async with engine(FakeTriton) as gpu, proxy(entry("gpu", gpu)) as caller:
        messages = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": [{"type": "text", "text": "Hi"}]}]
        sent = {"messages": messages, "temperature": 0.5, "stop": ["x"], "priority": 1, "triton_x": 1, "seed": 7}
        code, _body, _headers = await caller.post("/v1/chat/completions", sent)
        assert code == 200
        assert gpu.bodies[-1]["inputs"][0]["data"] == ["system: Be brief.\nuser: Hi\nassistant:"]
        assert gpu.bodies[-1]["parameters"] == {"temperature": 0.5, "seed": 7}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [{}]}, "tools"),
        ({"n": 2}, "n"),
        ({"response_format": {"type": "json_object"}}, "response_format"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "messages"),
    ],
)
async def test_triton_refuses_what_it_cannot_honour(fields: dict[str, object], param: str) -> None:
    async with engine(FakeTriton) as gpu, proxy(entry("gpu", gpu)) as caller:
        before = len(gpu.bodies)
        code, body, _headers = await caller.chat(**fields)
        assert code == 400
        assert (body["error"]["code"], body["error"]["param"], body["error"]["engine"]) == (
            "unsupported_parameter",
            param,
            "gpu",
        )
        assert len(gpu.bodies) == before


@pytest.mark.parametrize(
    ("path", "body", "code", "param"),
    [
        ("/infer", b"", "invalid_json", None),
        ("/infer", b"{", "invalid_json", None),
        ("/infer", b"\xff\xfe", "invalid_json", None),
        ("/infer", b"[]", "invalid_request", None),
        ("/infer", b"{}", "missing_text", "text"),
        ("/infer", b'{"text": ""}', "missing_text", "text"),
        ("/infer", b'{"text": null}', "missing_text", "text"),
        ("/infer", b'{"text": 3}', "invalid_request", "text"),
        ("/infer", b'{"text": ["a"]}', "invalid_request", "text"),
        ("/infer", b'{"text": "a", "model": 1}', "invalid_request", "model"),
        ("/infer", b'{"text": "a", "parameters": []}', "invalid_request", "parameters"),
        ("/infer", b'{"text": "a", "parameters": {"stream": true}}', "invalid_request", "parameters.stream"),
        ("/infer", b'{"text": "a", "txet": "b"}', "unknown_field", "txet"),
        ("/v1/chat/completions", b"nope", "invalid_json", None),
        ("/v1/chat/completions", b'{"model": "m"}', "missing_messages", "messages"),
        ("/v1/chat/completions", b'{"messages": []}', "invalid_request", "messages"),
        ("/v1/chat/completions", b'{"messages": ["a"]}', "invalid_request", "messages[0]"),
        ("/v1/chat/completions", b'{"messages": [{"role": "user", "content": 1}]}', "invalid_request", "messages[0].content"),
        (
            "/v1/chat/completions",
            b'{"messages": [{"role": "user", "content": "a"}], "stream": "yes"}',
            "invalid_request",
            "stream",
        ),
        (
            "/v1/chat/completions",
            b'{"messages": [{"role": "user", "content": "a"}], "stream_options": {}}',
            "invalid_request",
            "stream_options",
        ),
    ],
)
async def test_a_wrong_request_is_a_400_that_names_the_field(path: str, body: bytes, code: str, param: str | None) -> None:
    async with proxy(entry("gone", "http://127.0.0.1:9"), ready=False) as caller:
        status, answer, headers = await caller.post(path, body)
        assert status == 400
        error = answer["error"]
        assert (error["code"], error["param"], error["type"]) == (code, param, "invalid_request_error")
        assert error["message"]
        assert error["engine"] is None
        assert error["trace_id"] == headers["x-trace-id"]


async def test_an_unknown_model_is_a_404_that_names_the_known() -> None:
    async with proxy(entry("gone", "http://127.0.0.1:9"), ready=False) as caller:
        for code, body, _headers in (await caller.infer(model="x"), await caller.chat(model="x")):
            assert code == 404
            assert body["error"]["code"] == "model_not_found"
            assert body["error"]["message"] == "unknown model 'x'; known are m"


async def test_paths_methods_and_sizes() -> None:
    async with proxy(entry("gone", "http://127.0.0.1:9"), ready=False, limits={"request_bytes": 2048}) as caller:
        code, body, _headers = await caller.post("/nothing", {})
        assert (code, body["error"]["code"]) == (404, "not_found")
        code, text = await caller.get("/infer")
        assert (code, json.loads(text)["error"]["code"]) == (405, "method_not_allowed")
        code, body, _headers = await caller.infer("a" * 5000)
        assert (code, body["error"]["code"]) == (413, "request_too_large")
        assert "2048 bytes" in body["error"]["message"]


async def test_models_routes_and_the_default() -> None:
    async with engine(FakeTriton, "a", "b") as gpu:
        routes = [{"name": "quick", "models": ["b", "a"]}]
        async with proxy(entry("gpu", gpu), routes=routes) as caller:
            body = json.loads((await caller.get("/v1/models"))[1])
            assert [(model["id"], model["ready"]) for model in body["data"]] == [("quick", True), ("b", True), ("a", True)]
            assert (await caller.infer())[1]["model"] == "b"
        async with proxy(entry("gpu", gpu), default_model="b") as caller:
            assert (await caller.infer())[1]["model"] == "b"
        async with proxy(entry("gpu", gpu)) as caller:
            assert (await caller.infer())[1]["model"] == "a"


async def test_a_model_may_be_called_otherwise_by_its_engine() -> None:
    async with engine(FakeOpenAI, "m") as lpu:
        lpu.models = ["vendor/m-8b"]
        setting = {**entry("lpu", lpu, served_as={"m": "vendor/m-8b"}), "models": ["m"]}
        async with proxy(setting) as caller:
            _code, body, _headers = await caller.chat(model="m")
            assert (lpu.bodies[-1]["model"], body["model"]) == ("vendor/m-8b", "m")


async def test_trace_ids() -> None:
    trace_id, parent = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
    async with engine(FakeOpenAI) as lpu, proxy(entry("lpu", lpu)) as caller:
        given = f"00-{trace_id}-{parent}-01"
        _code, body, headers = await caller.post("/infer", {"text": "a"}, traceparent=given)
        assert body["trace_id"] == headers["x-trace-id"] == trace_id
        sent = lpu.headers[-1]["traceparent"]
        assert sent == headers["traceparent"]
        assert sent.startswith(f"00-{trace_id}-")
        assert parent not in sent
        for invalid in ("junk", f"00-{'0' * 32}-{parent}-01", f"ff-{trace_id}-{parent}-01", f"00-{trace_id}-{parent}-01-x"):
            _code, body, headers = await caller.post("/infer", {"text": "a"}, traceparent=invalid)
            assert body["trace_id"] != trace_id
            assert re.fullmatch("[0-9a-f]{32}", body["trace_id"])


async def test_health_and_readiness() -> None:
    async with engine(FakeTriton) as gpu, engine(FakeOpenAI, "n") as lpu:
        async with proxy(entry("gpu", gpu), entry("lpu", lpu)) as caller:
            code, text = await caller.get("/healthz")
            body = json.loads(text)
            assert (code, body["status"]) == (200, "ok")
            assert body["config_sha256"] == caller.proxy.service.loaded.sha256
            code, text = await caller.get("/readyz")
            assert (code, json.loads(text)["not_ready"]) == (200, [])
            lpu.probe_status = 503
            for _ in range(100):
                code, text = await caller.get("/readyz")
                if code == 503:
                    break
                await __import__("asyncio").sleep(0.02)
            body = json.loads(text)
            assert (code, body["status"], body["not_ready"]) == (503, "not_ready", ["n"])
            assert body["models"]["m"] == {"ready": True, "engines": {"gpu": "ready"}}
            assert "503" in body["models"]["n"]["engines"]["lpu"]
            # Metrics say the same.
            assert 'inferack_proxy_engine_ready{engine="lpu",model="n"} 0.0' in (await caller.get("/metrics"))[1]


async def test_metrics_count_per_engine_and_route() -> None:
    async with engine(FakeOpenAI) as lpu:
        routes = [{"name": "fast", "models": ["m"]}]
        async with proxy(entry("lpu", lpu), routes=routes) as caller:
            await caller.infer()
            await caller.stream()
            await caller.infer(model="unheard-of")
            _code, text = await caller.get("/metrics")
            assert 'requests_total{endpoint="/infer",engine="lpu",route="fast",status="200"} 1.0' in text
            assert 'requests_total{endpoint="/infer",engine="",route="",status="404"} 1.0' in text
            assert "unheard-of" not in text
            assert 'request_seconds_count{endpoint="/v1/chat/completions",engine="lpu",route="fast"} 1.0' in text
            assert 'first_content_seconds_count{engine="lpu",route="fast"} 1.0' in text
            assert 'inferack_proxy_in_flight{engine="lpu"} 0.0' in text
            assert "inferack_proxy_build_info" in text
