"""The module diagnose, with texts, files, and tools made for the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.modules import diagnose

XID = "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.\n"


@pytest.mark.parametrize("check_mode", [False, True])
def test_texts(run_module: Any, check_mode: bool) -> None:
    texts = [{"name": "smi", "text": "No devices were found"}, {"name": "dmesg", "text": XID}]
    result = run_module(diagnose, {"texts": texts}, check_mode=check_mode)
    assert (result["failed"], result["changed"], result["verdict"]) == (False, False, "cause")
    first, second = result["causes"]
    assert (first["id"], first["affects"], first["source"], first["line"]) == (
        "xid-79",
        [{"kind": "gpu", "name": "0000:41:00.0"}],
        "dmesg",
        1,
    )
    assert first["evidence"] == [XID.strip()]
    assert second["consequence_of"] == "xid-79"
    assert [text["form"] for text in result["texts"]] == ["nvidia-smi", "kernel"]
    assert result["skipped"] == []
    assert result["msg"] == (
        "xid-79: GPU 0000:41:00.0: Xid 79: a GPU that has fallen off the bus; drain the node and power-cycle it; reseat the GPU and its "
        "power cables, and replace it if it goes again."
    )


def test_files(run_module: Any, tmp_path: Path) -> None:
    (tmp_path / "log").write_text("x" * 5000 + "\n" + XID)
    result = run_module(diagnose, {"files": [str(tmp_path / "log"), str(tmp_path / "none")], "max_size": 1024})
    assert result["causes"][0]["id"] == "xid-79"
    assert result["skipped"] == [{"name": str(tmp_path / "none"), "why": "no such file"}]


def test_the_node_itself(run_module: Any, add_tool: Any, tmp_path: Path) -> None:
    add_tool("journalctl", f"case $2 in -b) cat <<'E'\n{XID}E\n;; esac")
    add_tool("nvidia-smi", "echo 'No devices were found'; exit 6")
    options = {"collect": ["kernel", "smi", "containers"], "docker_socket": str(tmp_path / "none.sock")}
    result = run_module(diagnose, options)
    assert [cause["id"] for cause in result["causes"]] == ["xid-79", "smi-no-devices"]
    assert [item["name"] for item in result["skipped"]] == ["containers"]


def test_everything_is_collected_where_nothing_is_given(run_module: Any, add_tool: Any, tmp_path: Path) -> None:
    add_tool("journalctl", "true")
    result = run_module(diagnose, {"docker_socket": str(tmp_path / "none.sock")})
    assert not result["failed"]
    assert {"nvidia-smi", "containers"} <= {item["name"] for item in result["skipped"]}


def test_unknown(run_module: Any) -> None:
    result = run_module(diagnose, {"texts": [{"name": "t", "text": "frobnicator: fatal error in the relay"}]})
    assert (result["verdict"], result["causes"]) == ("unknown", [])
    assert result["texts"][0]["unexplained"] == ["frobnicator: fatal error in the relay"]
    assert result["msg"].startswith("Unknown: no rule explains")


@pytest.mark.parametrize(("name", "value"), [("timeout", 0), ("max_size", 10)])
def test_options_that_cannot_work(run_module: Any, name: str, value: int) -> None:
    result = run_module(diagnose, {"texts": [], name: value})
    assert result["failed"]
    assert f"{name} is" in result["msg"]
    assert "leave it out" in result["msg"]
