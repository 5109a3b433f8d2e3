# Copyright: inferack contributors
# SPDX-License-Identifier: Apache-2.0
"""Keeps secrets out of the report: by value, for what the inventory holds, and by form, for what looks like one."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

REDACTED = "[redacted]"

#: Shorter values are words rather than secrets; replacing them would make evidence unreadable and tell the value.
SHORTEST = 6

_SECRET_NAME = re.compile(
    r"(?:^|_)(?:password|passwd|passphrase|secret|token|api_?key|private_key|credentials?)$", re.IGNORECASE
)

_FORMS: tuple[tuple[re.Pattern[str], str], ...] = (
    # NVIDIA's keys (NGC and build.nvidia.com), Groq's, OpenAI's and Hugging Face's begin like this.
    (re.compile(r"\b(?:nvapi-|gsk_|sk-|hf_)[A-Za-z0-9_\-]{8,}"), REDACTED),
    (re.compile(r"(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=\-]{8,}"), rf"\1 {REDACTED}"),
    (re.compile(r"(?i)([a-z][a-z0-9+.\-]*://[^\s/:@]*):[^\s/@]+@"), rf"\1:{REDACTED}@"),
    (
        re.compile(
            r"(?i)(\"?\b[a-z_]*(?:password|passwd|secret|token|api_?key|auth)\"?\s*[=:]\s*)(\"[^\"]+\"|'[^']+'|[^\s,;\"']+)"
        ),
        rf"\1{REDACTED}",
    ),
    (re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)", re.DOTALL), REDACTED),
)


def is_secret_name(name: str) -> bool:
    """Whether a variable or key of this name holds a secret (`password`, `nim_api_key`, …)."""
    return bool(_SECRET_NAME.search(name))


def holds_secret(name: str, value: Any) -> bool:
    """Whether a variable's name, or a key anywhere in its value, is a secret's."""
    if is_secret_name(name):
        return True
    if isinstance(value, Mapping):
        return any(holds_secret(str(key), item) for key, item in value.items())
    return isinstance(value, (list, tuple)) and any(holds_secret("", item) for item in value)


def secret_values(value: Any, secret: bool = False) -> set[str]:
    """All texts of at least SHORTEST characters that sit under a secret name somewhere in `value`."""
    if isinstance(value, Mapping):
        found: set[str] = set()
        for key, item in value.items():
            found |= secret_values(item, secret or is_secret_name(str(key)))
        return found
    if isinstance(value, (list, tuple, set)):
        return set().union(*(secret_values(item, secret) for item in value))
    if secret and isinstance(value, (str, int)) and not isinstance(value, bool):
        text = str(value).strip()
        return {text} if len(text) >= SHORTEST else set()
    return set()


def redact_text(text: str, secrets: Iterable[str]) -> str:
    """`text` with every secret replaced, the longest first, so that no tail of one stays behind."""
    for secret in sorted(set(secrets), key=len, reverse=True):
        text = text.replace(secret, REDACTED)
    for form, replacement in _FORMS:
        text = form.sub(replacement, text)
    return text


def redact(value: Any, secrets: Iterable[str]) -> Any:
    """`value` with every text in it redacted; keys of mappings stay, their values go when the key names a secret."""
    known = list(secrets)
    if isinstance(value, Mapping):
        return {
            key: REDACTED if is_secret_name(str(key)) and isinstance(item, str) and item else redact(item, known)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [redact(item, known) for item in value]
    return redact_text(value, known) if isinstance(value, str) else value


def redact_report(report: Mapping[str, Any], secrets: Iterable[str]) -> dict[str, Any]:
    """The report with secrets taken out of whatever roles and nodes said; names, ids and statuses stay as they are."""
    known = list(secrets)
    kept = {"name", "node", "id", "status", "time"}

    def clean(entry: Mapping[str, Any]) -> dict[str, Any]:
        return {key: item if key in kept else redact(item, known) for key, item in entry.items()}

    cleaned = dict(report)
    cleaned["nodes"] = [clean(node) for node in report["nodes"]]
    cleaned["checks"] = [clean(check) for check in report["checks"]]
    cleaned["versions"] = redact(report["versions"], known)
    return cleaned
