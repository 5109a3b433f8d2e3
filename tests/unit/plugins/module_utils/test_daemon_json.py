"""Merging into daemon.json, and what dockerd would refuse."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _daemon_json
from ansible_collections.inferack.rack.plugins.module_utils._daemon_json import Flag

NVIDIA = {"runtimes": {"nvidia": {"path": "nvidia-container-runtime", "args": []}}}


def runtime(**fields: Any) -> str:
    return json.dumps({"runtimes": {"nvidia": fields}})


@pytest.mark.parametrize(
    "text",
    [
        runtime(path="nvidia-container-runtime", args=[]),
        runtime(path="/usr/bin/nvidia-container-runtime", runtimeArgs=[]),
        runtime(path="/usr/local/bin/nvidia-container-runtime"),
        runtime(runtimeArgs=[], path="nvidia-container-runtime"),
        runtime(path="nvidia-container-runtime", args=None),
    ],
)
def test_a_runtime_under_another_spelling_is_configured_already(text: str) -> None:
    merged = _daemon_json.merge(text, NVIDIA)
    assert not merged.changed
    assert merged.changes == []


@pytest.mark.parametrize(
    ("text", "change"),
    [
        ("", "runtimes set"),
        ("{}", "runtimes set"),
        ('{"runtimes": {"habana": {"path": "h"}}}', "runtimes.nvidia set"),
        (runtime(path="/opt/old/nvidia-container-runtime", args=[]), "runtimes.nvidia.path changed"),
        (runtime(path="nvidia-container-runtime", args=["--debug"]), "runtimes.nvidia.args changed"),
    ],
)
def test_a_runtime_that_differs_is_set(text: str, change: str) -> None:
    merged = _daemon_json.merge(text, NVIDIA, replace_lists=True)
    assert merged.changes == [change]
    own = merged.settings["runtimes"]["nvidia"]
    assert own["path"] == "nvidia-container-runtime"
    assert not own.get("args")


@pytest.mark.parametrize(
    ("own", "wanted", "replace", "after"),
    [
        ({"dns": ["1.1.1.1"]}, {"dns": ["8.8.8.8", "1.1.1.1"]}, False, {"dns": ["1.1.1.1", "8.8.8.8"]}),
        ({"dns": ["1.1.1.1"]}, {"dns": ["8.8.8.8"]}, True, {"dns": ["8.8.8.8"]}),
        (
            {"exec-opts": ["isolation=x", "native.cgroupdriver=systemd", "native.cgroupdriver=systemd"]},
            {"exec-opts": ["native.cgroupdriver=cgroupfs"]},
            False,
            {"exec-opts": ["isolation=x", "native.cgroupdriver=cgroupfs"]},
        ),
        (
            {"log-opts": {"max-size": "1m"}},
            {"log-opts": {"max-file": "3"}},
            False,
            {"log-opts": {"max-size": "1m", "max-file": "3"}},
        ),
        ({"features": {"buildkit": True}}, {"features": {"cdi": True}}, False, {"features": {"buildkit": True, "cdi": True}}),
        ({"ipv6": "true"}, {"ipv6": True}, False, {"ipv6": True}),
        ({"mtu": 1500}, {"mtu": 1500.0}, False, {"mtu": 1500}),
        ({"log-opts": "odd"}, {"log-opts": {"a": "b"}}, False, {"log-opts": {"a": "b"}}),
    ],
)
def test_merge(own: dict[str, Any], wanted: dict[str, Any], replace: bool, after: dict[str, Any]) -> None:
    merged = _daemon_json.merge(json.dumps(own), wanted, replace_lists=replace)
    assert merged.settings == after
    assert merged.changed is (own != after)


@pytest.mark.parametrize(
    ("own", "remove", "after"),
    [
        ({"a": 1, "graph": "/x"}, ["graph"], {"a": 1}),
        ({"runtimes": {"nvidia": {}, "x": {}}}, ["runtimes.nvidia"], {"runtimes": {"x": {}}}),
        ({"a.b": 1, "a": {"b": 2}}, ["a.b"], {"a": {"b": 2}}),
        ({"runtimes": {"io.containerd.x": {}}}, ["runtimes.io.containerd.x"], {"runtimes": {}}),
        ({"a": 1}, ["b", "a.c", "x.y.z"], {"a": 1}),
    ],
)
def test_remove(own: dict[str, Any], remove: list[str], after: dict[str, Any]) -> None:
    merged = _daemon_json.merge(json.dumps(own), {}, remove)
    assert merged.settings == after
    assert merged.changed is (own != after)


@pytest.mark.parametrize("text", ["[]", "null", '"x"', "1"])
def test_anything_but_an_object_is_refused(text: str) -> None:
    with pytest.raises(_daemon_json.MalformedError, match="object in braces"):
        _daemon_json.merge(text, NVIDIA)


def test_numbers_and_odd_layout_of_others_survive() -> None:
    text = '{ "big":  12345678901234567890123,\n      "f": 1.10,  "dns" : ["a",\n"b"] }'
    after = _daemon_json.merge(text, NVIDIA).after
    assert after.startswith(text[:-2])
    assert json.loads(after)["runtimes"] == NVIDIA["runtimes"]


@pytest.mark.parametrize(
    ("data", "words"),
    [("{}".encode("utf-16"), "not UTF-8"), (b"\xff{}", "not UTF-8"), ("{}".encode("utf-16-le"), "NUL")],
)
def test_other_encodings_are_refused(data: bytes, words: str) -> None:
    with pytest.raises(_daemon_json.MalformedError, match=words):
        _daemon_json.read(data)


def test_a_byte_order_mark_is_dropped() -> None:
    assert _daemon_json.read(b"\xef\xbb\xbf{}") == "{}"


@pytest.mark.parametrize(
    ("text", "wrong"),
    [
        (
            '{"ipv6": "true", "mtu": "1500", "hosts": "fd://", "log-opts": [], "bip": 1}',
            ["ipv6", "mtu", "hosts", "log-opts", "bip"],
        ),
        ('{"ipv6": true, "mtu": 1500, "hosts": [], "log-opts": {}, "bip": "", "unknown": 1, "debug": null}', []),
        ('{"debug": 1, "mtu": true}', ["debug", "mtu"]),
        ("", []),
    ],
)
def test_wrong_types(text: str, wrong: list[str]) -> None:
    assert [found.key for found in _daemon_json.wrong_types(text)] == wrong


DEBIAN_UNIT = """# /lib/systemd/system/docker.service
[Unit]
Description=Docker Application Container Engine

