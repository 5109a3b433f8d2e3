"""The parts by themselves: the event parser under any chunking, chat as text, Retry-After, the watchdog."""

from __future__ import annotations

import asyncio
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from inferack_adapter_proxy.chat import NotText, as_text
from inferack_adapter_proxy.engines.base import MAX_RETRY_AFTER_S, estimate, retry_after, said
from inferack_adapter_proxy.faults import EngineFault
from inferack_adapter_proxy.sse import MAX_EVENT_BYTES, Event, SseParser
from inferack_adapter_proxy.trace import start
from inferack_adapter_proxy.watchdog import Watchdog


def parsed(*chunks: bytes) -> list[Event]:
    parser = SseParser()
    events = [event for chunk in chunks for event in parser.feed(chunk)]
    return events + parser.close()


@pytest.mark.parametrize(
    ("stream", "datas"),
    [
        (b"data: a\n\ndata: b\n\n", [b"a", b"b"]),
        (b"data:a\r\n\r\ndata:b\r\n\r\n", [b"a", b"b"]),
        (b"data: a\r\rdata: b\r\r", [b"a", b"b"]),
        (b"data: a\ndata: b\n\n", [b"a\nb"]),
        (b"data:  a\n\n", [b" a"]),
        (b": comment\n\ndata: a\n\n", [b"a"]),
        (b"id: 1\nretry: 5\ndata: a\n\n", [b"a"]),
        (b"event: x\n\ndata: a\n\n", [b"a"]),
        (b"data\n\n", [b""]),
        (b"data: a", [b"a"]),
        (b"data: a\n", [b"a"]),
        (b"\n\n\n", []),
        (b"", []),
    ],
)
def test_events(stream: bytes, datas: list[bytes]) -> None:
    assert [event.data for event in parsed(stream)] == datas


def test_event_names() -> None:
    assert parsed(b"event: error\ndata: a\n\ndata: b\n\n") == [Event(b"error", b"a"), Event(b"message", b"b")]


texts = st.lists(st.text(st.characters(exclude_characters="\r\n", codec="utf-8"), min_size=1, max_size=20), max_size=6)


@settings(max_examples=150, deadline=None, database=None, derandomize=True)
@given(texts=texts, ending=st.sampled_from([b"\n", b"\r\n", b"\r"]), cuts=st.lists(st.integers(0, 400), max_size=12))
def test_any_chunking_gives_the_same_events(texts: list[str], ending: bytes, cuts: list[int]) -> None:
    stream = b"".join(b": c" + ending + b"data: " + text.encode() + ending + ending for text in texts)
    places = sorted({min(cut, len(stream)) for cut in cuts} | {0, len(stream)})
    chunks = [stream[start:end] for start, end in zip(places, places[1:])]
    assert [event.data.decode() for event in parsed(*chunks)] == texts
    assert parsed(*(stream[i : i + 1] for i in range(len(stream)))) == parsed(stream)


def test_a_monstrous_event_is_refused() -> None:
    parser = SseParser()
    with pytest.raises(ValueError, match="more than"):
        for _ in range(10):
            parser.feed(b"data: " + b"x" * (MAX_EVENT_BYTES // 8))
    parser = SseParser()
    with pytest.raises(ValueError, match="more than"):
        for _ in range(10):
            parser.feed(b"data: " + b"x" * (MAX_EVENT_BYTES // 8) + b"\n")


@pytest.mark.parametrize(
    ("messages", "text"),
    [
        ([{"role": "user", "content": "hi"}], "hi"),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], "ab"),
        ([{"role": "system", "content": "s"}], "system: s\nassistant:"),
        (
            [{"role": "user", "content": "a"}, {"role": "assistant", "content": None}, {"role": "user", "content": "c"}],
            "user: a\nassistant: \nuser: c\nassistant:",
        ),
    ],
)
def test_chat_as_a_transcript(messages: list[dict[str, object]], text: str) -> None:
    assert as_text(messages) == text


def test_chat_as_the_last_user_message() -> None:
    messages = [{"role": "user", "content": "a"}, {"role": "user", "content": "b"}, {"role": "assistant", "content": "c"}]
    assert as_text(messages, "last_user") == "b"
    with pytest.raises(NotText, match="no user message"):
        as_text([{"role": "system", "content": "a"}], "last_user")


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        (None, None),
        ("", None),
        ("soon", None),
        ("nan", None),
        ("3", 3.0),
        ("0.5", 0.5),
        ("-4", 0.0),
        ("99999", MAX_RETRY_AFTER_S),
        ("inf", MAX_RETRY_AFTER_S),
        ("Thu, 01 Jan 1970 00:01:00 GMT", 50.0),
        ("Thu, 01 Jan 1970 00:00:01 GMT", 0.0),
    ],
)
def test_retry_after(value: str | None, seconds: float | None) -> None:
    assert retry_after(value, now=10.0) == seconds


@pytest.mark.parametrize(
    ("error", "words"),
    [
        ("plain", "plain"),
        ({"message": "m"}, "m"),
        ({"error": {"message": "m"}}, "m"),
        ({"detail": [{"loc": ["body"]}]}, '[{"loc":["body"]}]'),
        ({"x": 1}, '{"x":1}'),
        ("a\r\nb\x00c", "a b c"),
    ],
)
def test_what_an_engine_said(error: object, words: str) -> None:
    assert said(error) == words


def test_long_words_are_cut() -> None:
    assert len(said("x" * 5000)) == 300


def test_estimates() -> None:
    assert estimate("", "").as_dict() == {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0, "estimated": True}
    assert estimate("abcde", "ü").as_dict()["total_tokens"] == 3


def test_traces_are_new_each_time() -> None:
    assert start(None).trace_id != start(None).trace_id
    assert start("00-" + "A" * 32 + "-" + "b" * 16 + "-00").trace_id == "a" * 32
    assert start("01-" + "a" * 32 + "-" + "b" * 16 + "-00-more").trace_id == "a" * 32


async def test_watchdog_phases() -> None:
    loop = asyncio.get_running_loop()
    began = time.monotonic()
    with pytest.raises(EngineFault, match=r"no content within 0\.1 s") as fault, Watchdog("e", loop.time() + 5) as dog:
        dog.arm("ttft", 0.1)
        await asyncio.sleep(5)
    assert fault.value.phase == "ttft"
    assert 0.09 < time.monotonic() - began < 1
    # A later end replaces an earlier one, and the other way round.
    with Watchdog("e", loop.time() + 5) as dog:
        dog.arm("ttft", 0.05)
        dog.arm("idle", 1)
        await asyncio.sleep(0.15)
    with pytest.raises(EngineFault, match="silent"), Watchdog("e", loop.time() + 5) as dog:
        dog.arm("ttft", 1)
        dog.arm("idle", 0.05)
        await asyncio.sleep(5)
    with pytest.raises(EngineFault, match="total time"), Watchdog("e", loop.time() + 0.05) as dog:
        dog.arm("ttft", 1)
        await asyncio.sleep(5)


async def test_watchdog_leaves_other_ends_alone() -> None:
    loop = asyncio.get_running_loop()

    async def guarded() -> None:
        with Watchdog("e", loop.time() + 5) as dog:
            dog.arm("ttft", 5)
            await asyncio.sleep(5)

    task = asyncio.create_task(guarded())
    await asyncio.sleep(0.02)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(KeyError), Watchdog("e", loop.time() + 5):
        raise KeyError
    # Nothing goes off after the block.
    with Watchdog("e", loop.time() + 0.02):
        pass
    await asyncio.sleep(0.05)
