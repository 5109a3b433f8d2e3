"""nvidia-smi's output in every form, small pieces of each; the whole outputs are in tests/corpus."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _smi_reading
from ansible_collections.inferack.rack.plugins.module_utils._smi_reading import Gpu


@pytest.mark.parametrize(
    ("value", "number"),
    [
        ("81559 MiB", 81559.0),
        ("26.16 W", 26.16),
        ("16x", 16.0),
        ("0 %", 0.0),
        ("-8 C", -8.0),
        ("[N/A]", None),
        ("N/A", None),
        ("", None),
        (None, None),
        ("ERR!", None),
        ("[Unknown Error]", None),
        ("GPU is lost", None),
        ("Requested functionality has been deprecated", None),
        ("[Insufficient Permissions]", None),
        ("0x16", None),
        ("12 bananas", None),
    ],
)
def test_missing_is_never_zero(value: str | None, number: float | None) -> None:
    assert _smi_reading.number(value) == number


@pytest.mark.parametrize(
    ("text", "bus"),
    [
        ("00000000:07:00.0", "0000:07:00.0"),
        ("0000:B3:00.0", "0000:b3:00.0"),
        ("00008ED0:00:00.0", "8ed0:00:00.0"),
        ("000A0000:01:00.0", "a0000:01:00.0"),
        ("GPU 0000:01:00.0: lost", "0000:01:00.0"),
        ("07:00.0", None),
        (None, None),
    ],
)
def test_bus_id(text: str | None, bus: str | None) -> None:
    assert _smi_reading.bus_id(text) == bus


@pytest.mark.parametrize(
    ("values", "version"),
    [
        (("580.95.05",), "580.95.05"),
        (("550.76",), "550.76"),
        ((None, "610.57.04 [Deprecated; will be removed in CUDA 14.0. Use KMD Version instead]"), "610.57.04"),
        (("610.57.04", "wrong"), "610.57.04"),
        (("N/A",), None),
        ((None,), None),
    ],
)
def test_version(values: tuple[str | None, ...], version: str | None) -> None:
    assert _smi_reading.version(*values) == version


def xml(*gpus: str, head: str = "<driver_version>580.95.05</driver_version><attached_gpus>1</attached_gpus>") -> str:
    doctype = '<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v13.dtd">\n'
    return f"{doctype}<nvidia_smi_log>\n{head}\n" + "\n".join(gpus) + "\n</nvidia_smi_log>\n"


def one(body: str, bus: str = "00000000:07:00.0") -> str:
    return f'<gpu id="{bus}">\n{body}\n</gpu>'


def read_one(body: str) -> Gpu:
    return _smi_reading.read(xml(one(body))).gpus[0]


ECC_NEW = """<ecc_errors><volatile><sram_correctable>1</sram_correctable><sram_uncorrectable_parity>2</sram_uncorrectable_parity>
<sram_uncorrectable_secded>3</sram_uncorrectable_secded><dram_correctable>0</dram_correctable>
<dram_uncorrectable>4</dram_uncorrectable></volatile></ecc_errors>"""
ECC_11 = """<ecc_errors><volatile><sram_uncorrectable>1</sram_uncorrectable><dram_uncorrectable>N/A</dram_uncorrectable>
</volatile></ecc_errors>"""
ECC_OLD = """<ecc_errors><volatile><double_bit><device_memory>2</device_memory><cbu>N/A</cbu><total>5</total></double_bit></volatile>
</ecc_errors>"""
ECC_NO_TOTAL = """<ecc_errors><volatile><double_bit><device_memory>2</device_memory><register_file>1</register_file><total>N/A</total>
</double_bit></volatile></ecc_errors>"""
ECC_NONE = "<ecc_errors><volatile><dram_uncorrectable>N/A</dram_uncorrectable></volatile></ecc_errors>"


@pytest.mark.parametrize(
    ("body", "count"), [(ECC_NEW, 9), (ECC_11, 1), (ECC_OLD, 5), (ECC_NO_TOTAL, 3), (ECC_NONE, None), ("", None)]
)
def test_uncorrectable_errors_in_every_version(body: str, count: int | None) -> None:
    assert read_one(body).ecc["volatile"]["uncorrectable"] == count


@pytest.mark.parametrize(
    ("body", "name", "value"),
    [
        ("<power_readings><power_draw>26.1 W</power_draw></power_readings>", "power_w", 26.1),
        ("<gpu_power_readings><power_draw>27 W</power_draw></gpu_power_readings>", "power_w", 27.0),
        (
            "<gpu_power_readings><average_power_draw>N/A</average_power_draw><instant_power_draw>28 W</instant_power_draw>"
            "</gpu_power_readings>",
            "power_w",
            28.0,
        ),
        ("<power_readings><power_limit>250.00 W</power_limit></power_readings>", "power_limit_w", 250.0),
        ("<temperature><gpu_temp>38 C</gpu_temp></temperature>", "temperature_c", 38.0),
        (
            "<gpu_virtualization_mode><virtualization_mode>VGPU</virtualization_mode></gpu_virtualization_mode>"
            "<temperature><gpu_temp>0 C</gpu_temp></temperature>",
            "temperature_c",
            None,
        ),
        ("<gpu_recovery_action>None</gpu_recovery_action>", "recovery", None),
        ("<gpu_recovery_action>Drain and Reset</gpu_recovery_action>", "recovery", "Drain and Reset"),
        ("<gpu_reset_status><reset_required>Yes</reset_required></gpu_reset_status>", "recovery", "reset required"),
        ("<gpu_reset_status><reset_required>No</reset_required></gpu_reset_status>", "recovery", None),
        ("<minor_number>N/A</minor_number>", "minor", None),
        ("<persistence_mode>Enabled</persistence_mode>", "persistence", True),
        (
            "<clocks_throttle_reasons><clocks_throttle_reason_gpu_idle>Active</clocks_throttle_reason_gpu_idle>"
            "<clocks_throttle_reason_hw_slowdown>Active</clocks_throttle_reason_hw_slowdown></clocks_throttle_reasons>",
            "throttle",
            ["hw_slowdown"],
        ),
        (
            "<clocks_event_reasons><clocks_event_reason_sw_power_cap>Active</clocks_event_reason_sw_power_cap></clocks_event_reasons>",
            "throttle",
            ["sw_power_cap"],
        ),
        ("<product_name>ERR!</product_name>", "troubles", {"product_name": "ERR!"}),
        ("<processes><process_info><process_name>ERR!</process_name></process_info></processes>", "troubles", {}),
    ],
)
def test_fields_under_all_their_names(body: str, name: str, value: Any) -> None:
    assert getattr(read_one(body), name) == value


def test_mig_devices() -> None:
    device = "<mig_device><index>0</index><fb_memory_usage><total>{} MiB</total></fb_memory_usage></mig_device>"
    mode = "<mig_mode><current_mig>Enabled</current_mig></mig_mode>"
    two = read_one(f"{mode}<mig_devices>{device.format(19968)}{device.format(4864)}</mig_devices>")
    assert two.mig == {"enabled": True, "devices_mib": [19968, 4864]}
    assert two.memory_mib is None
    assert read_one(f"{mode}<mig_devices>{device.format(19968)}</mig_devices>").mig["devices_mib"] == [19968]
    assert read_one("<mig_devices>None</mig_devices>").mig == {"enabled": None, "devices_mib": []}


def test_blank_lines_and_warnings_around_the_document() -> None:
    text = "\n\nsome warning\n" + xml(one("<uuid>GPU-1</uuid>")) + "WARNING: infoROM is corrupted at gpu 00000000:07:00.0\n"
    reading = _smi_reading.read(text)
    assert (reading.form, len(reading.gpus), reading.partial) == ("xml", 1, False)
    assert reading.corrupted == ["0000:07:00.0"]


def test_a_document_that_ends_in_the_middle_keeps_the_whole_gpus() -> None:
    whole = xml(one("<uuid>GPU-1</uuid>"), one("<uuid>GPU-2</uuid>", "00000000:08:00.0"))
    reading = _smi_reading.read(whole[: whole.index("GPU-2") + 3])
    assert reading.partial
    assert [gpu.uuid for gpu in reading.gpus] == ["GPU-1"]


def test_a_document_that_breaks_in_the_middle() -> None:
    text = xml(one("<uuid>GPU-1</uuid>"), "<gpu><broken & ></gpu>")
    reading = _smi_reading.read(text)
    assert reading.partial
    assert [gpu.uuid for gpu in reading.gpus] == ["GPU-1"]


def test_entities_are_not_expanded() -> None:
    bomb = '<!DOCTYPE nvidia_smi_log [<!ENTITY a "aaaa"><!ENTITY b "&a;&a;">]><nvidia_smi_log><gpu><uuid>&b;</uuid></gpu></nvidia_smi_log>'
    assert "aaaa" not in json.dumps(_smi_reading.as_dict(_smi_reading.read(bomb)))
    inside = "<nvidia_smi_log><!ENTITY a 'aaaa'><gpu><uuid>&a;</uuid></gpu></nvidia_smi_log>"
    assert "aaaa" not in json.dumps(_smi_reading.as_dict(_smi_reading.read(inside)))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "\n\n",
        "No devices were found\n",
        "root@host:~# ixsmi\n| IX-ML: 2.3.1  Driver Version: 2.3.0 |\n| 0    Iluvatar BI-V100         | 00000000:65:00.0     |\n",
        "Legend:\n\n  X    = Self\n  NV#  = Connection traversing a bonded set of # NVLinks\n",
        "\tGPU0\tGPU1\tCPU Affinity\nGPU0\t X \tNV12\t0-11\n",
        "a,b\n1,2\n",
        "    some : thing\n    other : thing\n",
    ],
)
def test_no_gpu_is_invented(text: str) -> None:
    reading = _smi_reading.read(text)
    assert (reading.form, reading.gpus, reading.driver_version) == ("none", [], None)


def test_csv_with_units_and_both_ways_to_say_nothing() -> None:
    text = (
        "index, name, pci.bus_id, memory.total [MiB], temperature.gpu, power.draw [W], ecc.errors.uncorrected.volatile.total\n"
        "0, Tesla T4, 00000001:01:00.0, 15360 MiB, N/A, [N/A], 0\n"
        "1, Tesla T4, 00000001:02:00.0, 15360 MiB, 40\n"
    )
    reading = _smi_reading.read(text)
    assert (reading.form, len(reading.gpus), reading.partial) == ("csv", 1, True)
    gpu = reading.gpus[0]
    assert (gpu.memory_mib, gpu.temperature_c, gpu.power_w, gpu.ecc["volatile"]["uncorrectable"]) == (15360, None, None, 0)


pieces = st.sampled_from(
    [
        "<nvidia_smi_log>", "</nvidia_smi_log>", "<gpu id='0'>", "</gpu>", "<uuid>", "</uuid>", "N/A", "ERR!", "&", "<", "\n",
        "==============NVSMI LOG==============\n", "GPU 00000000:01:00.0\n", "    FB Memory Usage\n", "        Total : 1 MiB\n",
        "|   0  NVIDIA A40          On   | 00000000:1A:00.0 Off |                    0 |\n", "| NVIDIA-SMI 1 Driver Version: 2\n",
        "name, uuid\n", "x, y\n", "GPU 0: A (UUID: GPU-1)\n",
    ]
)  # fmt: skip


@given(st.one_of(st.text(), st.lists(pieces).map("".join)))
def test_no_text_breaks_the_reader(text: str) -> None:
    reading = _smi_reading.read(text)
    json.dumps(_smi_reading.as_dict(reading))
    if reading.form == "none":
        assert reading.gpus == []


@given(st.integers(0, 400), st.integers(0, 400))
def test_a_document_cut_anywhere_is_partial_or_whole(start: int, end: int) -> None:
    whole = xml(
        one("<product_name>NVIDIA H100</product_name><uuid>GPU-1</uuid><fb_memory_usage><total>1 MiB</total></fb_memory_usage>")
    )
    reading = _smi_reading.read(whole[start : len(whole) - end])
    for gpu in reading.gpus:
        assert gpu.uuid == "GPU-1"
    if reading.gpus and not reading.partial:
        assert "</nvidia_smi_log>" in whole[start : len(whole) - end]
