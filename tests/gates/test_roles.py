"""Rules that hold for every role, checked on the files themselves."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
COLLECTION = ROOT / "collections/ansible_collections/inferack/rack"
ROLES = sorted(path for path in (COLLECTION / "roles").iterdir() if path.is_dir())
EXPECTED_ROLES = {
    "preflight", "nouveau", "nvidia_driver", "container_runtime", "nvidia_container_toolkit", "triton", "nim", "adapter_proxy", "acceptance",
}  # fmt: skip
MAX_TASK_LINES = 80
# Loop variables, and what describes the hardware: names that an operator writes or Ansible gives.
SHARED_PREFIX = "inferack_"


class _Loader(yaml.SafeLoader):
    """Reads Ansible's own tags as plain values."""


_Loader.add_multi_constructor("!", lambda loader, suffix, node: loader.construct_scalar(node))


def load(path: Path):
    return yaml.load(path.read_text(), Loader=_Loader)


def task_files(role: Path) -> list[Path]:
    return sorted([*role.glob("tasks/**/*.yml"), *role.glob("handlers/**/*.yml")])


def walk(tasks):
    """Every task of a list, blocks opened."""
    for task in tasks or []:
        yield task
        for key in ("block", "rescue", "always"):
            yield from walk(task.get(key))


def ids(paths):
    return [path.name for path in paths]


def test_all_roles_are_there() -> None:
    assert {role.name for role in ROLES} >= EXPECTED_ROLES


@pytest.mark.parametrize("role", ROLES, ids=ids(ROLES))
def test_defaults_equal_argument_specs(role: Path) -> None:
    defaults = load(role / "defaults/main.yml") or {}
    specs = load(role / "meta/argument_specs.yml")["argument_specs"]
    options = specs["main"].get("options") or {}
    required = {name for name, option in options.items() if option.get("required")}
    assert set(defaults) == set(options) - required
    for name, value in defaults.items():
        assert options[name].get("default") == value, f"{name}: the default in meta/argument_specs.yml differs"
        assert options[name].get("description"), f"{name} has no description"


@pytest.mark.parametrize("role", ROLES, ids=ids(ROLES))
def test_a_role_is_whole(role: Path) -> None:
    for name in ("README.md", "meta/main.yml", "meta/argument_specs.yml", "defaults/main.yml", "tasks/main.yml"):
        assert (role / name).is_file(), f"{name} is missing"
    scenario = ROOT / "molecule" / role.name
    assert (scenario / "molecule.yml").is_file(), "no Molecule scenario"
    tests = list(scenario.glob("tests/test_*.py"))
    assert tests, "the scenario has no tests"
    assert all("assert " in test.read_text() for test in tests), "a test file asserts nothing"


@pytest.mark.parametrize("role", ROLES, ids=ids(ROLES))
def test_task_files_are_one_topic_each(role: Path) -> None:
    for path in task_files(role):
        text = path.read_text()
        assert len(text.splitlines()) <= MAX_TASK_LINES, f"{path.name} is longer than {MAX_TASK_LINES} lines"
        assert not re.search(r"https?://[a-z]", text), f"{path.name} holds a URL; it belongs into defaults or data"


@pytest.mark.parametrize("role", ROLES, ids=ids(ROLES))
def test_failures_are_not_swallowed(role: Path) -> None:
    for path in task_files(role):
        for task in walk(load(path)):
            assert not task.get("ignore_errors"), f"{path.name}: {task.get('name')} ignores errors"
            if task.get("failed_when") is False:
                assert "register" in task, f"{path.name}: {task.get('name')} drops its failure unread"


@pytest.mark.parametrize("role", ROLES, ids=ids(ROLES))
def test_names_carry_the_roles_prefix(role: Path) -> None:
    public = set(load(role / "defaults/main.yml") or {})
    for name in public:
        assert name.startswith((f"{role.name}_", SHARED_PREFIX)) or name in {"gpu_expected", "rack_unit", "rack_units"}, name
    for path in role.glob("vars/**/*.yml"):
        for name in load(path) or {}:
            assert name.startswith(f"_{role.name}_"), f"{path.name}: {name}"
    for path in task_files(role):
        for task in walk(load(path)):
            if register := task.get("register"):
                assert register.startswith(f"__{role.name}_"), f"{path.name}: {register}"


@pytest.mark.parametrize("role", ROLES, ids=ids(ROLES))
def test_facts_are_read_from_ansible_facts(role: Path) -> None:
    injected = re.compile(
        r"\bansible_(distribution|os_family|kernel|architecture|pkg_mgr|service_mgr|processor|memory|mounts|hostname|fqdn|default_ipv4)\w*"
    )
    for path in [*task_files(role), *role.glob("templates/**/*")]:
        if path.is_file() and (found := injected.search(path.read_text())):
            pytest.fail(f"{path.name}: {found.group()} is an injected fact")
