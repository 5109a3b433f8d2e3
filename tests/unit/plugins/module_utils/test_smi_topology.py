"""The matrix of `nvidia-smi topo`, and ports that nvidia-smi lists."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _smi_topology

MATRIX = """\
\t\x1b[4mGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tPIX\t0-23,96-119\t0\t\tN/A
GPU1\tNV18\t X \tSYS\t24-47\t1\t\tN/A
NIC0\tPIX\tSYS\t X \t\t\t\t

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""


def test_a_matrix() -> None:
    found = _smi_topology.read(MATRIX)
    assert found is not None
    assert (found.gpus, found.rows, found.nics) == (["GPU0", "GPU1"], ["GPU0", "GPU1"], ["NIC0"])
    assert found.links == {"GPU0-GPU1": "NV18", "GPU1-GPU0": "NV18"}
    assert (found.nvlink, found.partial) == (True, False)


def test_no_nvlink_shown_is_not_no_nvlink() -> None:
    found = _smi_topology.read(MATRIX.replace("NV18", "NODE"))
    assert found is not None
    assert found.nvlink is None


def test_a_cut_matrix_is_partial() -> None:
    found = _smi_topology.read("\n".join(MATRIX.splitlines()[:2]))
    assert found is not None
    assert (found.partial, found.gpus, found.rows) == (True, ["GPU0", "GPU1"], ["GPU0"])


def test_one_gpu() -> None:
    found = _smi_topology.read("\tGPU0\tCPU Affinity\tNUMA Affinity\nGPU0\t X \t0-15\t0\n")
    assert found is not None
    assert (found.gpus, found.links, found.nvlink) == (["GPU0"], {}, None)


def test_other_texts() -> None:
    assert _smi_topology.read("Legend:\n  X = Self\n") is None
    assert _smi_topology.read("GPU0: fine\nGPU1: fine\n") is None
    assert _smi_topology.ports("GPU 0: A (UUID: GPU-1)\n") == {}


def test_ports() -> None:
    text = "GPU 0: NVIDIA A (UUID: GPU-0a)\n         C2C Link 0: 44.7 GB/s\nGPU 1: NVIDIA A (UUID: GPU-0b)\n\t Link 0: 25 GB/s\n\t Link 1: <inactive>\n"
    assert _smi_topology.ports(text) == {"0": {"0": "44.7 GB/s"}, "1": {"0": "25 GB/s", "1": "<inactive>"}}


@given(st.integers(0, len(MATRIX)), st.integers(0, len(MATRIX)))
def test_cut_anywhere_no_gpu_is_invented(start: int, end: int) -> None:
    found = _smi_topology.read(MATRIX[start:end])
    if found is not None:
        assert set(found.gpus) <= {"GPU0", "GPU1"}
        assert set(found.links.values()) <= {"NV18", "PIX", "SYS", "X"}
