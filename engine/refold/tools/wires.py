"""The two ways in which models are spoken to: OpenAI's chat completions and Anthropic's messages, as plain dicts.

Pure: requests are built and replies are read here, and sent elsewhere. Seven providers speak one of the two, each with
quirks of its own, which are a table.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, Literal, cast

import msgspec
from msgspec import Struct

from refold import checks

JSON_SCHEMA: Final = "json_schema"
TOOL: Final = "tool"
JSON_OBJECT: Final = "json_object"
PROMPT: Final = "prompt"

TOOL_NAME: Final = "answer"
"""The tool that a model is made to call so that its arguments are the answer."""

_JSON_REMINDER: Final = "Answer with JSON alone, of this schema: "
"""Some gateways refuse JSON mode unless the messages hold the word."""


class Quirks(Struct, frozen=True, kw_only=True):
    """How one provider is spoken to: its address, its wire, and the ways to JSON that work with it, best first."""

    name: str
    url: str
    wire: Literal["openai", "anthropic"]
    ladder: tuple[str, ...]
    caches: bool = False
    """Whether parts of the system prompt may be marked for its cache; else it is one string."""


PROVIDERS: Final = {
    quirks.name: quirks
    for quirks in (
        Quirks(
            name="anthropic",
            url="https://api.anthropic.com/v1/messages",
            wire="anthropic",
            ladder=(JSON_SCHEMA, TOOL, PROMPT),
            caches=True,
        ),
        Quirks(
            name="openai",
            url="https://api.openai.com/v1/chat/completions",
            wire="openai",
            ladder=(JSON_SCHEMA, TOOL, JSON_OBJECT, PROMPT),
        ),
        # Its reasoning model refuses a forced tool; JSON mode may be cut off.
        Quirks(
            name="deepseek",
            url="https://api.deepseek.com/v1/chat/completions",
            wire="openai",
            ladder=(TOOL, JSON_OBJECT, PROMPT),
        ),
        Quirks(
            name="qwen",
            url="https://dashscope.aliyuncs.com/compatible-mode/v1/chat/completions",
            wire="openai",
            ladder=(TOOL, JSON_OBJECT, PROMPT),
        ),
        Quirks(
            name="glm",
            url="https://open.bigmodel.cn/api/paas/v4/chat/completions",
            wire="openai",
            ladder=(TOOL, JSON_OBJECT, PROMPT),
        ),
        # It ignores what it is told of a format without saying so, and takes the system prompt as one string.
        Quirks(
            name="minimax",
            url="https://api.minimax.io/anthropic/v1/messages",
            wire="anthropic",
            ladder=(TOOL, PROMPT),
        ),
        # It has no way to force a tool.
        Quirks(
            name="ollama",
            url="http://localhost:11434/v1/chat/completions",
            wire="openai",
            ladder=(JSON_SCHEMA, JSON_OBJECT, PROMPT),
        ),
    )
}
"""The seven providers, by name."""


class Question(Struct, frozen=True, kw_only=True):
    """What a model is asked: by whom it is answered, with how much, in which form."""

    model: str
    system: tuple[str, ...]
    messages: tuple[dict[str, Any], ...]
    schema: Mapping[str, Any]
    temperature: float
    max_tokens: int


class Usage(Struct, frozen=True):
    """The tokens of a call, as the provider counted them."""

    input_tokens: int = 0
    output_tokens: int = 0


def body(quirks: Quirks, channel: str, question: Question) -> dict[str, Any]:
    """Return the request that asks a question through a channel."""
    asked = _BODIES[quirks.wire](quirks, channel, question)
    return asked | {"model": question.model, "temperature": question.temperature, "max_tokens": question.max_tokens}


def _openai_body(_: Quirks, channel: str, question: Question) -> dict[str, Any]:
    system = "\n\n".join([*question.system, *_reminder(channel, question)])
    schema = {"name": TOOL_NAME, "schema": dict(question.schema)}
    forms: dict[str, dict[str, Any]] = {
        JSON_SCHEMA: {"response_format": {"type": "json_schema", "json_schema": {**schema, "strict": True}}},
        TOOL: {
            "tools": [{"type": "function", "function": {"name": TOOL_NAME, "parameters": dict(question.schema)}}],
            "tool_choice": "required",
        },
        JSON_OBJECT: {"response_format": {"type": "json_object"}},
        PROMPT: {},
    }
    first = [{"role": "system", "content": system}] if system else []
    return {"messages": [*first, *question.messages]} | forms[channel]


def _anthropic_body(quirks: Quirks, channel: str, question: Question) -> dict[str, Any]:
    texts = [text for text in (*question.system, *_reminder(channel, question)) if text]
    blocks: list[dict[str, Any]] = [{"type": "text", "text": text} for text in texts]
    if blocks:
        blocks[-1]["cache_control"] = {"type": "ephemeral"}
    forms: dict[str, dict[str, Any]] = {
        JSON_SCHEMA: {"output_config": {"format": {"type": "json_schema", "schema": dict(question.schema)}}},
        TOOL: {
            "tools": [{"name": TOOL_NAME, "input_schema": dict(question.schema)}],
            "tool_choice": {"type": "tool", "name": TOOL_NAME} if quirks.caches else {"type": "any"},
        },
        PROMPT: {},
    }
    system = blocks if quirks.caches else "\n\n".join(texts)
    return ({"system": system} if texts else {}) | {"messages": list(question.messages)} | forms[channel]


def _reminder(channel: str, question: Question) -> list[str]:
    if channel in (JSON_SCHEMA, TOOL):
        return []
    return [_JSON_REMINDER + msgspec.json.encode(question.schema).decode()]


_BODIES: Final = {"openai": _openai_body, "anthropic": _anthropic_body}


def headers(quirks: Quirks, api_key: str | None) -> dict[str, str]:
    """Return the headers of a request."""
    sent = {"Content-Type": "application/json", "Accept": "application/json"}
    if quirks.wire == "anthropic":
        sent["anthropic-version"] = "2023-06-01"
    if api_key is not None:
        sent |= {"x-api-key": api_key} if quirks.wire == "anthropic" else {"Authorization": f"Bearer {api_key}"}
    return sent


def answer(quirks: Quirks, reply: object) -> tuple[str, Usage]:
    """Return the text of a reply, or the arguments of the tool that it calls, and its usage.

    Raises ``InvalidInput`` for what is no reply of this wire.
    """
    if not isinstance(reply, dict):
        checks.invalid(f"the reply is a {type(reply).__name__}, not a JSON object")
    given = cast("dict[str, Any]", reply)
    try:
        return _ANSWERS[quirks.wire](given), _usage(given.get("usage"))
    except (KeyError, IndexError, TypeError, AttributeError) as error:
        checks.invalid(f"the reply holds no answer ({type(error).__name__}: {error})")


def _openai_answer(reply: dict[str, Any]) -> str:
    message = reply["choices"][0]["message"]
    for call in message.get("tool_calls") or ():
        return _as_text(call["function"]["arguments"])
    return _as_text(message.get("content") or "")


def _anthropic_answer(reply: dict[str, Any]) -> str:
    blocks: Sequence[dict[str, Any]] = reply["content"]
    for block in blocks:
        if block["type"] == "tool_use":
            return _as_text(block["input"])
    return "".join(_as_text(block["text"]) for block in blocks if block["type"] == "text")


def _as_text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


_ANSWERS: Final = {"openai": _openai_answer, "anthropic": _anthropic_answer}


def _usage(given: object) -> Usage:
    """Return a usage; what is no number counts as 0."""
    counts = cast("dict[str, Any]", given) if isinstance(given, dict) else {}

    def count(*names: str) -> int:
        return next((found for name in names if isinstance(found := counts.get(name), int) and found >= 0), 0)

    return Usage(count("input_tokens", "prompt_tokens"), count("output_tokens", "completion_tokens"))
