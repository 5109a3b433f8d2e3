"""Engine and toolkit, judged from the node's fact; dockerd's and the package managers' words."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.plugin_utils import _container_checks as checks

NAMES = ["nvidia-container-toolkit", "nvidia-container-toolkit-base", "libnvidia-container-tools", "libnvidia-container1"]
CASES = Path(__file__).parents[5] / "shared" / "cases" / "docker"


def toolkit(*versions: str) -> dict[str, Any]:
    return {
        "packages": dict(zip(NAMES, versions, strict=False)),
        "docker": {
            "running": True,
            "version": "26.1.5",
            "runtimes": ["runc", "nvidia"],
            "snap": False,
            "path": "/usr/bin/docker",
        },
    }


def verdicts(found: list[dict[str, Any]]) -> dict[str, str]:
    return {check["id"]: check["status"] for check in found}


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (
            "unable to configure the Docker daemon with file /etc/docker/daemon.json: json: cannot unmarshal string into Go struct "
            "field Config.ipv6 of type bool",
            "json: cannot unmarshal string into Go struct field Config.ipv6 of type bool",
        ),
        (
            "host dockerd[41140]: unable to configure the Docker daemon with file /etc/docker/daemon.json: invalid character '}' "
            "looking for beginning of object key string",
            "invalid character '}' looking for beginning of object key string",
        ),
        (
            "failed to start daemon: error initializing graphdriver: driver not supported",
            "error initializing graphdriver: driver not supported",
        ),
        (
            'time="2026-11-30T12:00:00Z" level=fatal msg="pid file found, ensure docker is not running"',
            "pid file found, ensure docker is not running",
        ),
        ("unknown flag: --nonsense", "unknown flag: --nonsense"),
        ('time="2026-11-30T12:00:00Z" level=info msg="Starting up"', ""),
    ],
)
def test_dockerd_error(line: str, said: str) -> None:
    noise = ["docker.service: Main process exited, code=exited, status=1/FAILURE", "docker.service: Scheduled restart job"]
    assert checks.dockerd_error(["Starting up", line, *noise]) == said


@pytest.mark.parametrize(
    ("put_back", "running", "id_", "words"),
    [
        (True, True, "container.daemon_json", "is as it was before and the engine runs"),
        (True, False, "container.daemon_json", "does not run with that either"),
        (False, False, "container.engine", "Mend what dockerd complains about"),
    ],
)
def test_refusal_says_what_became_of_the_file(put_back: bool, running: bool, id_: str, words: str) -> None:
    lines = ["failed to start daemon: driver not supported", "", "docker.service: Failed with result 'exit-code'."]
    (check,) = checks.dockerd_refused(lines, "/etc/docker/daemon.json", put_back, running)
    assert check["id"] == id_
    assert check["status"] == "fail"
    assert "driver not supported" in check["found"]
    assert words in check["remedy"]
    assert "" not in check["evidence"]


def test_a_silent_journal_still_gives_a_sentence() -> None:
    (check,) = checks.dockerd_refused([], "/etc/docker/daemon.json", False, False)
    assert check["found"].endswith("nothing in its journal")


@pytest.mark.parametrize(
    ("docker", "status"),
    [
        ({"running": True, "version": "20.10.24", "snap": False}, "pass"),
        ({"running": False, "version": "20.10.24", "snap": False, "path": "/usr/bin/docker"}, "fail"),
        ({"running": True, "version": "27", "snap": True, "path": "/snap/bin/docker"}, "fail"),
        (None, "fail"),
        ({"running": None, "version": None, "snap": False, "path": "/usr/bin/docker"}, "fail"),
    ],
)
def test_engine(docker: dict[str, Any] | None, status: str) -> None:
    (check,) = checks.engine_checks({"docker": docker})
    assert (check["id"], check["status"]) == ("container.engine", status)
    assert bool(check["remedy"]) is (status == "fail")


def test_snap_is_refused_with_its_remedy() -> None:
    (check,) = checks.engine_conflicts({"docker": {"snap": True, "path": "/snap/bin/docker"}}, [], ["docker.io"])
    assert "snap remove --purge docker" in check["remedy"]
    assert "data" in check["remedy"], "removing it deletes volumes"


@pytest.mark.parametrize(
    ("packages", "refused"),
    [
        ({"podman": "3.4", "runc": "1.1"}, "podman, runc"),
        ({"podman": "3.4", "docker-engine": "18.09"}, None),
        ({"gcc": "10"}, None),
        (None, None),
    ],
)
def test_packages_that_exclude_the_engine(packages: dict[str, str] | None, refused: str | None) -> None:
    found = checks.engine_conflicts({"docker": None, "packages": packages}, ["podman", "containerd", "runc"], ["docker-engine"])
    assert [check["found"] for check in found] == ([f"{refused} installed"] if refused else [])


@pytest.mark.parametrize(
    ("version", "upstream"),
    [
        ("1.20.0-1", "1.20.0"),
        ("1:1.20.0-1", "1.20.0"),
        ("1.20.0", "1.20.0"),
        ("1.20.0~rc.1-1", "1.20.0~rc.1"),
        ("1.18.0-1.x86_64", "1.18.0"),
    ],
)
def test_upstream(version: str, upstream: str) -> None:
    assert checks.upstream(version) == upstream


@pytest.mark.parametrize(
    ("versions", "wanted", "right", "words"),
    [
        (["1.20.0-1"] * 4, "", True, "version 1.20.0"),
        (["1.20.0-1"] * 4, "1.20.0", True, "version 1.20.0"),
        (["1.20.0-1"] * 4, "1.19.1", False, "nvidia-container-toolkit 1.20.0"),
        (["1.20.0-1", "1.19.1-1", "1.20.0-1", "1.20.0-1"], "", False, "nvidia-container-toolkit-base 1.19.1"),
        (["1.20.0-1", "1.20.0-1", "1.20.0-1"], "", False, "libnvidia-container1 not installed"),
        ([], "", False, "not installed"),
    ],
)
def test_toolkit_versions(versions: list[str], wanted: str, right: bool, words: str) -> None:
    node = toolkit(*versions)
    assert checks.toolkit_right(node, NAMES, wanted) is right
    found = checks.toolkit_checks(node, NAMES, wanted)
    assert verdicts(found) == {"container.toolkit": "pass" if right else "fail", "container.runtime": "pass"}
    assert words in found[0]["found"]


@pytest.mark.parametrize(
    ("docker", "status", "words"),
    [
        ({"running": True, "runtimes": ["runc", "nvidia"]}, "pass", ""),
        ({"running": True, "runtimes": ["io.containerd.runc.v2", "runc"]}, "fail", "restart Docker"),
        ({"running": True, "runtimes": None}, "fail", "role nvidia_container_toolkit"),
        ({"running": False, "runtimes": ["nvidia"]}, "fail", "Start Docker"),
        (None, "fail", "Start Docker"),
    ],
)
def test_runtime(docker: dict[str, Any] | None, status: str, words: str) -> None:
    node = {**toolkit(*["1.20.0-1"] * 4), "docker": docker}
    check = checks.toolkit_checks(node, NAMES)[1]
    assert (check["id"], check["status"]) == ("container.runtime", status)
    assert words in check["remedy"]


@pytest.mark.parametrize(
    ("version", "cdi", "on"),
    [
        ("20.10.24+dfsg1", "auto", False),
        ("24.0.7", "auto", False),
        ("25.0.3", "auto", True),
        ("28.5.1", "auto", True),
        (None, "auto", False),
        ("20.10.24", "always", True),
        ("28.5.1", "never", False),
    ],
)
def test_settings(version: str | None, cdi: str, on: bool) -> None:
    settings = checks.toolkit_settings({"docker": {"version": version}}, cdi, False, "25")
    assert settings["runtimes"] == {"nvidia": {"path": "nvidia-container-runtime", "args": []}}
    assert settings.get("features") == ({"cdi": True} if on else None)
    assert "default-runtime" not in settings
    assert checks.toolkit_settings({}, cdi, True, "25")["default-runtime"] == "nvidia"


@pytest.mark.parametrize(
    ("result", "found", "remedy"),
    [
        (
            {"msg": "Failed to install some of the specified packages", "failures": ["No package moby available."]},
            "No package moby available",
            "Enable a repository",
        ),
        (
            {"msg": "No package matching 'docker.io' is available"},
            "No package matching 'docker.io' is available",
            "Enable a repository",
        ),
        (
            {
                "msg": "'/usr/bin/apt-get install' failed: E: x",
                "stderr": "W: old\nE: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7",
            },
            "E: Could not get lock /var/lib/dpkg/lock-frontend. It is held by process 7",
            "Wait until",
        ),
        (
            {"msg": "Depsolve Error occurred: \n Problem: package moby conflicts with docker-ce", "failures": []},
            "Problem: package moby conflicts with docker-ce",
            "Remove or update",
        ),
        ({"msg": "", "stderr": ""}, "no message", "Mend what"),
    ],
)
def test_package_failure(result: dict[str, Any], found: str, remedy: str) -> None:
    (check,) = checks.package_failure(result, "container.engine", ["moby"])
    assert found in check["found"]
    assert check["remedy"].startswith(remedy)


@pytest.mark.skipif(not CASES.is_dir(), reason="the corpus of cases is not there")
@pytest.mark.parametrize(
    "name", ["daemon_invalid_trailing_comma.txt", "daemon_unknown_directive_truncated.txt", "daemon_unmarshal_string_bool.txt"]
)
def test_refusals_of_real_machines(name: str) -> None:
    assert checks.dockerd_error((CASES / name).read_text(encoding="utf-8").splitlines())
