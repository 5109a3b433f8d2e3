"""The check shape: building, reading, ranking, merging, one sentence."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ansible_collections.inferack.rack.plugins.module_utils import _checks
from ansible_collections.inferack.rack.plugins.module_utils._checks import Check

COUNT = Check(
    "gpu.count",
    "fail",
    found=3,
    expected="4 GPUs",
    remedy="reseat or replace the missing GPU (0000:41:00.0 answers nothing), then run again.",
)
ECC = Check("gpu.ecc.uncorrectable", "fail", found=5, expected=0, subject="GPU 0000:07:00.0", remedy="Replace the GPU")
OK = Check("driver.smi", "pass", found=0)


@pytest.mark.parametrize(
    ("check", "sentence"),
    [
        (
            COUNT,
            "gpu.count: found 3, expected 4 GPUs; reseat or replace the missing GPU "
            "(0000:41:00.0 answers nothing), then run again.",
        ),
        (ECC, "gpu.ecc.uncorrectable, GPU 0000:07:00.0: found 5, expected 0; replace the GPU."),
        (OK, "driver.smi: found 0."),
        (Check("a.b", "fail"), "a.b: found nothing."),
        (Check("a.b", "fail", found=False, expected=True), "a.b: found no, expected yes."),
        (Check("a.b", "fail", found=["x", "y"], expected=[]), "a.b: found x, y, expected nothing."),
        (Check("a.b", "fail", found={"nvidia": "1", "cuda": None}), "a.b: found nvidia 1, cuda nothing."),
        (Check("a.b", "fail", found="two\nlines.", remedy="Run\n it!"), "a.b: found two lines; run it!"),
        (Check("a.b", "fail", found=1, remedy="NVIDIA's own"), "a.b: found 1; NVIDIA's own."),
        (Check("a.b", "fail", found=""), "a.b: found nothing."),
    ],
)
def test_sentence(check: Check, sentence: str) -> None:
    assert _checks.sentence(check) == sentence


@pytest.mark.parametrize(
    ("checks", "worst", "summary"),
    [
        ([], "skip", ""),
        ([OK], "pass", ""),
        ([Check("a.b", "skip"), OK], "pass", ""),
        ([Check("a.b", "warn"), OK], "warn", ""),
        ([OK, ECC], "fail", _checks.sentence(ECC)),
        ([OK, ECC, COUNT], "fail", _checks.sentence(ECC) + " (and 1 more)"),
    ],
)
def test_worst_and_summary(checks: list[Check], worst: str, summary: str) -> None:
    assert _checks.worst(checks) == worst
    assert _checks.summary(checks) == summary
    assert _checks.failing(checks) == [check for check in checks if check.status == "fail"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ({}, "id"),
        ({"id": "gpu.count"}, "status"),
        ({"id": "gpu.count", "status": "broken"}, "broken"),
        ({"id": "count", "status": "pass"}, "area.what"),
        ({"id": "gpu.count", "status": "pass", "message": "x"}, "message"),
        ({"id": "gpu.count", "status": "pass", "evidence": 3}, "evidence"),
        ({"id": "gpu.count", "status": None}, "status"),
        ("gpu.count", "dictionary"),
    ],
)
def test_from_dict_refuses(data: Any, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        _checks.from_dict(data)


def test_from_dict_fills_what_is_left_out() -> None:
    check = _checks.from_dict({"id": "gpu.count", "status": "warn", "evidence": "one line", "remedy": None})
    assert check == Check("gpu.count", "warn", evidence=["one line"])


def test_merge_replaces_in_place_by_id_and_subject() -> None:
    other = Check("gpu.ecc.uncorrectable", "pass", subject="GPU 0000:08:00.0")
    better = Check("gpu.ecc.uncorrectable", "pass", found=0, subject="GPU 0000:07:00.0")
    assert _checks.merge([ECC, COUNT], [other, better]) == [better, COUNT, other]


class End(Exception):
    """What the fake module ended with."""


class Module:
    """Records how it ended."""

    def exit_json(self, **kwargs: Any) -> Any:
        raise End("ok", kwargs)

    def fail_json(self, msg: str, **kwargs: Any) -> Any:
        raise End("failed", {"msg": msg, **kwargs})


@pytest.mark.parametrize(
    ("checks", "report_only", "outcome"),
    [([OK], False, "ok"), ([OK, ECC], False, "failed"), ([OK, ECC], True, "ok"), ([], False, "ok")],
)
def test_finish(checks: list[Check], report_only: bool, outcome: str) -> None:
    with pytest.raises(End) as end:
        _checks.finish(Module(), checks, report_only, node={"x": 1}, msg="not this")
    how, result = end.value.args
    assert how == outcome
    assert result["checks"] == _checks.as_dicts(checks)
    assert result["node"] == {"x": 1}
    assert result["changed"] is False
    assert result["msg"] == (_checks.summary(checks) or "not this")


checks = st.builds(
    Check,
    id=st.from_regex(r"[a-z]{1,8}\.[a-z_]{1,8}", fullmatch=True),
    status=st.sampled_from(list(_checks.SEVERITY)),
    found=st.one_of(st.none(), st.integers(), st.text(), st.lists(st.text())),
    expected=st.one_of(st.none(), st.integers(), st.text()),
    remedy=st.text(),
    evidence=st.lists(st.text()),
    subject=st.text(),
)


@given(checks)
def test_a_check_survives_the_way_through_a_dictionary(check: Check) -> None:
    assert _checks.from_dict(_checks.as_dict(check)) == check


@given(checks)
def test_a_sentence_is_one_line_and_names_the_check(check: Check) -> None:
    sentence = _checks.sentence(check)
    assert "\n" not in sentence
    assert sentence.startswith(check.id)


@given(st.lists(checks), st.lists(checks))
def test_merge_keeps_every_key_once_and_the_newest(old: list[Check], new: list[Check]) -> None:
    merged = _checks.merge(old, new)
    keys = [check.key for check in merged]
    assert len(keys) == len(set(keys))
    assert set(keys) == {check.key for check in (*old, *new)}
    for check in new:
        newest = [other for other in new if other.key == check.key][-1]
        assert newest in merged
