"""No secret in a report: by value and by form, and nothing else taken for one."""

from __future__ import annotations

from typing import Any

import pytest

from ansible_collections.inferack.rack.plugins.plugin_utils._report_secrets import (
    REDACTED,
    holds_secret,
    redact,
    redact_report,
    redact_text,
    secret_values,
)

# In two pieces, so that no one takes this file for one that holds a key.
FRAME = tuple(f"-----{end} RSA {'PRIVATE'} KEY-----" for end in ("BEGIN", "END"))


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ({"nim_api_key": "abcdef123"}, {"abcdef123"}),
        ({"triton_registry": {"host": "registry:5000", "username": "someone", "password": "hunter22"}}, {"hunter22"}),
        ({"inferack_external_engines": [{"name": "lpu", "api_key": "key-number-one"}, {"api_key": ""}]}, {"key-number-one"}),
        ({"tokens": {"a": "not-by-this-name"}}, set()),
        ({"secret": {"deep": ["inner-value-1", {"x": "inner-value-2"}]}}, {"inner-value-1", "inner-value-2"}),
        ({"password": "short"}, set()),
        ({"ansible_become_password": 12345678}, {"12345678"}),
        ({"max_tokens": 4096000, "token_count": 1234567}, set()),
    ],
)
def test_secret_values(value: Any, found: set[str]) -> None:
    assert secret_values(value) == found
    assert holds_secret("x", value) or not found


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("login with hunter22 refused", f"login with {REDACTED} refused"),
        ("hunter22-and-more then hunter22", f"{REDACTED} then {REDACTED}"),
        ("Authorization: Bearer abc.def-ghi_jkl", f"Authorization: Bearer {REDACTED}"),
        ("key nvapi-AbCdEfGh12345678 rejected", f"key {REDACTED} rejected"),
        ("https://me:pass@registry.example.org/v2/", f"https://me:{REDACTED}@registry.example.org/v2/"),
        ("NGC_API_KEY=abcdefghijkl docker run", f"NGC_API_KEY={REDACTED} docker run"),
        ('{"password": "a b c", "host": "h"}', f'{{"password": {REDACTED}, "host": "h"}}'),
        (f"{FRAME[0]}\nMIIE\n{FRAME[1]}", REDACTED),
        ("http://127.0.0.1:8000/v1/models answered 200", "http://127.0.0.1:8000/v1/models answered 200"),
        ("driver.version: found 580.95.05", "driver.version: found 580.95.05"),
        ("prompt_tokens 12, total_tokens: 30", "prompt_tokens 12, total_tokens: 30"),
    ],
)
def test_redact_text(text: str, expected: str) -> None:
    assert redact_text(text, {"hunter22", "hunter22-and-more"}) == expected


def test_redact_goes_into_structures_and_leaves_numbers() -> None:
    value = {"a": ["hunter22", 3, None, True], "password": "x", "nested": {"b": "say hunter22"}}
    assert redact(value, ["hunter22"]) == {
        "a": [REDACTED, 3, None, True],
        "password": REDACTED,
        "nested": {"b": f"say {REDACTED}"},
    }


def test_report_keeps_names_and_ids() -> None:
    """A secret that happens to be a node's name does not make the report unreadable."""
    report = {
        "rack": {"name": "rack-1"},
        "nodes": [{"name": "rack-1", "sentence": "rack-1 refused the login"}],
        "checks": [
            {"node": "rack-1", "id": "engine.registry", "status": "fail", "found": "rack-1", "evidence": ["with rack-1"]}
        ],
        "versions": {"nodes": {"rack-1": {"driver": "rack-1"}}},
    }
    clean = redact_report(report, ["rack-1"])
    assert clean["nodes"] == [{"name": "rack-1", "sentence": f"{REDACTED} refused the login"}]
    assert clean["checks"][0] == {
        "node": "rack-1",
        "id": "engine.registry",
        "status": "fail",
        "found": REDACTED,
        "evidence": [f"with {REDACTED}"],
    }
    assert list(clean["versions"]["nodes"]) == ["rack-1"]
