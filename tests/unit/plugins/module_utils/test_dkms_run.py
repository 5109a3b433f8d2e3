"""Explaining a step of DKMS that failed. What it does to a node: tests/unit/plugins/modules/test_dkms.py."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from ansible_collections.inferack.rack.plugins.module_utils import _dkms, _dkms_run
from ansible_collections.inferack.rack.plugins.module_utils._checks import sentence
from ansible_collections.inferack.rack.plugins.module_utils._run import Output

K = "6.1.0-42-amd64"


def make(tmp_path: Path, answers: dict[str, Output] | None = None) -> _dkms_run.Dkms:
    def run(command: Sequence[str], timeout: float) -> Output:
        assert timeout > 0
        return (answers or {}).get(command[0], Output(None, problem="missing"))

    trees = _dkms.Trees(tmp_path / "records", tmp_path / "sources", tmp_path / "modules")
    return _dkms_run.Dkms(trees=trees, machine="x86_64", running="other", run=run, owner=lambda path: None)


def test_status_when_dkms_cannot_be_asked(tmp_path: Path) -> None:
    with pytest.raises(_dkms_run.DkmsError, match="dkms is not installed"):
        make(tmp_path).status()
    with pytest.raises(_dkms_run.DkmsError, match="gave no answer: timeout"):
        make(tmp_path, {"dkms": Output(None, problem="timeout")}).status()
    # A broken tree makes it end with 4, in the middle of what it says.
    said = Output(4, "nvidia/1: added\n", "Error! Could not locate dkms.conf file.\n")
    assert [str(row) for row in make(tmp_path, {"dkms": said}).status()] == ["nvidia/1: added"]


def test_the_log_explains_a_failed_build(tmp_path: Path) -> None:
    log = tmp_path / "records/nvidia/1/build/make.log"
    log.parent.mkdir(parents=True)
    log.write_text("nv.c:1:2: error: too many arguments to function 'f'\n")
    output = Output(
        10,
        "Building module:\n",
        f"Error! Bad return status for module build on kernel: {K}\nConsult {log} for more information.\n",
    )
    compiler = {"gcc-12": Output(None, problem="missing"), "cc": Output(0, "cc (GCC) 12.2.0\nCopyright\n")}
    check, failure = _dkms_run.explain(make(tmp_path, compiler), output, "build", "nvidia", "1", K)
    assert "too many arguments to function 'f'" in sentence(check)
    assert (failure["kind"], failure["symbol"], failure["line"], failure["log"]) == ("api change", "f", 1, str(log))
    assert failure["compiler"] == {"kernel": None, "found": "cc (GCC) 12.2.0"}
    assert "compiler found: cc (GCC) 12.2.0" in check.evidence


def test_an_old_log_does_not_explain_what_dkms_refuses(tmp_path: Path) -> None:
    log = tmp_path / "records/nvidia/1/build/make.log"
    log.parent.mkdir(parents=True)
    log.write_text("nv.c:1:2: error: too many arguments to function 'f'\n")
    output = Output(1, "", f"Error! Your kernel headers for kernel {K} cannot be found at /lib/modules/{K}/build\n")
    check, failure = _dkms_run.explain(make(tmp_path), output, "build", "nvidia", "1", K)
    assert (check.id, failure["kind"]) == ("driver.headers", "headers")


@pytest.mark.parametrize(
    ("output", "step", "words"),
    [
        (Output(None, problem="timeout"), "build", "`dkms build` did not end within 1800 s"),
        (
            Output(6, "depmod...\n", "Error! Problems with depmod detected.\n"),
            "install",
            "`dkms install` failed: Problems with depmod",
        ),
        (Output(1, "", ""), "add", "`dkms add` failed: exit status 1"),
    ],
)
def test_other_steps_in_dkmss_own_words(tmp_path: Path, output: Output, step: str, words: str) -> None:
    check, failure = _dkms_run.explain(make(tmp_path), output, step, "nvidia", "1", K)
    assert check.id == "driver.dkms"
    assert words in sentence(check)
    assert failure["step"] == step


@pytest.mark.parametrize(
    ("dpkg", "rpm", "owner"),
    [
        (Output(0, "nvidia-kernel-dkms: /usr/src/x\n"), Output(None, problem="missing"), "nvidia-kernel-dkms"),
        (Output(1, "", "no path found"), Output(0, "kmod-nvidia\n"), "kmod-nvidia"),
        (Output(1), Output(1, "file is not owned by any package\n"), None),
        (Output(None, problem="missing"), Output(None, problem="missing"), None),
    ],
)
def test_package_of(dpkg: Output, rpm: Output, owner: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_dkms_run._run, "run", lambda command, timeout: {"dpkg": dpkg, "rpm": rpm}[command[0]])
    assert _dkms_run.package_of(Path("/usr/src/x")) == owner
