"""The stand-in toolkit's decisions, by tables of cases. What it does to containers is tried on the bench's nodes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "payload"))

from nvct import cdi, cli, config, ctk, driver, hook, require, runtime

VALUES = {"cuda": "13.0", "driver": "580.126.09", "arch": "8.9", "brand": "nvidia"}
GPUS = tuple(
    driver.Gpu(index, index, f"GPU-{index}abc-0000", f"0000:0{index}:00.0", "NVIDIA L40S", "8.9", "ok") for index in range(3)
)


@pytest.mark.parametrize(
    "expression",
    ["cuda>=13", "cuda>=13.0", "cuda<13.1", "cuda>=14 brand=nvidia,driver>=580,driver<581", "arch>=8.9", "brand!=tesla"],
)
def test_requirement_holds(expression: str) -> None:
    require.check(expression, VALUES)


@pytest.mark.parametrize(
    ("expression", "words"),
    [
        ("cuda>=13.3", "unsatisfied condition: cuda>=13.3, please update your driver to a newer version"),
        ("cuda>=14 brand=tesla,driver>=470", "unsatisfied condition: cuda>=14"),
        ("driver>=590", "unsatisfied condition: driver>=590"),
        ("flavour=open", "invalid expression: flavour=open"),
        ("cuda>=new", "invalid expression: cuda>=new"),
    ],
)
def test_requirement_fails(expression: str, words: str) -> None:
    with pytest.raises(require.Unsatisfied, match=words):
        require.check(expression, VALUES)


@pytest.mark.parametrize(
    ("text", "indexes"),
    [("all", [0, 1, 2]), ("", []), ("none", []), ("2,0", [0, 2]), ("GPU-1abc-0000", [1]), ("GPU-1abc", [1]), ("1,1", [1])],
)
def test_select(text: str, indexes: list[int]) -> None:
    assert [gpu.index for gpu in cli.select(text, GPUS)] == indexes


@pytest.mark.parametrize("text", ["7", "GPU-none", "0,9", "GPU"])
def test_select_unknown(text: str) -> None:
    with pytest.raises(cli.Failure, match="unknown device"):
        cli.select(text, GPUS)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        ({}, None),
        ({"NVIDIA_VISIBLE_DEVICES": "void"}, None),
        ({"NVIDIA_VISIBLE_DEVICES": ""}, None),
        ({"NVIDIA_VISIBLE_DEVICES": "none"}, ""),
        ({"NVIDIA_VISIBLE_DEVICES": "0,1"}, "0,1"),
        ({"CUDA_VERSION": "12.4.1"}, "all"),
        ({"CUDA_VERSION": "12.4.1", "NVIDIA_REQUIRE_CUDA": "cuda>=12.4"}, None),
    ],
)
def test_devices(env: dict[str, str], expected: str | None) -> None:
    assert hook.devices(env) == expected


def test_hook_command() -> None:
    spec = {
        "root": {"path": "/merged"},
        "process": {"env": ["NVIDIA_VISIBLE_DEVICES=all", "NVIDIA_REQUIRE_CUDA=cuda>=12.4", "NVIDIA_REQUIRE_X=arch>=8"]},
    }
    settings = {**config.tomllib.loads(config.DEFAULT), "nvidia-container-cli": {"path": "/cli", "load-kmods": True}}
    assert hook.command({"pid": 7, "bundle": "/bundle"}, spec, settings) == [
        "/cli", "--load-kmods", "configure", "--ldconfig=@/sbin/ldconfig", "--device=all", "--utility", "--compute",
        "--require=cuda>=12.4", "--require=arch>=8", "--pid=7", "/merged",
    ]  # fmt: skip


def test_unsupported_capability() -> None:
    with pytest.raises(hook.Failure, match="unsupported capabilities found in 'bogus'"):
        hook.capabilities({"NVIDIA_DRIVER_CAPABILITIES": "bogus"}, "compute,utility")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["--root", "/run/x", "create", "--bundle", "/b", "id"], True),
        (["--log-format=json", "--systemd-cgroup", "create", "id"], True),
        (["--root", "create", "start", "id"], False),
        (["--version"], False),
    ],
)
def test_is_create(words: list[str], expected: bool) -> None:
    assert runtime.is_create(words) is expected


def test_hook_is_added_once() -> None:
    spec: dict[str, object] = {}
    runtime.add_hook(spec)
    runtime.add_hook(spec)
    assert len(spec["hooks"]["prestart"]) == 1  # type: ignore[index]


def test_cdi_specification_survives_yaml(monkeypatch: pytest.MonkeyPatch) -> None:
    yaml = pytest.importorskip("yaml")
    monkeypatch.setattr(driver, "loader_cache", lambda: {"libcuda.so.1": __file__})
    monkeypatch.setattr(driver, "library", lambda cache, name: f"/usr/lib/x/{name}.580.1" if name == "libcuda.so" else None)
    spec = cdi.specification(driver.Driver("580.1", "13.0", GPUS))
    assert [device["name"] for device in spec["devices"]][-1] == "all"
    assert cdi.parse_yaml("---\n" + cdi.yaml(spec)) == spec
    assert yaml.safe_load(cdi.yaml(spec)) == spec


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("nvidia-container-runtime.mode", "cdi"),
        ("nvidia-container-cli.no-cgroups", "true"),
        ("disable-require", "true"),
        ("a.b", "c"),
    ],
)
def test_set_value(key: str, value: str) -> None:
    settings = config.tomllib.loads(ctk.set_value(config.DEFAULT, key, value))
    table, _, name = key.rpartition(".")
    assert (settings[table] if table else settings)[name] == {"true": True}.get(value, value)


def test_configure_drops_other_features_as_the_real_one_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "daemon.json"
    path.write_text('{"features": {"containerd-snapshotter": true}, "log-driver": "journald"}', encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["nvidia-ctk", "runtime", "configure", f"--config={path}", "--cdi.enabled"])
    assert ctk.main() == 0
    found = json.loads(path.read_text(encoding="utf-8"))
    assert found["features"] == {"cdi": True}
    assert found["runtimes"] == {"nvidia": {"args": [], "path": "nvidia-container-runtime"}}
    assert found["log-driver"] == "journald"


def test_configure_leaves_invalid_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "daemon.json"
    path.write_text("{ // comment\n}", encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["nvidia-ctk", "runtime", "configure", f"--config={path}"])
    assert ctk.main() == 1
    assert path.read_text(encoding="utf-8") == "{ // comment\n}"
    assert "unable to load config for runtime docker" in capsys.readouterr().err
