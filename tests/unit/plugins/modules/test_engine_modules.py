"""engine_image, engine_port and inference_endpoint as Ansible runs them."""

from __future__ import annotations

import importlib.util
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.modules import engine_image, engine_port, inference_endpoint

_path = Path(__file__).resolve().parents[1] / "module_utils/docker_engine.py"
_spec = importlib.util.spec_from_file_location("docker_engine", _path)
assert _spec is not None
assert _spec.loader is not None
fake = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake)

RunModule = Callable[..., dict[str, Any]]
IMAGE = "r.test:5000/nvidia/tritonserver:24.10-py3"
HERE = {("GET", f"/images/{IMAGE}/json"): (200, {})}
PULLED = (200, fake.lines({"status": "Pulling from nvidia/tritonserver"}, {"status": "Status: Downloaded newer image for x"}))
CURRENT = (200, fake.lines({"status": "Status: Image is up to date for x"}))
LOGIN = {"username": "$oauthtoken", "password": "nvapi-very-secret"}


@pytest.mark.parametrize(
    ("table", "options", "check_mode", "changed", "present", "checks", "pulls"),
    [
        (HERE, {}, False, False, True, [("engine.image", "pass")], 0),
        (HERE, {}, True, False, True, [("engine.image", "pass")], 0),
        (
            {("POST", "/images/create"): PULLED},
            {},
            False,
            True,
            True,
            [("engine.registry", "pass"), ("engine.image", "pass")],
            1,
        ),
        ({}, {}, True, True, False, [("engine.image", "skip")], 0),
        (
            {**HERE, ("POST", "/images/create"): CURRENT},
            {"pull": "always"},
            False,
            False,
            True,
            [("engine.registry", "pass"), ("engine.image", "pass")],
            1,
        ),
        (
            {**HERE, ("POST", "/images/create"): PULLED},
            {"pull": "always"},
            False,
            True,
            True,
            [("engine.registry", "pass"), ("engine.image", "pass")],
            1,
        ),
    ],
)
def test_image(
    run_module: RunModule,
    tmp_path: Path,
    table: Any,
    options: Any,
    check_mode: bool,
    changed: bool,
    present: bool,
    checks: Any,
    pulls: int,
) -> None:
    with fake.engine(tmp_path, table) as (path, seen):
        result = run_module(engine_image, {"image": IMAGE, "docker_socket": path, **LOGIN, **options}, check_mode=check_mode)
    assert (result["failed"], result["changed"], result["present"]) == (False, changed, present)
    assert [(check["id"], check["status"]) for check in result["checks"]] == checks
    assert sum(method == "POST" for method, _path, _headers in seen) == pulls


@pytest.mark.parametrize(
    ("error", "check"),
    [
        ("unauthorized: authentication required for nvapi-very-secret", "engine.registry"),
        ("manifest unknown: manifest unknown", "engine.image"),
    ],
)
def test_image_refused(run_module: RunModule, tmp_path: Path, error: str, check: str) -> None:
    with fake.engine(tmp_path, {("POST", "/images/create"): (500, {"message": error})}) as (path, _seen):
        result = run_module(engine_image, {"image": IMAGE, "docker_socket": path, **LOGIN})
    assert (result["failed"], result["changed"], result["present"]) == (True, False, False)
    assert result["msg"].startswith(f"{check}: found r.test:5000 ")
    assert "nvapi-very-secret" not in str(result)


def test_image_without_an_engine(run_module: RunModule, tmp_path: Path) -> None:
    options = {"image": IMAGE, "docker_socket": str(tmp_path / "gone.sock")}
    assert run_module(engine_image, options)["msg"].startswith("container.engine: found Docker Engine does not answer")
    bare = run_module(engine_image, options, check_mode=True)
    assert (bare["failed"], bare["changed"], bare["present"]) == (False, True, False)


@pytest.mark.parametrize(("registry", "sent"), [("r.test:5000", True), ("other.test", False), (None, True)])
def test_a_login_goes_to_its_own_registry_only(run_module: RunModule, tmp_path: Path, registry: str | None, sent: bool) -> None:
    with fake.engine(tmp_path, {("POST", "/images/create"): PULLED}) as (path, seen):
        run_module(engine_image, {"image": IMAGE, "docker_socket": path, "registry": registry, **LOGIN})
    assert ("X-Registry-Auth" in seen[-1][2]) is sent


def test_port(run_module: RunModule, tmp_path: Path) -> None:
    gone = str(tmp_path / "gone.sock")
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        one.listen()
        port = one.getsockname()[1]
        result = run_module(engine_port, {"ports": [port], "container": "triton", "docker_socket": gone})
        assert result["failed"]
        assert result["msg"].startswith(f"engine.port, port {port}: found held by ")
        assert list(result["taken"]) == [str(port)]
    result = run_module(engine_port, {"ports": [port], "container": "triton", "docker_socket": gone})
    assert (result["failed"], result["checks"][0]["status"]) == (False, "pass")


def test_port_of_another_container(run_module: RunModule, tmp_path: Path) -> None:
    rows = [{"Names": ["/nim"], "Ports": [{"PublicPort": 59999, "Type": "tcp"}]}]
    with fake.engine(tmp_path, {("GET", "/containers/json"): (200, rows)}) as (path, _seen):
        result = run_module(engine_port, {"ports": [59999], "container": "triton", "docker_socket": path})
        assert "held by container nim" in result["msg"]
        assert not run_module(engine_port, {"ports": [59999], "container": "nim", "docker_socket": path})["failed"]


def test_endpoint_that_is_not_there(run_module: RunModule) -> None:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port = one.getsockname()[1]
    result = run_module(inference_endpoint, {"url": f"http://127.0.0.1:{port}", "models": ["m"]})
    assert (result["failed"], result["ready"], result["starting"], result["answer"]) == (True, False, True, None)
    assert (
        result["msg"]
        == f"engine.ready: found 127.0.0.1:{port}: connection refused, expected ready; start the engine, or correct its address, and run again."
    )
    assert run_module(inference_endpoint, {"url": f"http://127.0.0.1:{port}", "report_only": True})["failed"] is False


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"url": "127.0.0.1:8000"}, "is no address of the form"),
        ({"url": "https://127.0.0.1", "ca_path": "/nowhere/ca.crt"}, "ca_path /nowhere/ca.crt holds no certificates"),
        ({"url": "https://127.0.0.1", "ca_path": __file__}, "holds no certificates"),
    ],
)
def test_endpoint_options_that_cannot_work(run_module: RunModule, options: Any, words: str) -> None:
    result = run_module(inference_endpoint, options)
    assert result["failed"]
    assert words in result["msg"]
