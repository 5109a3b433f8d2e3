"""The module daemon_json on real files, with a dockerd and a systemctl made for the test."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.modules import daemon_json

NVIDIA = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}
OLD_DOCKERD = "echo 'unknown flag: --validate' >&2; exit 125"
NEW_DOCKERD = 'for a; do case $a in --config-file=*) f=${a#*=};; esac; done; grep -q bad "$f" && { echo "unable to configure the Docker daemon with file $f: no" >&2; exit 1; }; echo "configuration OK" >&2'


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "etc" / "daemon.json"


def put(path: Path, text: str, mode: int = 0o640) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.chmod(path, mode)
    return path


def copies(path: Path) -> list[Path]:
    return sorted(other for other in path.parent.iterdir() if other != path)


@pytest.mark.parametrize("dockerd", [OLD_DOCKERD, NEW_DOCKERD, None])
def test_merge_backup_mode_and_second_run(run_module: Any, add_tool: Any, path: Path, dockerd: str | None) -> None:
    if dockerd:
        add_tool("dockerd", dockerd)
    before = '{\n\t"hosts": ["unix://"],\n\t"big": 12345678901234567890\n}\n'
    put(path, before)
    options = {"unit": "absent.service", "path": str(path), "settings": NVIDIA}
    checked = run_module(daemon_json, options, check_mode=True)
    assert checked["changed"] is True
    assert path.read_text() == before
    assert copies(path) == []
    result = run_module(daemon_json, options)
    assert (result["failed"], result["changed"], result["changes"]) == (False, True, ["runtimes set"])
    assert result["diff"]["after"] == path.read_text() == checked["diff"]["after"]
    assert path.read_text().startswith(before[:-3])
    assert json.loads(path.read_text()) == {"hosts": ["unix://"], "big": 12345678901234567890, **NVIDIA}
    assert path.stat().st_mode & 0o777 == 0o640
    assert [other.read_text() for other in copies(path)] == [before]
    assert result["backup_file"] == str(copies(path)[0])
    again = run_module(daemon_json, options)
    assert (again["changed"], again["changes"]) == (False, [])
    assert "backup_file" not in again
    assert len(copies(path)) == 1
    assert again["worst"] == "pass"


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_a_missing_or_empty_file(run_module: Any, add_tool: Any, path: Path, content: str | None) -> None:
    if content is not None:
        put(path, content)
    idle = run_module(daemon_json, {"unit": "absent.service", "path": str(path)})
    assert idle["changed"] is False
    assert path.exists() is (content is not None)
    result = run_module(daemon_json, {"unit": "absent.service", "path": str(path), "settings": NVIDIA})
    assert result["changed"] is True
    assert json.loads(path.read_text()) == NVIDIA
    assert ("backup_file" in result) is (content is not None)
    assert path.stat().st_mode & 0o777 == (0o640 if content is not None else 0o644)


@pytest.mark.parametrize("report_only", [False, True])
def test_a_malformed_file_is_left_alone_and_named(run_module: Any, add_tool: Any, path: Path, report_only: bool) -> None:
    put(path, '{\n  "a": 1\n  "b": 2\n}\n')
    result = run_module(
        daemon_json, {"unit": "absent.service", "path": str(path), "settings": NVIDIA, "report_only": report_only}
    )
    assert result["failed"] is not report_only
    assert result["changed"] is False
    assert result["checks"][0]["status"] == "fail"
    assert "malformed at line 3 column 3" in result["checks"][0]["found"]
    assert result["checks"][0]["evidence"] == [f'{path}:3: "b": 2']
    assert path.read_text() == '{\n  "a": 1\n  "b": 2\n}\n'
    assert copies(path) == []


def test_a_byte_order_mark_is_taken_away_once(run_module: Any, add_tool: Any, path: Path) -> None:
    put(path, "")
    path.write_bytes(b"\xef\xbb\xbf{}")
    assert run_module(daemon_json, {"unit": "absent.service", "path": str(path)})["changed"] is True
    assert path.read_bytes() == b"{}"
    assert run_module(daemon_json, {"unit": "absent.service", "path": str(path)})["changed"] is False


def test_wrong_types_are_refused(run_module: Any, add_tool: Any, path: Path) -> None:
    put(path, '{"ipv6": "true"}')
    result = run_module(daemon_json, {"unit": "absent.service", "path": str(path), "settings": NVIDIA})
    assert result["failed"]
    assert 'found "true" as the value of ipv6' in result["msg"]
    assert path.read_text() == '{"ipv6": "true"}'
    mended = run_module(daemon_json, {"unit": "absent.service", "path": str(path), "settings": {"ipv6": True}})
    assert not mended["failed"]
    assert json.loads(path.read_text()) == {"ipv6": True}


UNIT = "# /lib/systemd/system/docker.service\n[Service]\nExecStart=/usr/bin/dockerd -H fd:// --default-runtime=runc\n"


@pytest.mark.parametrize(
    ("settings", "key"),
    [({"hosts": ["unix://"]}, "hosts"), ({"default-runtime": "nvidia"}, "default-runtime"), (NVIDIA, None)],
)
def test_an_option_that_is_a_flag_too(
    run_module: Any, add_tool: Any, path: Path, settings: dict[str, Any], key: str | None
) -> None:
    add_tool("systemctl", f"cat <<'E'\n{UNIT}E")
    result = run_module(daemon_json, {"unit": "absent.service", "path": str(path), "settings": settings})
    assert result["failed"] is (key is not None)
    assert path.exists() is (key is None)
    assert [flag["key"] for flag in result["flags"]] == ["hosts", "default-runtime"]
    if key:
        assert f"found {key} both in {path} and as the flag" in result["msg"]
        assert "/lib/systemd/system/docker.service" in result["msg"]


def test_what_dockerd_refuses_is_not_written(run_module: Any, add_tool: Any, path: Path) -> None:
    add_tool("dockerd", NEW_DOCKERD)
    put(path, "{}")
    result = run_module(daemon_json, {"unit": "absent.service", "path": str(path), "settings": {"bad": 1}})
    assert result["failed"]
    assert f"dockerd refuses the merged file: unable to configure the Docker daemon with file {path}" in result["msg"]
    assert path.read_text() == "{}"
    forced = run_module(
        daemon_json, {"unit": "absent.service", "path": str(path), "settings": {"bad": 1}, "validate": False, "backup": False}
    )
    assert forced["changed"] is True
    assert copies(path) == []


def test_a_dockerd_that_refuses_everything_says_nothing_about_the_file(run_module: Any, add_tool: Any, path: Path) -> None:
    add_tool("dockerd", "echo 'invalid userland-proxy-path: userland-proxy is enabled, but not set' >&2; exit 1")
    result = run_module(daemon_json, {"unit": "absent.service", "path": str(path), "settings": NVIDIA})
    assert (result["failed"], result["changed"]) == (False, True)
    assert "refuses every file: invalid userland-proxy-path" in result["checks"][0]["evidence"][0]


def test_remove_and_lists(run_module: Any, add_tool: Any, path: Path) -> None:
    put(path, '{"dns": ["1.1.1.1"], "graph": "/x"}')
    options = {
        "unit": "absent.service",
        "path": str(path),
        "settings": {"dns": ["8.8.8.8"]},
        "remove": ["graph"],
        "lists": "replace",
    }
    result = run_module(daemon_json, options)
    assert result["changes"] == ["graph removed", "dns changed"]
    assert path.read_text() == '{"dns": ["8.8.8.8"]}'
    assert run_module(daemon_json, options)["changed"] is False


def test_a_link_is_followed(run_module: Any, add_tool: Any, path: Path, tmp_path: Path) -> None:
    real = tmp_path / "real.json"
    real.write_text("{}")
    path.parent.mkdir()
    path.symlink_to(real)
    result = run_module(daemon_json, {"unit": "absent.service", "path": str(path), "settings": NVIDIA})
    assert result["path"] == str(real)
    assert path.is_symlink()
    assert json.loads(real.read_text()) == NVIDIA
