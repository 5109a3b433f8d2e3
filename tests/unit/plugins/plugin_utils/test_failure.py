"""What the rescue makes of a failed task."""

from __future__ import annotations

import pytest

from ansible_collections.inferack.rack.plugins.plugin_utils._failure import cause, failure

JUDGED = {
    "failed": True,
    "msg": "gpu.count: found 3, expected 4 GPUs; reseat the missing GPU and run again.",
    "checks": [
        {"id": "gpu.count", "status": "fail", "subject": "", "found": 3, "expected": 4, "remedy": "Reseat it.", "evidence": []}
    ],
}


@pytest.mark.parametrize(
    ("result", "expected"),
    [
        ({"msg": "No package matching 'nvidia-smi' is available"}, "No package matching 'nvidia-smi' is available"),
        (
            {"msg": "non-zero return code", "rc": 1, "stderr": "\nmodprobe: FATAL: Module nvidia not found\n"},
            "modprobe: FATAL: Module nvidia not found",
        ),
        (
            {"msg": "non-zero return code", "rc": 1, "stderr": "", "stdout": "Error! Bad return status"},
            "Error! Bad return status",
        ),
        ({"msg": "non-zero return code", "rc": 1}, "non-zero return code"),
        ({}, "no message was given"),
    ],
)
def test_cause_prefers_the_commands_own_words(result: dict, expected: str) -> None:
    assert cause(result) == expected


def test_a_judged_failure_keeps_its_sentence_and_checks() -> None:
    found = failure(JUDGED, "preflight", "Judge the node")
    assert found["sentence"] == JUDGED["msg"]
    assert found["checks"] == JUDGED["checks"]
    assert (found["role"], found["task"]) == ("preflight", "Judge the node")


def test_a_plain_failure_becomes_a_check_with_evidence() -> None:
    found = failure(
        {"msg": "non-zero return code", "stderr": "E: Unable to locate package", "stdout": "Reading"},
        "nvidia_driver",
        "Install",
    )
    assert "E: Unable to locate package" in found["sentence"]
    (check,) = found["checks"]
    assert (check["id"], check["status"], check["subject"]) == ("role.failed", "fail", "role nvidia_driver")
    assert "E: Unable to locate package" in check["evidence"]


def test_the_failed_item_of_a_loop_is_named() -> None:
    loop = {
        "msg": "One or more items failed",
        "results": [{"failed": False, "msg": "fine"}, {"failed": True, "msg": "disk full"}],
    }
    assert "disk full" in failure(loop, "triton", "Write")["sentence"]


def test_passing_checks_of_a_failed_task_stay_in_the_list() -> None:
    passed = {
        "id": "engine.port",
        "status": "pass",
        "subject": "",
        "found": 8000,
        "expected": 8000,
        "remedy": "",
        "evidence": [],
    }
    found = failure({"msg": "boom", "checks": [passed]}, "triton", "Start")
    assert [check["id"] for check in found["checks"]] == ["engine.port", "role.failed"]
