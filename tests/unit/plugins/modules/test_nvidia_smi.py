"""The module nvidia_smi with an nvidia-smi made for the test."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.modules import nvidia_smi

XML = """<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log><driver_version>580.95.05</driver_version><attached_gpus>1</attached_gpus>
<gpu id="00000000:07:00.0"><product_name>NVIDIA L40S</product_name><uuid>GPU-1</uuid>
<fb_memory_usage><total>46068 MiB</total></fb_memory_usage></gpu></nvidia_smi_log>
"""


@pytest.mark.parametrize("check_mode", [False, True])
def test_a_good_answer(run_module: Any, add_tool: Any, check_mode: bool) -> None:
    add_tool("nvidia-smi", f"[ \"$*\" = '-q -x' ] || exit 2\ncat <<'E'\n{XML}E")
    expected = {"count": 1, "product": "L40S", "driver_version": "580", "bus_ids": ["0000:07:00.0"]}
    result = run_module(nvidia_smi, {"expected": expected}, check_mode=check_mode)
    assert (result["failed"], result["changed"], result["exit_status"], result["worst"]) == (False, False, 0, "pass")
    assert result["reading"]["gpus"][0]["uuid"] == "GPU-1"
    assert result["reading"]["gpus"][0]["temperature_c"] is None


@pytest.mark.parametrize("report_only", [False, True])
def test_too_few_gpus(run_module: Any, add_tool: Any, report_only: bool) -> None:
    add_tool("nvidia-smi", f"cat <<'E'\n{XML}E")
    expected = {"count": 2, "bus_ids": ["0000:07:00.0", "0000:41:00.0"]}
    result = run_module(nvidia_smi, {"expected": expected, "report_only": report_only})
    assert result["failed"] is not report_only
    failed = [check for check in result["checks"] if check["status"] == "fail"]
    assert [check["id"] for check in failed] == ["gpu.count"]
    if not report_only:
        assert result["msg"] == (
            "gpu.count: found 1, expected 2 GPUs; reseat or replace the missing GPU (0000:41:00.0 answers nothing), then run again."
        )


@pytest.mark.parametrize("stream", ["", ">&2"])
def test_words_on_either_stream(run_module: Any, add_tool: Any, stream: str) -> None:
    add_tool("nvidia-smi", f"echo 'Failed to initialize NVML: Driver/library version mismatch' {stream}; exit 18")
    result = run_module(nvidia_smi, {})
    assert result["failed"]
    assert result["exit_status"] == 18
    assert result["msg"].startswith("driver.smi: found the loaded module and the driver's library of different versions")


def test_a_call_that_hangs_is_killed(run_module: Any, add_tool: Any) -> None:
    add_tool("nvidia-smi", "sleep 60")
    result = run_module(nvidia_smi, {"timeout": 0.5})
    assert result["failed"]
    assert result["exit_status"] is None
    assert "no answer within 0.5 s, nvidia-smi was killed" in result["msg"]
    assert result["seconds"] < 20


def test_no_nvidia_smi(run_module: Any, add_tool: Any) -> None:
    assert "no nvidia-smi on this node" in run_module(nvidia_smi, {})["msg"]


def test_a_given_text_and_a_path(run_module: Any, add_tool: Any, tmp_path: Path) -> None:
    result = run_module(nvidia_smi, {"text": XML, "expected": {"product": ""}})
    assert (result["failed"], result["exit_status"], result["reading"]["form"]) == (False, None, "xml")
    tool = add_tool("other-smi", f"cat <<'E'\n{XML}E")
    assert run_module(nvidia_smi, {"path": str(tool)})["worst"] == "pass"
