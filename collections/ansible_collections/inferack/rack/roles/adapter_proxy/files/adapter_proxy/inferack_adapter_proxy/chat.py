"""Chat messages as one text, for engines whose models take a text.

The rule, `transcript`: a single user message is its own text, unchanged. Any other conversation is one line group per
message, `<role>: <text>`, joined by line feeds, and ends with `assistant:` as the model's turn. `last_user` sends the text of
the last user message alone.
"""

from __future__ import annotations

from typing import Any, Literal

ChatRule = Literal["transcript", "last_user"]


class NotText(ValueError):
    """A message holds something that is no text; the message names it."""


def content_text(content: Any) -> str:
    """The text of a message's content: a string, nothing, or a list of text parts. Raises NotText for images and the like."""
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if not isinstance(content, list):
        raise NotText(f"a message's content must be a string or a list of parts, found {type(content).__name__}")
    texts = []
    for part in content:
        kind = part.get("type") if isinstance(part, dict) else type(part).__name__
        if kind != "text" or not isinstance(part.get("text"), str):
            raise NotText(f"this model takes text only, found a part of type {kind!r}")
        texts.append(part["text"])
    return "".join(texts)


def as_text(messages: list[dict[str, Any]], rule: ChatRule = "transcript") -> str:
    """The conversation as one text. Raises NotText."""
    if rule == "last_user":
        for message in reversed(messages):
            if message["role"] == "user":
                return content_text(message.get("content"))
        raise NotText("there is no user message, and this model is asked with the last one alone")
    if len(messages) == 1 and messages[0]["role"] == "user":
        return content_text(messages[0].get("content"))
    lines = [f"{message['role']}: {content_text(message.get('content'))}" for message in messages]
    return "\n".join([*lines, "assistant:"])
