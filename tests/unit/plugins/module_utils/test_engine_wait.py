"""Waiting for an engine, and saying why it did not become ready."""

from __future__ import annotations

import importlib.util
import time
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _endpoint, _engine_wait
from ansible_collections.inferack.rack.plugins.module_utils._checks import Check
from ansible_collections.inferack.rack.plugins.module_utils._endpoint import BROKEN, READY, STARTING, Result, Target

_spec = importlib.util.spec_from_file_location("docker_engine", Path(__file__).with_name("docker_engine.py"))
assert _spec is not None
assert _spec.loader is not None
fake = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake)

TARGET = Target(url="http://127.0.0.1:1", adapter="triton", models=["m"])
NOT_LOADED = "E1130 13:38:49.06 1 model_lifecycle.cc:642] \"failed to load 'm' version 1: Internal: ModuleNotFoundError: No module named 'torch'\""


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The states of the next looks; the last one stays. Each pop is one look."""
    states: list[str] = []

    def look(_target: Target) -> Result:
        state = states.pop(0) if len(states) > 1 else states[0]
        check = Check(
            "engine.ready", "pass" if state == READY else "fail", found=state, remedy="" if state == READY else "Wait."
        )
        return Result(state, [check])

    monkeypatch.setattr(_endpoint, "look", look)
    return states


def table(state: dict[str, Any], *lines: str) -> dict[tuple[str, str], tuple[int, Any]]:
    return {("GET", "/containers/t/json"): (200, state), ("GET", "/containers/t/logs"): (200, fake.log_frames(*lines))}


def test_ready_at_once(looks: list[str]) -> None:
    looks.append(READY)
    result, waited = _engine_wait.wait(TARGET, 5, 0.01)
    assert result.state == READY
    assert waited < 1


def test_ready_after_some_looks(looks: list[str]) -> None:
    looks += [STARTING, STARTING, READY]
    assert _engine_wait.wait(TARGET, 5, 0.01)[0].state == READY


def test_the_time_is_up(looks: list[str]) -> None:
    looks.append(STARTING)
    start = time.monotonic()
    result, waited = _engine_wait.wait(TARGET, 0.2, 0.05)
    assert result.state == STARTING
    assert time.monotonic() - start < 1
    assert waited <= 0.3


def test_no_waiting_for_what_will_not_become_ready(looks: list[str]) -> None:
    looks.append(BROKEN)
    assert _engine_wait.wait(TARGET, 60, 1)[1] < 1


@pytest.mark.parametrize(
    ("state", "lines", "check", "words", "evidence"),
    [
        (fake.inspected("exited", 1), (NOT_LOADED,), "engine.models", "ModuleNotFoundError", "failed to load"),
        (
            fake.inspected("exited", 137),
            ("loading", "Killed"),
            "engine.ready",
            "container t ended with exit status 137; its last line: Killed",
            "Killed",
        ),
        (fake.inspected("exited", 2), (), "engine.ready", "its last line: it wrote nothing", ""),
        (fake.inspected("restarting", 1, 4), (NOT_LOADED,), "engine.models", "ModuleNotFoundError", "failed to load"),
    ],
)
def test_a_container_that_ended_is_not_waited_for(
    looks: list[str], tmp_path: Path, state: Any, lines: tuple[str, ...], check: str, words: str, evidence: str
) -> None:
    looks.append(STARTING)
    with fake.engine(tmp_path, table(state, *lines)) as (path, _seen):
        result, waited = _engine_wait.wait(
            TARGET, 0.5 if "restarting" in str(state) else 60, 0.05, _engine_wait.Watch("t", path)
        )
    assert waited < 5
    assert result.state == BROKEN
    assert result.checks[0].id == check
    assert words in str(result.checks[0].found)
    assert any(evidence in line for line in result.checks[0].evidence) or not evidence


def test_a_restarting_container_is_given_up(looks: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    looks.append(STARTING)
    restarts = iter(range(100))
    monkeypatch.setattr(
        _engine_wait.Watch,
        "state",
        lambda self: _engine_wait._docker_socket.Container("t", "running", 1, next(restarts), "", "i"),
    )
    monkeypatch.setattr(_engine_wait.Watch, "log", lambda self, restarts: NOT_LOADED)
    result, waited = _engine_wait.wait(TARGET, 60, 0.01, _engine_wait.Watch("t", "/nowhere"))
    assert waited < 5
    assert (result.state, result.checks[0].id, result.checks[0].subject) == (BROKEN, "engine.models", "model m")


def test_a_slow_one_keeps_its_checks_and_shows_the_log(looks: list[str], tmp_path: Path) -> None:
    looks.append(STARTING)
    with fake.engine(tmp_path, table(fake.inspected(), 'I1130 13:38:49.06 1 model_lifecycle.cc:472] "loading: m:1"')) as (
        path,
        _seen,
    ):
        result, _waited = _engine_wait.wait(TARGET, 0, 0.05, _engine_wait.Watch("t", path))
    assert result.state == STARTING
    assert [check.id for check in result.checks] == ["engine.ready"]
    assert result.checks[0].found == "starting; container t is running; its last line: loading: m:1"
    assert "more time" in result.checks[0].remedy
    assert result.checks[0].evidence == ["loading: m:1"]


def test_the_log_replaces_the_check_of_the_same_model(tmp_path: Path) -> None:
    vague = Check("engine.models", "fail", found="not loaded", subject="model m", remedy="Correct it.")
    container = _engine_wait._docker_socket.Container("t", "running", 0, 0, "", "i")
    checks = _engine_wait.explain([vague], container, NOT_LOADED)
    assert [(check.id, check.subject) for check in checks] == [("engine.models", "model m")]
    assert "ModuleNotFoundError" in str(checks[0].found)


def test_without_an_engine_nothing_is_explained(looks: list[str], tmp_path: Path) -> None:
    looks.append(STARTING)
    result, _waited = _engine_wait.wait(TARGET, 0, 0.05, _engine_wait.Watch("t", str(tmp_path / "gone.sock")))
    assert [check.found for check in result.checks] == [STARTING]


def test_a_container_that_ends_at_once_said_why_in_the_run_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said = {0.0: "", _engine_wait.RUN_BEFORE: NOT_LOADED}
    monkeypatch.setattr(_engine_wait._docker_socket, "logs", lambda path, name, lines=0, before_s=0.0: said[before_s])
    watch = _engine_wait.Watch("t", "/nowhere")
    assert watch.log(restarts=0) == ""
    assert watch.log(restarts=3) == NOT_LOADED