[Service]
EnvironmentFile=-/etc/default/docker
ExecStart=/usr/sbin/dockerd -H fd:// --containerd=/run/containerd/containerd.sock $DOCKER_OPTS
ExecReload=/bin/kill -s HUP $MAINPID

# /etc/systemd/system/docker.service.d/override.conf
[Service]
ExecStart=
ExecStart=/usr/sbin/dockerd -D --data-root /srv/docker \\
  --exec-opt native.cgroupdriver=systemd --bip="10.0.0.1/24" ${MORE}
Environment="MORE=--log-opt max-size=1m --iptables=false" OTHER=1
"""


def test_flags_of_a_unit_and_its_drop_in() -> None:
    files = _daemon_json.unit_files(DEBIAN_UNIT)
    assert [file for file, _text in files] == [
        "/lib/systemd/system/docker.service",
        "/etc/systemd/system/docker.service.d/override.conf",
    ]
    assert _daemon_json.environment_files(files) == ["/etc/default/docker"]
    drop_in = files[1][0]
    assert _daemon_json.flags(files) == [
        Flag("debug", "-D", "", drop_in),
        Flag("data-root", "--data-root", "/srv/docker", drop_in),
        Flag("exec-opts", "--exec-opt", "native.cgroupdriver=systemd", drop_in),
        Flag("bip", "--bip", "10.0.0.1/24", drop_in),
        Flag("log-opts", "--log-opt", "max-size=1m", drop_in),
        Flag("iptables", "--iptables", "false", drop_in),
    ]


@pytest.mark.parametrize(
    ("command", "environment", "flags"),
    [
        (
            "/usr/bin/dockerd $OPTIONS $DOCKER_STORAGE_OPTIONS",
            {"/etc/sysconfig/docker": "OPTIONS='--live-restore -l info'\n"},
            [
                ("live-restore", "--live-restore", "", "/etc/sysconfig/docker"),
                ("log-level", "-l", "info", "/etc/sysconfig/docker"),
            ],
        ),
        (
            "/usr/bin/dockerd -H unix:// -H tcp://0.0.0.0:2375",
            {},
            [("hosts", "-H", "unix://", "u"), ("hosts", "-H", "tcp://0.0.0.0:2375", "u")],
        ),
        ("/usr/bin/dockerd -Hfd://", {}, []),
        ("/usr/bin/dockerd --add-runtime=nvidia=/usr/bin/n", {}, [("runtimes", "--add-runtime", "nvidia=/usr/bin/n", "u")]),
        ("/usr/bin/dockerd", {"/e": "# OPTIONS=--debug\n\nbroken\n"}, []),
    ],
)
def test_flags(command: str, environment: dict[str, str], flags: list[tuple[str, str, str, str]]) -> None:
    assert _daemon_json.flags([("u", f"[Service]\nExecStart={command}\n")], environment) == [Flag(*flag) for flag in flags]


@pytest.mark.parametrize(
    ("settings", "key", "conflict"),
    [
        ({"hosts": []}, "hosts", True),
        ({"dns": []}, "hosts", False),
        ({"runtimes": {}}, "runtimes", False),
        ({"bip": ""}, "bip", True),
    ],
)
def test_conflicts(settings: dict[str, Any], key: str, conflict: bool) -> None:
    flag = Flag(key, f"--{key}", "x", "u")
    assert _daemon_json.conflicts(settings, [flag]) == ([flag] if conflict else [])


scalars = st.one_of(st.booleans(), st.integers(-5, 5), st.text(max_size=4))
keys = st.sampled_from(["a", "b", "runtimes", "exec-opts", "nvidia", "path", "args", "runtimeArgs"])
trees = st.dictionaries(
    keys,
    st.recursive(
        scalars, lambda inner: st.one_of(st.lists(scalars, max_size=3), st.dictionaries(keys, inner, max_size=3)), max_leaves=8
    ),
    max_size=4,
)


@given(trees, trees, st.booleans(), st.sampled_from([None, 0, 2, "\t"]))
def test_a_merge_is_valid_keeps_what_is_not_named_and_is_done_once(
    own: dict[str, Any], wanted: dict[str, Any], replace: bool, indent: Any
) -> None:
    merged = _daemon_json.merge(json.dumps(own, indent=indent), wanted, replace_lists=replace)
    assert json.loads(merged.after) == merged.settings
    for key, value in own.items():
        if key not in wanted:
            assert merged.settings[key] == json.loads(json.dumps(value))
    again = _daemon_json.merge(merged.after, wanted, replace_lists=replace)
    assert not again.changed


@given(st.text())
def test_no_unit_breaks_the_reader(text: str) -> None:
    _daemon_json.flags(_daemon_json.unit_files(text), {"/e": text})
    _daemon_json.flags([("u", "ExecStart=" + text)])
