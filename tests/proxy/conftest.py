"""The proxy's tests: real HTTP on loopback, with engines that misbehave on demand (`fake_engines`).

`async def` tests run in an event loop of their own.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "collections/ansible_collections/inferack/rack/roles/adapter_proxy/files/adapter_proxy"
for folder in (PACKAGE, Path(__file__).parent):
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))

#: Nothing here may take longer, seconds.
LIMIT_S = 30.0


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run `async def` tests."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = pyfuncitem._fixtureinfo.argnames
    arguments: dict[str, Any] = {name: pyfuncitem.funcargs[name] for name in names}

    async def bounded() -> None:
        await asyncio.wait_for(pyfuncitem.obj(**arguments), LIMIT_S)

    asyncio.run(bounded())
    return True
