"""Xid and SXid lines of every form, and what their numbers mean."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _xid
from ansible_collections.inferack.rack.plugins.module_utils._cause import Cause
from ansible_collections.inferack.rack.plugins.module_utils._xid_causes import XidCollector


@pytest.mark.parametrize(
    ("text", "bus"),
    [
        ("0000:9b:00", "0000:9b:00.0"),
        ("0000:9B:00.0", "0000:9b:00.0"),
        ("00000000:9B:00.0", "0000:9b:00.0"),
        ("000d:00:00", "000d:00:00.0"),
        ("0018:01:00", "0018:01:00.0"),
        ("10000:3b:00", "10000:3b:00.0"),
        ("0001:00", "0000:01:00.0"),
        ("0000:3b:00.4", "0000:3b:00.4"),
        ("9b", None),
        ("", None),
        ("pci", None),
    ],
)
def test_bus_id(text: str, bus: str | None) -> None:
    assert _xid.bus_id(text) == bus


@pytest.mark.parametrize(
    ("line", "number", "bus", "process"),
    [
        (
            "NVRM: Xid (PCI:0000:41:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
            79,
            "0000:41:00.0",
            "",
        ),
        ("[ 5.0] NVRM: Xid (PCI:0000:41:00): 31, pid=14, name=python, Ch 00000030", 31, "0000:41:00.0", "python (pid 14)"),
        ("NVRM: Xid (PCI:0018:01:00): 145, pid=9, name=ray::Worker, RLW Nonfatal", 145, "0018:01:00.0", "ray::Worker (pid 9)"),
        ("kernel: NVRM: Xid (0000:01:00): 13, 0005 00000000 0000502d", 13, "0000:01:00.0", ""),
        ("NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained", 94, "0000:01:00.0", "pid 7194"),
        ("NVRM: Xid (PCI:0000:01:00): 4242, a number of the future", 4242, "0000:01:00.0", ""),
        ("NVRM: Xid (PCI:0000:01:00): 32, Channel ID 00000000 intr 00004000", 32, "0000:01:00.0", ""),
    ],
)
def test_a_line(line: str, number: int, bus: str, process: str) -> None:
    event = _xid.parse(line)
    assert event is not None
    assert (event.number, event.bus, event.process, event.switch) == (number, bus, process, False)
    assert _xid.key(line) == (False, bus, number)


@pytest.mark.parametrize(
    "line",
    [
        "",
        "NVRM: loading",
        "the exporter counts Xid 79 errors",
        "Xid (PCI:zz): 79",
        "NVRM: Xid (PCI:0000:01:00): none",
        "xid (): 1",
    ],
)
def test_no_event(line: str) -> None:
    assert _xid.parse(line) is None
    assert _xid.key(line) is None


@pytest.mark.parametrize("number", [13, 31, 32, 43, 45, 69])
def test_an_applications_fault_is_never_the_hardwares(number: int) -> None:
    kind = _xid.KINDS[_xid.kind_of(number)[0]]
    assert (kind.blames, kind.severity) == ("application", "application")


@pytest.mark.parametrize(
    ("number", "text", "kind"),
    [
        (48, "", "memory"),
        (63, "Row Remapper: New row marked for remapping, reset gpu to activate.", "memory_remapped"),
        (63, "Dynamic Page Retirement: Failed to retire", "memory_failure"),
        (64, "", "memory_failure"),
        (79, "", "bus"),
        (119, "", "firmware"),
        (144, "SAW Nonfatal XC0", "nvlink_nonfatal"),
        (144, "SAW Non-fatal XC0", "nvlink_nonfatal"),
        (150, "MSE Fatal XC0", "nvlink"),
        (150, "", "nvlink"),
        (74, "NVLink: fatal error detected on link 3", "nvlink"),
        (5, "", "reserved"),
        (9999, "", "unknown"),
    ],
)
def test_kind(number: int, text: str, kind: str) -> None:
    assert _xid.kind_of(number, text)[0] == kind


def test_the_catalogue_has_only_kinds_that_exist_and_numbers_in_its_range() -> None:
    assert {name for name, _what in _xid.CATALOGUE.values()} <= set(_xid.KINDS)
    assert max(_xid.CATALOGUE) == _xid.LAST
    for number in range(1, 400):
        name, what = _xid.kind_of(number)
        assert what
        assert _xid.KINDS[name].remedy


def causes(*lines: str) -> dict[str, Cause]:
    collector = XidCollector()
    for number, line in enumerate(lines, 1):
        collector.line(number, line, line.lower())
    return {f"{cause.id} {cause.affects[0]['name']}": cause for cause in collector.causes("log")}


def xid(number: int, text: str = "", bus: str = "0000:41:00") -> str:
    return f"NVRM: Xid (PCI:{bus}): {number}, pid=1, name=app, {text}"


@pytest.mark.parametrize(
    ("numbers", "roots"),
    [
        ((79, 119, 45, 43), {79}),
        ((119, 45), {119}),
        ((13, 43, 45), {13}),
        ((31, 109), {31}),
        ((48, 63, 94, 45), {48}),
        ((95, 63, 45), {95}),
        ((43,), {43}),
        ((45,), {45}),
        ((31, 48), {31, 48}),
        ((109,), {109}),
        ((120, 119), {120}),
        ((149, 45), {149}),
    ],
)
def test_the_root_of_several(numbers: tuple[int, ...], roots: set[int]) -> None:
    found = causes(*(xid(number) for number in numbers))
    assert {cause.id for cause in found.values() if not cause.consequence_of} == {f"xid-{number}" for number in roots}


def test_gpus_are_kept_apart() -> None:
    found = causes(xid(79), xid(45, bus="0000:42:00"))
    assert found["xid-45 0000:42:00.0"].consequence_of == ""
    assert set(found) == {"xid-79 0000:41:00.0", "xid-45 0000:42:00.0"}


def test_the_number_that_a_line_names_is_the_root_though_it_left_no_line() -> None:
    found = causes(xid(45, "Ch 00000001 caused by previous Xid 149"))
    assert found["xid-149 0000:41:00.0"].consequence_of == ""
    assert found["xid-149 0000:41:00.0"].evidence == found["xid-45 0000:41:00.0"].evidence
    assert found["xid-45 0000:41:00.0"].consequence_of == "xid-149"


@pytest.mark.parametrize(
    ("actions", "severity", "word"),
    [
        (["Drain and Reset"], "fault", "reset it"),
        (["Drain and Reset", "GPU Reset Required"], "fault", "--gpu-reset"),
        (["Node Reboot Required"], "fault", "reboot"),
        (["GPU Reset Required", "None"], "notice", "recovered"),
        (["Something New"], "fault", "Something New"),
    ],
)
def test_the_last_recovery_action_counts(actions: list[str], severity: str, word: str) -> None:
    old = ["None", *actions]
    lines = [xid(154, f"GPU recovery action changed from 0x0 ({was}) to 0x1 ({now})") for was, now in zip(old, actions)]
    cause = causes(*lines)["xid-154 0000:41:00.0"]
    assert cause.severity == severity
    assert word in cause.remedy


def test_the_action_goes_with_the_root() -> None:
    found = causes(
        xid(149, "NETIR Fatal Link 03"), xid(154, "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)")
    )
    root = found["xid-149 0000:41:00.0"]
    assert root.remedy.endswith("the driver asks for: Drain and Reset")
    assert root.found == "Xid 149: a fatal NVLink error, link 3"
    assert found["xid-154 0000:41:00.0"].consequence_of == "xid-149"


def test_a_fatal_one_counts_more_than_those_before_it() -> None:
    cause = causes(xid(149, "NETIR Nonfatal Link 01"), xid(149, "NETIR Fatal Link 02"))["xid-149 0000:41:00.0"]
    assert (cause.severity, cause.count) == ("fault", 2)


@pytest.mark.parametrize(
    ("text", "severity"),
    [("Fatal, Link 30 LTSSM Fault Up", "fault"), ("Non-fatal, Link 32 egress PRIV error", "notice"), ("x", "notice")],
)
def test_a_switch(text: str, severity: str) -> None:
    cause = causes(f"nvidia-nvswitch3: SXid (PCI:0000:c1:00.0): 20034, {text}")["sxid-20034 0000:c1:00.0"]
    assert (cause.severity, cause.affects) == (severity, [{"kind": "nvswitch", "name": "0000:c1:00.0"}])


def test_a_storm_is_counted_and_bounded() -> None:
    found = causes(*(xid(119, f"Timeout, function {number}") for number in range(5000)))
    assert found["xid-119 0000:41:00.0"].count == 5000
    assert len(found["xid-119 0000:41:00.0"].evidence) == 8
    hostile = causes(*(xid(number, bus=f"{number:04x}:01:00") for number in range(1, 5000)))
    assert len(hostile) <= XidCollector.MOST + 1


@given(st.text(alphabet="NVRM: Xid(PCI0f,)=pidne'<>.\n", max_size=120), st.integers(0, 10**7))
def test_no_line_breaks_it(text: str, number: int) -> None:
    for line in (text, f"NVRM: Xid (PCI:{text}): {number}, {text}", f"Xid (PCI:0000:01:00): {number}, {text}"):
        event = _xid.parse(line)
        if event:
            assert _xid.bus_id(event.bus) == event.bus
            assert _xid.kind_of(event.number, event.text)[0] in _xid.KINDS
