"""Judging nvidia-smi: causes by words and exit status, and each check by table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _checks, _nvidia_smi, _smi_reading
from ansible_collections.inferack.rack.plugins.module_utils._nvidia_smi import Expected, Outcome
from ansible_collections.inferack.rack.plugins.module_utils._smi_reading import Gpu, Reading

COUNTS = {"correctable": 0, "uncorrectable": 0}
GOOD = Gpu(
    bus_id="0000:07:00.0",
    product="NVIDIA H100 80GB HBM3",
    uuid="GPU-1",
    memory_mib=81559,
    performance_state="P0",
    ecc={"enabled": True, "pending": True, "volatile": COUNTS, "aggregate": COUNTS, "threshold_exceeded": False},
    retired={"single_bit": None, "double_bit": None, "pending": None},
    remapped={"correctable": 0, "uncorrectable": 0, "pending": False, "failure": False},
    repairs={"channel_repair_pending": False, "tpc_repair_pending": False, "unrepairable_memory": None},
    fabric={"state": "Completed", "status": "Success", "health": None, "route_unhealthy": None},
)
SECOND = replace(GOOD, bus_id="0000:41:00.0", uuid="GPU-2")
READING = Reading(form="xml", driver_version="580.95.05", cuda_version="13.0", attached=2, gpus=[GOOD, SECOND])


def status(reading: Reading, expected: Expected | None = None, outcome: Outcome | None = None) -> dict[tuple[str, str], str]:
    checks = _nvidia_smi.judge(reading, outcome or Outcome(0), expected or Expected())
    assert len({check.key for check in checks}) == len(checks)
    for check in checks:
        assert (check.status in ("fail", "warn")) <= bool(check.remedy)
    return {check.key: check.status for check in checks}


def sentence(reading: Reading, expected: Expected | None = None, outcome: Outcome | None = None) -> str:
    return _checks.summary(_nvidia_smi.judge(reading, outcome or Outcome(0), expected or Expected()))


def test_a_good_node_passes_everything() -> None:
    found = status(READING, Expected(2, "H100", "580", 81920, True, ["0000:07:00.0", "00000000:41:00.0"]))
    assert set(found.values()) == {"pass"}
    assert {key[0] for key in found} == {
        "driver.smi", "driver.version", "gpu.count", "gpu.product", "gpu.state", "gpu.ecc.uncorrectable", "gpu.ecc.mode", "gpu.memory",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rc", "words", "verdict"),
    [
        (2, "argument", "fail"),
        (3, "does not offer", "fail"),
        (4, "permission", "fail"),
        (6, "no GPU", "fail"),
        (8, "power cables", "fail"),
        (9, "no loaded driver", "fail"),
        (10, "interrupts", "fail"),
        (12, "libnvidia-ml", "fail"),
        (13, "lacks a function", "fail"),
        (14, "infoROM", "fail"),
        (15, "fell off the bus", "fail"),
        (18, "different versions", "fail"),
        (255, "internal driver error", "fail"),
        (77, "exit status 77", "fail"),
        (-9, "exit status -9", "fail"),
        (0, "not nvidia-smi's", "fail"),
    ],
)
def test_an_exit_status_without_words(rc: int, words: str, verdict: str) -> None:
    outcome = Outcome(rc)
    assert words in sentence(Reading(), outcome=outcome)
    found = status(Reading(), outcome=outcome)
    assert found[("driver.smi", "")] == verdict
    assert found[("driver.version", "")] == "skip"


@pytest.mark.parametrize(("rc", "verdict"), [(0, "pass"), (14, "warn"), (15, "fail"), (255, "fail")])
def test_an_exit_status_beside_a_good_answer(rc: int, verdict: str) -> None:
    assert status(READING, outcome=Outcome(rc))[("driver.smi", "")] == verdict


@pytest.mark.parametrize(
    ("problem", "words"),
    [
        ("missing", "no nvidia-smi on this node"),
        ("timeout", "no answer within 5 s, nvidia-smi was killed"),
        ("stuck", "cannot be killed"),
        ("Exec format error", "does not start (Exec format error)"),
    ],
)
def test_a_call_that_gave_no_exit_status(problem: str, words: str) -> None:
    outcome = Outcome(None, problem, "", 5.0)
    assert words in sentence(Reading(), outcome=outcome)
    assert status(Reading(), outcome=outcome)[("gpu.count", "")] == "skip"


@pytest.mark.parametrize(
    ("text", "cause", "words", "bus"),
    [
        (
            "Failed to initialize NVML: Driver/library version mismatch\nNVML library version: 550.144\n",
            "mismatch",
            "(library 550.144)",
            None,
        ),
        ("Failed to initialize NVML: Driver/library version mismatch", "mismatch", "different versions", None),
        ("NVIDIA-SMI has failed because it couldn’t communicate with the NVIDIA driver.", "driver", "no loaded driver", None),
        (
            "> NVIDIA-SMI has failed because it\n > couldn't communicate with the NVIDIA driver.",
            "driver",
            "no loaded driver",
            None,
        ),
        ("NVIDIA-SMI couldn't find libnvidia-ml.so library in your system.", "library", "no libnvidia-ml.so", None),
        ("No devices were found", "devices", "no GPU", None),
        ("Failed to initialize NVML: Insufficient Permissions", "permission", "no permission", None),
        ("Failed to initialize NVML: Unknown Error", "access", "no access", None),
        ("Failed to initialize NVML: GPU access blocked by the operating system", "nvml", "GPU access blocked", None),
        ("Unable to determine the device handle for GPU 0000:0B:00.0: Unknown Error", "lost", "0000:0b:00.0", "0000:0b:00.0"),
        ("Unable to determine the device handle for GPU0000:0B:00.0: Unknown Error", "lost", "Unknown Error", "0000:0b:00.0"),
        (
            "Unable to determine the device handle for GPU0: 0000:0B:00.0: Unknown Error",
            "lost",
            "Unknown Error",
            "0000:0b:00.0",
        ),
        (
            "Unable to determine the device handle for GPU 0000:03:00.0: GPU is lost.  Reboot\n the system to recover this GPU",
            "lost",
            "(GPU is lost)",
            "0000:03:00.0",
        ),
        (
            "The following GPUs could not be reset:\n  GPU 00000000:1A:00.0: In use by another client",
            "reset",
            "in use",
            "0000:1a:00.0",
        ),
    ],
)
def test_words_of_failure(text: str, cause: str, words: str, bus: str | None) -> None:
    named = _nvidia_smi.causes(text)
    assert (named[0].name, named[0].bus_id) == (cause, bus)
    assert words in named[0].found
    assert words in sentence(Reading(), outcome=Outcome(9, "", text))


def test_one_dead_gpu_is_blamed_once_and_by_its_bus_id() -> None:
    line = "Unable to determine the device handle for GPU 0000:01:00.0: GPU is lost. Reboot the system\n"
    found = status(Reading(), outcome=Outcome(15, "", f"@[GPU0]:\n{line}@[GPU1]:\n{line}"))
    assert [key for key, verdict in found.items() if verdict == "fail"] == [
        ("driver.smi", ""),
        ("gpu.state", "GPU 0000:01:00.0"),
    ]


def test_library_version() -> None:
    assert _nvidia_smi.library_version("…mismatch\nNVML library version: 535.161\n") == "535.161"
    assert _nvidia_smi.library_version("…mismatch") is None


@pytest.mark.parametrize(
    ("reading", "expected", "verdict", "words"),
    [
        (READING, Expected(2), "pass", ""),
        (READING, Expected(), "pass", ""),
        (READING, Expected(4), "fail", "found 2, expected 4 GPUs; reseat or replace the missing GPU, then"),
        (
            READING,
            Expected(3, bus_ids=["0000:07:00.0", "0000:41:00.0", "0000:81:00.0"]),
            "fail",
            "(0000:81:00.0 answers nothing)",
        ),
        (READING, Expected(bus_ids=["0000:07:00.0"]), "fail", "found 2, expected 1 GPU"),
        (READING, Expected(1), "fail", "correct the expected count"),
        (replace(READING, attached=3), Expected(2), "fail", "3, which the driver says are attached"),
        (replace(READING, attached=None), Expected(), "pass", ""),
        (
            replace(READING, gpus=[GOOD, replace(SECOND, troubles={"product_name": "ERR!"})]),
            Expected(2),
            "fail",
            "0000:41:00.0 answers",
        ),
        (Reading(), Expected(2), "skip", ""),
    ],
)
def test_count(reading: Reading, expected: Expected, verdict: str, words: str) -> None:
    check = _nvidia_smi.judge_count(reading, expected, [])
    assert check.status == verdict
    assert words in _checks.sentence(check)


@pytest.mark.parametrize(("expected", "verdict"), [(Expected(), "fail"), (Expected(2), "fail"), (Expected(0), "pass")])
def test_no_devices_is_a_true_zero(expected: Expected, verdict: str) -> None:
    found = _nvidia_smi.judge(Reading(), Outcome(6, "", "No devices were found"), expected)
    count = next(check for check in found if check.id == "gpu.count")
    assert (count.status, count.found) == (verdict, 0)


@pytest.mark.parametrize(
    ("found", "wanted", "same"),
    [
        ("NVIDIA H100 80GB HBM3", "H100", True),
        ("NVIDIA H100 80GB HBM3", "nvidia h100", True),
        ("NVIDIA H100 80GB HBM3", "NVIDIA H100 80GB HBM3", True),
        ("NVIDIA A100-SXM4-40GB", "A100", True),
        ("NVIDIA RTX A1000", "A100", False),
        ("NVIDIA L40S", "L40", False),
        ("Tesla V100-SXM2...", "Tesla V100-SXM2-32GB", True),
        ("Tesla V100-SXM2...", "A100", False),
    ],
)
def test_product_names(found: str, wanted: str, same: bool) -> None:
    assert _nvidia_smi.same_product(found, wanted) is same


def test_a_foreign_product_is_named_with_its_place() -> None:
    mixed = replace(READING, gpus=[GOOD, replace(SECOND, product="NVIDIA L40S")])
    assert "found NVIDIA L40S at 0000:41:00.0, expected H100" in sentence(mixed, Expected(product="H100"))
    assert "found NVIDIA H100 80GB HBM3, expected L40S" in sentence(READING, Expected(product="L40S"))
    assert status(mixed)[("gpu.product", "")] == "pass"
    nameless = replace(READING, gpus=[replace(GOOD, product=None)], attached=1)
    assert status(nameless, Expected(product="H100"))[("gpu.product", "")] == "skip"


@pytest.mark.parametrize(
    ("change", "verdict", "words"),
    [
        ({}, "pass", ""),
        ({"troubles": {"product_name": "ERR!"}}, "fail", "answers nothing"),
        ({"troubles": {"temperature/gpu_temp": "GPU is lost"}}, "fail", "answers nothing"),
        ({"troubles": {"temperature/gpu_temp": "Unknown Error"}}, "fail", "Unknown Error in the place of"),
        ({"troubles": {"fan_speed": "ERR!"}}, "warn", "fan_speed"),
        ({"troubles": {"gpu_power_readings/power_draw": "ERR!"}}, "warn", "power_draw"),
        ({"recovery": "Drain and Reset"}, "fail", "asks for Drain and Reset"),
        ({"fabric": {"state": "In Progress", "status": None}}, "fail", "error 802"),
        ({"fabric": {"state": "Not Started", "status": None}}, "fail", "not started"),
        ({"fabric": {"state": "Completed", "status": "Failure"}}, "fail", "status Failure"),
        ({"fabric": {"state": "Completed", "status": "Success", "health": "Unhealthy"}}, "fail", "unhealthy"),
        (
            {"fabric": {"state": "Completed", "status": "Success", "health": "Healthy", "route_unhealthy": "True"}},
            "fail",
            "route|Healthy",
        ),
        ({"fabric": {"state": None, "status": None}}, "pass", ""),
        ({"throttle": ["hw_thermal_slowdown"]}, "warn", "hw_thermal_slowdown"),
        ({"throttle": ["sw_power_cap"]}, "pass", ""),
        ({"bus_id": "0000:b3:00.0"}, "warn", "infoROM"),
    ],
)
def test_state(change: dict[str, Any], verdict: str, words: str) -> None:
    check = _nvidia_smi.judge_state(replace(GOOD, **change), ["0000:b3:00.0"])
    assert check.status == verdict
    assert any(word in _checks.sentence(check) for word in words.split("|"))


def ecc(**change: Any) -> Gpu:
    return replace(GOOD, ecc={**GOOD.ecc, **change})


@pytest.mark.parametrize(
    ("gpu", "verdict", "words"),
    [
        (GOOD, "pass", "found 0"),
        (ecc(volatile={"correctable": 9, "uncorrectable": 0}), "pass", "found 0"),
        (ecc(volatile={"correctable": 0, "uncorrectable": 5}), "fail", "found 5, expected 0"),
        (ecc(volatile={"correctable": None, "uncorrectable": None}), "skip", "found nothing"),
        (ecc(aggregate={"correctable": 0, "uncorrectable": 7}), "warn", "none since the last reset, 7 ever"),
        (ecc(threshold_exceeded=True), "fail", "threshold"),
        (replace(GOOD, remapped={"failure": True}), "fail", "failed row remapping"),
        (replace(GOOD, remapped={"pending": True}), "warn", "waits for a reset"),
        (replace(GOOD, retired={"pending": True}), "warn", "waits for a reset"),
        (replace(GOOD, repairs={"tpc_repair_pending": True}), "warn", "tpc repair pending"),
        (replace(GOOD, repairs={"unrepairable_memory": True}), "fail", "cannot be repaired"),
        (Gpu(uuid="GPU-1"), "skip", "found nothing"),
    ],
)
def test_uncorrectable(gpu: Gpu, verdict: str, words: str) -> None:
    check = _nvidia_smi.judge_ecc(gpu)
    assert check.status == verdict
    assert words in _checks.sentence(check)


@pytest.mark.parametrize(
    ("memory", "wanted", "verdict"),
    [
        (81559, 81920, "pass"),
        (81559, 80 * 1024, "pass"),
        (46068, 49152, "pass"),
        (40960, 81920, "fail"),
        (81559, None, "pass"),
        (None, 81920, "skip"),
        (0, None, "fail"),
    ],
)
def test_memory(memory: int | None, wanted: int | None, verdict: str) -> None:
    check = _nvidia_smi.judge_memory(replace(GOOD, memory_mib=memory), Expected(memory_mib=wanted))
    assert check.status == verdict


@pytest.mark.parametrize(
    ("mode", "wanted", "verdict"), [(True, True, "pass"), (False, True, "fail"), (True, False, "fail"), (None, True, "skip")]
)
def test_ecc_mode(mode: bool | None, wanted: bool, verdict: str) -> None:
    assert _nvidia_smi.judge_ecc_mode(ecc(enabled=mode), wanted).status == verdict


@pytest.mark.parametrize(
    ("found", "wanted", "verdict"),
    [
        ("580.95.05", "580.95.05", "pass"),
        ("580.95.05", "580", "pass"),
        ("580.95.05", "580.95", "pass"),
        ("580.95.05", "58", "fail"),
        ("580.95.05", "580.95.0", "fail"),
        ("580.95.05", None, "pass"),
        (None, "580", "skip"),
    ],
)
def test_version(found: str | None, wanted: str | None, verdict: str) -> None:
    assert _nvidia_smi.judge_version(Reading(driver_version=found), Expected(driver_version=wanted)).status == verdict


@pytest.mark.parametrize(("form", "verdict"), [("xml", "fail"), ("csv", "fail"), ("table", "warn"), ("query", "warn")])
def test_partial_output(form: str, verdict: str) -> None:
    assert status(replace(READING, form=form, partial=True))[("driver.smi", "")] == verdict


@given(st.text(), st.one_of(st.none(), st.integers(-20, 300)))
def test_no_text_breaks_the_judge(text: str, rc: int | None) -> None:
    checks = _nvidia_smi.judge(_smi_reading.read(text), Outcome(rc, "", text), Expected())
    assert checks[0].id == "driver.smi"
    for check in checks:
        _checks.sentence(check)
