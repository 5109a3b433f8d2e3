"""The proxy answers on each node, through its own node's engine too, without privileges, without leaking a key, and again after a kill."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
import rack_node

SERVICE = "inferack-adapter-proxy"
CONFIG = "/etc/inferack/adapter-proxy/config.json"
SECRETS = "/etc/inferack/adapter-proxy/secrets.json"
URL = "http://127.0.0.1:8080"
READY_WITHIN_S = 60


def ask(host, path: str, body: Any = None, **headers: str) -> tuple[int, str, dict[str, str]]:
    """Status, text and headers of a request to the proxy that the node itself makes."""
    try:
        return rack_node.ask(host, URL + path, body, **headers)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{journal(host)}") from error


def answers(host) -> bool:
    """Whether anything listens: a service that starts again refuses connections for a moment."""
    try:
        return ask(host, "/healthz")[0] == 200
    except AssertionError:
        return False


def journal(host) -> str:
    with host.sudo():
        return host.check_output(f"journalctl --unit {SERVICE} --lines 40 --no-pager")


def config(host) -> dict[str, Any]:
    return json.loads(host.file(CONFIG).content_string)


def name_of(host) -> str:
    """The node's name in the inventory."""
    return host.backend.host


def main_pid(host) -> str:
    return host.check_output(f"systemctl show --property MainPID --value {SERVICE}")


def own_engines(host) -> list[dict[str, Any]]:
    return [engine for engine in config(host)["engines"] if engine.get("node") == name_of(host)]


def test_the_service_runs_and_comes_back_at_boot(host) -> None:
    service = host.service(SERVICE)
    assert service.is_running, journal(host)
    assert service.is_enabled


def test_it_has_no_privileges(host) -> None:
    with host.sudo():
        status = host.file(f"/proc/{main_pid(host)}/status").content_string
    fields = dict(line.split(":", 1) for line in status.splitlines())
    assert "0" not in fields["Uid"].split()
    assert int(fields["CapEff"], 16) == int(fields["CapPrm"], 16) == int(fields["CapBnd"], 16) == 0
    assert fields["NoNewPrivs"].strip() == "1"
    assert fields["Seccomp"].strip() == "2"


def test_every_engine_of_the_inventory_is_configured(host) -> None:
    nodes = [engine.get("node") for engine in config(host)["engines"]]
    assert {"debian-12", "ubuntu-24.04", "openeuler-24.03"} <= set(nodes)
    assert nodes.count(None) == 1, "the LPU service is an engine too"


def test_the_engine_of_the_node_is_ready(host) -> None:
    names = {engine["name"] for engine in own_engines(host)}
    assert names
    give_up_at = time.monotonic() + READY_WITHIN_S
    while True:
        _code, text, _headers = ask(host, "/readyz")
        ready = {engine["name"] for engine in json.loads(text)["engines"] if engine["ready"]}
        if names <= ready:
            return
        if time.monotonic() > give_up_at:
            pytest.fail(text + journal(host))
        time.sleep(2)


def test_it_answers_through_the_engine_of_the_node(host) -> None:
    (engine,) = own_engines(host)
    model = engine["models"][0]
    answers = [json.loads(ask(host, "/infer", {"text": "What is a rack?", "model": model})[1]) for _ in range(6)]
    assert all("error" not in answer for answer in answers), answers
    # Engines that share a model take turns.
    assert engine["name"] in {answer["engine"] for answer in answers}
    for answer in answers:
        assert "rack" in answer["output"]
        assert answer["model"] == model


def test_chat_streams(host) -> None:
    (engine,) = own_engines(host)
    body = {"model": engine["models"][0], "messages": [{"role": "user", "content": "What is a rack?"}], "stream": True}
    code, text, headers = ask(host, "/v1/chat/completions", body)
    assert code == 200, text
    assert headers["content-type"].startswith("text/event-stream")
    events = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert events[-1] == "[DONE]"
    choices = [choice for event in events[:-1] for choice in json.loads(event)["choices"]]
    assert "rack" in "".join(choice["delta"].get("content") or "" for choice in choices)
    assert choices[-1]["finish_reason"] == "stop"


def test_wrong_requests_are_told_so(host) -> None:
    for body, status, code in (
        ("{", 400, "invalid_json"),
        ({}, 400, "missing_text"),
        ({"text": "a", "model": "x"}, 404, "model_not_found"),
    ):
        answered, text, headers = ask(host, "/infer", body)
        error = json.loads(text)["error"]
        assert (answered, error["code"]) == (status, code)
        assert error["trace_id"] == headers["x-trace-id"]


def test_a_request_leaves_one_line_and_no_prompt_in_the_journal(host) -> None:
    trace_id = "4bf92f3577b34da6a3ce929d0e0e4736"
    secret = f"prompt-{time.monotonic_ns()}"
    code, text, headers = ask(host, "/infer", {"text": secret}, traceparent=f"00-{trace_id}-00f067aa0ba902b7-01")
    assert headers["x-trace-id"] == trace_id
    with host.sudo():
        lines = host.check_output(f"journalctl _SYSTEMD_UNIT={SERVICE}.service --since=-5min --no-pager --output cat")
    mine = [json.loads(line) for line in lines.splitlines() if trace_id in line]
    assert mine[-1]["event"] == "request"
    assert mine[-1]["status"] == code, text
    assert secret not in lines


def test_keys_are_only_in_roots_file(host) -> None:
    with host.sudo():
        file = host.file(SECRETS)
        assert (file.user, file.group, file.mode) == ("root", "root", 0o600)
        keys = json.loads(file.content_string)["engine_keys"]
        copy = host.file(f"/run/{SERVICE}/secrets.json")
        assert copy.mode == 0o400
        assert host.file(f"/run/{SERVICE}").mode == 0o700
        pid = main_pid(host)
        places = {
            "configuration": host.file(CONFIG).content_string,
            "unit": host.check_output(f"systemctl cat {SERVICE}"),
            "command line": host.file(f"/proc/{pid}/cmdline").content_string,
            "environment": host.file(f"/proc/{pid}/environ").content_string,
            "journal": host.check_output(f"journalctl --unit {SERVICE} --no-pager"),
            "readyz": ask(host, "/readyz")[1],
            "metrics": ask(host, "/metrics")[1],
        }
    for engine, key in keys.items():
        for place, text in places.items():
            assert key not in text, f"the key of {engine} is in the {place}"


def test_others_cannot_read_the_keys(host) -> None:
    with host.sudo():
        for path in (SECRETS, f"/run/{SERVICE}/secrets.json"):
            assert host.file(path).exists
            result = host.run(f"runuser -u nobody -- cat {path}")
            assert result.rc != 0
            assert "Permission denied" in result.stderr
        assert host.run(f"runuser -u inferack-proxy -- cat {SECRETS}").rc != 0, "not even the service reads root's file"


def test_metrics_name_the_engines(host) -> None:
    _code, text, _headers = ask(host, "/metrics")
    for engine in config(host)["engines"]:
        assert f'inferack_proxy_engine_ready{{engine="{engine["name"]}"' in text


def test_it_comes_back_after_a_kill(host) -> None:
    before = main_pid(host)
    with host.sudo():
        host.check_output(f"kill -KILL {before}")
    give_up_at = time.monotonic() + READY_WITHIN_S
    while time.monotonic() < give_up_at:
        if main_pid(host) not in ("0", before) and answers(host):
            return
        time.sleep(1)
    pytest.fail(journal(host))
