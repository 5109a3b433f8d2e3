"""What several tests of the bench's own code need."""

from __future__ import annotations

import importlib.machinery
import importlib.util
from pathlib import Path

import pytest

KERNEL = Path(__file__).resolve().parents[2] / "kernel"


@pytest.fixture(scope="session")
def kernel():
    """The simulated kernel as a module."""
    loader = importlib.machinery.SourceFileLoader("bench_kernel", str(KERNEL / "kernel"))
    spec = importlib.util.spec_from_loader("bench_kernel", loader)
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module
