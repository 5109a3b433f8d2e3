"""Docker Engine's API, against a server on a Unix socket."""

from __future__ import annotations

import base64
import importlib.util
import json
from pathlib import Path

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _docker_socket as docker

_spec = importlib.util.spec_from_file_location("docker_engine", Path(__file__).with_name("docker_engine.py"))
assert _spec is not None
assert _spec.loader is not None
fake = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fake)


def test_ping(tmp_path: Path) -> None:
    with fake.engine(tmp_path, {("GET", "/_ping"): (200, b"OK")}) as (path, _seen):
        assert docker.ping(path) is None
    assert "does not answer at" in str(docker.ping(str(tmp_path / "gone.sock")))


def test_container(tmp_path: Path) -> None:
    with fake.engine(tmp_path, {("GET", "/containers/triton/json"): (200, fake.inspected("exited", 1, 3))}) as (path, _seen):
        found = docker.container(path, "triton")
        assert found is not None
        assert (found.status, found.exit_code, found.restarts, found.host_ports) == ("exited", 1, 3, [8000])
        assert docker.container(path, "other") is None


def test_the_engines_words_are_kept(tmp_path: Path) -> None:
    with fake.engine(tmp_path, {("GET", "/containers/"): (500, {"message": "broken\n"})}) as (path, _seen):
        with pytest.raises(docker.DockerError, match=r"^broken$") as caught:
            docker.container(path, "triton")
        assert caught.value.status == 500


def test_publishers(tmp_path: Path) -> None:
    rows = [
        {
            "Names": ["/nim"],
            "Ports": [{"PrivatePort": 8000, "PublicPort": 8000, "Type": "tcp"}, {"PrivatePort": 9, "Type": "tcp"}],
        },
        {"Names": ["/dns"], "Ports": [{"PrivatePort": 53, "PublicPort": 53, "Type": "udp"}]},
        {"Names": ["/idle"], "Ports": None},
    ]
    with fake.engine(tmp_path, {("GET", "/containers/json"): (200, rows)}) as (path, _seen):
        assert docker.publishers(path) == {8000: "nim"}


def test_logs_since_the_last_start(tmp_path: Path) -> None:
    table = {
        ("GET", "/containers/t/json"): (200, fake.inspected()),
        ("GET", "/containers/t/logs"): (200, fake.log_frames("one", "two")),
    }
    with fake.engine(tmp_path, table) as (path, seen):
        assert docker.logs(path, "t", 50) == "one\ntwo\n"
        assert "since=1796043600.123456789" in seen[-1][1]
        assert "tail=50" in seen[-1][1]
        docker.logs(path, "t", before_s=60)
        assert "since=1796043540.123456789" in seen[-1][1]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", ""),
        (b"plain text of a terminal\n", "plain text of a terminal\n"),
        (b"\x01\0\0\0\0\0\0\x02ab", "ab"),
        (b"\x02\0\0\0\0\0\0\x09cut", "cut"),
    ],
)
def test_demultiplex(raw: bytes, text: str) -> None:
    assert docker.demultiplex(raw) == text


@pytest.mark.parametrize(
    ("image", "name", "tag", "registry"),
    [
        ("busybox", "busybox", "latest", "docker.io"),
        ("library/busybox:1", "library/busybox", "1", "docker.io"),
        ("nvcr.io/nvidia/tritonserver:25.09-py3", "nvcr.io/nvidia/tritonserver", "25.09-py3", "nvcr.io"),
        ("r.test:5000/a/b", "r.test:5000/a/b", "latest", "r.test:5000"),
        ("r.test:5000/a/b:1", "r.test:5000/a/b", "1", "r.test:5000"),
        ("localhost/a:1", "localhost/a", "1", "localhost"),
        ("r.test/a@sha256:0f", "r.test/a", "sha256:0f", "r.test"),
    ],
)
def test_references(image: str, name: str, tag: str, registry: str) -> None:
    assert docker.split_image(image) == (name, tag)
    assert docker.registry_of(image) == registry


def test_pull_sends_the_login_in_a_header_only(tmp_path: Path) -> None:
    said = fake.lines(
        {"status": "Pulling from a/b"},
        {"status": "Downloading", "id": "0f", "progressDetail": {"current": 1}},
        {"status": "Status: Downloaded newer image"},
    )
    with fake.engine(tmp_path, {("POST", "/images/create"): (200, said)}) as (path, seen):
        assert docker.pull(path, "r.test:5000/a/b:1", "$oauthtoken", "nvapi-x") == [
            "Pulling from a/b",
            "Status: Downloaded newer image",
        ]
    method, target, headers = seen[0]
    assert (method, target) == ("POST", "/images/create?fromImage=r.test%3A5000%2Fa%2Fb&tag=1")
    assert json.loads(base64.urlsafe_b64decode(headers["X-Registry-Auth"])) == {
        "username": "$oauthtoken",
        "password": "nvapi-x",
        "serveraddress": "r.test:5000",
    }


def test_pull_without_a_login_sends_none(tmp_path: Path) -> None:
    with fake.engine(tmp_path, {("POST", "/images/create"): (200, b"")}) as (path, seen):
        docker.pull(path, "busybox")
    assert "X-Registry-Auth" not in seen[0][2]


@pytest.mark.parametrize(
    "reply",
    [
        (500, {"message": "unauthorized: authentication required"}),
        (200, fake.lines({"status": "Pulling"}, {"error": "unauthorized: authentication required"})),
    ],
)
def test_a_refused_pull(tmp_path: Path, reply: tuple[int, object]) -> None:
    with (
        fake.engine(tmp_path, {("POST", "/images/create"): reply}) as (path, _seen),
        pytest.raises(docker.DockerError, match=r"^unauthorized: authentication required$"),
    ):
        docker.pull(path, "a/b")


def test_has_image(tmp_path: Path) -> None:
    with fake.engine(tmp_path, {("GET", "/images/r.test:5000/a/b:1/json"): (200, {})}) as (path, _seen):
        assert docker.has_image(path, "r.test:5000/a/b:1")
        assert not docker.has_image(path, "r.test:5000/a/b:2")
