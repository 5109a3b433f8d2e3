"""The configuration: base URLs, what is refused and in which words, secrets, the command line."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest
from inferack_adapter_proxy.config import ConfigFault, load, normalise_base_url, parse, read_secrets

from conftest import PACKAGE

ENGINE = {"name": "e", "adapter": "openai", "base_url": "http://h:1", "models": ["m"]}


@pytest.mark.parametrize(
    ("raw", "root"),
    [
        ("http://h:8000", "http://h:8000"),
        ("http://h:8000/", "http://h:8000"),
        ("http://h:8000/v1", "http://h:8000"),
        ("http://h:8000/v1/", "http://h:8000"),
        ("http://h:8000/v1/v1", "http://h:8000"),
        (" https://api.example.net/openai/v1 ", "https://api.example.net/openai"),
        ("https://api.example.net/openai/v1/v1/", "https://api.example.net/openai"),
        ("https://api.example.net/openai", "https://api.example.net/openai"),
        ("http://h/v1/chat/completions", "http://h"),
        ("http://h/v1/models/", "http://h"),
        ("http://h/v11", "http://h/v11"),
        ("http://h/apiv1", "http://h/apiv1"),
        ("http://[fd00::1]:8000/v1", "http://[fd00::1]:8000"),
    ],
)
def test_base_urls(raw: str, root: str) -> None:
    assert normalise_base_url(raw) == root


@pytest.mark.parametrize(
    "raw", ["", "h:8000", "ftp://h", "http://", "http://h:x", "http://h:70000", "http://h?key=1", "http://h#a"]
)
def test_base_urls_that_are_none(raw: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        normalise_base_url(raw)


def test_a_password_in_a_base_url_is_refused_and_not_repeated() -> None:
    for raw in ("http://me:hunter2@h/v1", "me:hunter2@h/v1"):
        with pytest.raises(ConfigFault) as fault:
            parse(json.dumps({"engines": [{**ENGINE, "base_url": raw}]}).encode(), "f")
        assert "hunter2" not in str(fault.value)


async def test_both_forms_of_a_base_url_reach_the_engine() -> None:
    from fake_engines import FakeOpenAI, engine, entry, proxy

    async with engine(FakeOpenAI) as lpu:
        for suffix in ("", "/", "/v1", "/v1/", "/openai/v1", "/openai"):
            async with proxy({**entry("lpu", lpu), "base_url": lpu.url + suffix}) as caller:
                assert (await caller.infer())[0] == 200


REFUSED: list[tuple[str, Any, str]] = [
    ("no mapping", [], "expected a mapping with at least 'engines', found list"),
    ("no engines", {}, "engines: Field required"),
    ("empty engines", {"engines": []}, "engines: List should have at least 1 item"),
    ("misspelt", {"engines": [ENGINE], "timeout": {}}, "timeout: Extra inputs are not permitted"),
    ("misspelt engine key", {"engines": [{**ENGINE, "url": "x"}]}, "engines[0].url: Extra inputs are not permitted"),
    ("bad URL", {"engines": [{**ENGINE, "base_url": "h:1"}]}, "engines[0].base_url: expected an http:// or https:// URL"),
    ("unknown adapter", {"engines": [{**ENGINE, "adapter": "vllm"}]}, "unknown adapter 'vllm'; known are openai, triton"),
    ("adapter as a path", {"engines": [{**ENGINE, "adapter": "../x"}]}, "unknown adapter '../x'"),
    ("base is no adapter", {"engines": [{**ENGINE, "adapter": "base"}]}, "unknown adapter 'base'"),
    (
        "unknown class",
        {"engines": [{**ENGINE, "class": "quick"}]},
        "engines[0].class: Input should be 'latency' or 'throughput'",
    ),
    ("no models", {"engines": [{**ENGINE, "models": []}]}, "engines[0].models: List should have at least 1 item"),
    ("unknown option", {"engines": [{**ENGINE, "options": {"x": 1}}]}, "engines[0]"),
    (
        "wrong Triton shape",
        {"engines": [{**ENGINE, "adapter": "triton", "options": {"models": {"m": {"shape": [2]}}}}]},
        "expected only ones",
    ),
    ("negative timer", {"engines": [ENGINE], "timeouts": {"idle_s": 0}}, "timeouts.idle_s: Input should be greater than 0"),
    ("unknown timer", {"engines": [{**ENGINE, "timeouts": {"x": 1}}]}, "engines[0].timeouts"),
    ("same name", {"engines": [ENGINE, ENGINE]}, "two engines are named 'e'"),
    ("same route", {"engines": [ENGINE], "routes": [{"name": "r", "models": ["m"]}] * 2}, "two routes are named 'r'"),
    ("route to nothing", {"engines": [ENGINE], "routes": [{"name": "r", "models": ["x"]}]}, "which no engine serves; known: m"),
    (
        "route without engines",
        {"engines": [ENGINE], "routes": [{"name": "r", "models": ["m"], "classes": ["latency"]}]},
        "allows only the classes latency, and no engine of these serves m",
    ),
    ("default", {"engines": [ENGINE], "default_model": "x"}, "default_model 'x' is neither a route nor a model"),
    ("alias", {"engines": [{**ENGINE, "served_as": {"x": "y"}}]}, "served_as names 'x'"),
    ("port", {"engines": [ENGINE], "listen": {"port": 0}}, "listen.port"),
]


@pytest.mark.parametrize("row", REFUSED, ids=[row[0] for row in REFUSED])
def test_refused(row: Any) -> None:
    _name, config, words = row
    with pytest.raises(ConfigFault) as fault:
        parse(json.dumps(config).encode(), "proxy.json")
    assert str(fault.value).startswith("proxy.json: ")
    assert words in str(fault.value)


def test_yaml_is_read_and_broken_yaml_refused() -> None:
    config = parse(b"engines:\n  - {name: e, adapter: triton, base_url: 'http://h', models: [m], class: latency}\n", "f")
    assert config.engines[0].class_ == "latency"
    with pytest.raises(ConfigFault, match="neither YAML nor JSON"):
        parse(b"engines: [", "f")


@pytest.mark.parametrize("name", ["api_key", "key"])
def test_a_key_in_the_configuration_is_refused_and_not_repeated(name: str) -> None:
    with pytest.raises(ConfigFault, match="move it to the secrets file") as fault:
        parse(json.dumps({"engines": [{**ENGINE, name: "sk-hidden"}]}).encode(), "f")
    assert "sk-hidden" not in str(fault.value)


def write(path: Path, data: Any, mode: int = 0o600) -> str:
    path.write_text(json.dumps(data))
    path.chmod(mode)
    return str(path)


def test_secrets(tmp_path: Path) -> None:
    config = write(tmp_path / "c.json", {"engines": [{**ENGINE, "key_required": True}]}, 0o644)
    secrets = tmp_path / "s.json"
    with pytest.raises(ConfigFault, match=r"engine 'e' needs a key and has none \(no secrets file was given\)"):
        load(config)
    write(secrets, {"engine_keys": {"e": "sk-1234"}})
    assert load(config, str(secrets)).keys == {"e": "sk-1234"}
    assert "sk-1234" not in repr(load(config, str(secrets)).config)
    write(secrets, {"engine_keys": {"e": "sk-1234", "f": "sk-5678"}})
    with pytest.raises(ConfigFault, match="keys for engines that the configuration does not name: f"):
        load(config, str(secrets))
    write(secrets, {"engine_keys": {}})
    with pytest.raises(ConfigFault, match="needs a key and has none"):
        load(config, str(secrets))


@pytest.mark.parametrize(
    ("data", "mode", "words"),
    [
        ({"engine_keys": {"e": "sk-1234"}}, 0o644, "mode 0644 lets others read the keys"),
        ({"engine_keys": {"e": "sk-1234"}}, 0o640, "mode 0640 lets others read the keys"),
        ({"engine_keys": {"e": "sk-1234\nX-Evil: 1"}}, 0o600, "the key of engine 'e'"),
        ({"engine_keys": {"e": ""}}, 0o600, "the key of engine 'e'"),
        ({"engine_keys": {"e": ["sk-1234"]}}, 0o600, "engine_keys.e"),
        ({"keys": {"e": "sk-1234"}}, 0o600, "keys: Extra inputs are not permitted"),
        ("sk-1234", 0o600, "s.json"),
    ],
)
def test_secrets_that_are_refused_are_not_repeated(tmp_path: Path, data: Any, mode: int, words: str) -> None:
    write(tmp_path / "s.json", data, mode)
    with pytest.raises(ConfigFault) as fault:
        read_secrets(tmp_path / "s.json")
    assert words in str(fault.value)
    assert "sk-1234" not in str(fault.value)
    assert "Evil" not in str(fault.value)


def test_secrets_from_systemds_credentials(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = write(tmp_path / "c.json", {"engines": [ENGINE]}, 0o644)
    write(tmp_path / "secrets.json", {"engine_keys": {"e": "sk-1234"}}, 0o400)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    assert load(config).keys == {"e": "sk-1234"}


# The command

COMMAND = [sys.executable, "-m", "inferack_adapter_proxy"]
ENVIRONMENT = {**os.environ, "PYTHONPATH": str(PACKAGE), "PYTHONDONTWRITEBYTECODE": "1"}


def command(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*COMMAND, *words], env=ENVIRONMENT, capture_output=True, text=True, timeout=20, check=False)


def test_check_config(tmp_path: Path) -> None:
    good = write(tmp_path / "c.json", {"engines": [ENGINE]}, 0o644)
    result = command("--config", good, "--check-config")
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    bad = write(tmp_path / "b.json", {"engines": [{**ENGINE, "models": []}]}, 0o644)
    result = command("--config", bad, "--check-config")
    assert result.returncode == 1
    assert f"{bad}: engines[0].models: List should have at least 1 item" in result.stderr
    assert "Traceback" not in result.stderr
    result = command("--config", str(tmp_path / "none.json"), "--check-config")
    assert (result.returncode, "cannot be read: No such file" in result.stderr) == (1, True)
    result = command("--config", good, "--check-config", "--listen", "8080")
    assert (result.returncode, "expected HOST:PORT" in result.stderr) == (1, True)


def test_the_service_reloads_and_stops(tmp_path: Path) -> None:
    config = tmp_path / "c.json"
    write(config, {"engines": [{**ENGINE, "base_url": "http://127.0.0.1:9"}]}, 0o644)
    log = tmp_path / "log"
    with log.open("w") as out:
        service = subprocess.Popen(
            [*COMMAND, "--config", str(config), "--listen", "127.0.0.1:0", "--release", "r1"],
            env=ENVIRONMENT,
            stdout=out,
            stderr=out,
        )
    try:

        def lines() -> list[dict[str, Any]]:
            return [json.loads(line) for line in log.read_text().splitlines() if line.endswith("}")]

        def wait_for(event: str) -> dict[str, Any]:
            for _ in range(200):
                for line in lines():
                    if line.get("event") == event:
                        return line
                assert service.poll() is None, log.read_text()
                time.sleep(0.05)
            raise AssertionError(f"no {event} in {log.read_text()}")

        port = wait_for("started")["port"]

        def healthz() -> dict[str, Any]:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as response:
                return json.load(response)

        first = healthz()
        assert (first["status"], first["release"]) == ("ok", "r1")
        config.write_text("{")
        service.send_signal(signal.SIGHUP)
        assert "c.json" in wait_for("reload_refused")["why"]
        assert healthz() == first
        write(config, {"engines": [{**ENGINE, "base_url": "http://127.0.0.1:10"}]}, 0o644)
        service.send_signal(signal.SIGHUP)
        wait_for("reloaded")
        assert healthz()["config_sha256"] != first["config_sha256"]
        # A second one cannot have the port, and says so in one line.
        other = command("--config", str(config), "--listen", f"127.0.0.1:{port}")
        assert other.returncode == 1
        assert "cannot listen" in other.stderr
        assert "Traceback" not in other.stderr + other.stdout
        service.send_signal(signal.SIGTERM)
        assert service.wait(timeout=10) == 0
        assert lines()[-1]["event"] == "stopping"
    finally:
        service.kill()
        service.wait()
