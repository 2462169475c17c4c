"""Formats of agents' own files: Claude Code sessions, and OpenTelemetry traces with GenAI attributes."""

from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from operator import itemgetter
from typing import Any, BinaryIO, Final, cast

import msgspec

from refold import checks
from refold.errors import InvalidInput, LimitExceeded
from refold.importers.formats import (
    ITEM,
    Fields,
    SessionFormat,
    SourceConversation,
    SourceMessage,
    decode_json,
    ends_within_line,
    lines,
    metadata,
    other_fields,
    parse_date_ns,
    paths,
    source_message,
)
from refold.limits import DOCUMENT_BYTES_MAX
from refold.message import PROMPT_ROLES

# Claude Code: a line for each message, with its session, and other lines between them.
#
# A session is one conversation, in the project of its working directory; the messages of a subagent (a sidechain) are
# another one. A message's metadata has the line's other fields; ``api`` has those of the message itself, such as its
# model and usage, and ``before`` the lines without a message in front of it. Lines after the last message wait for the
# next one.

API_KEY: Final = "api"
BEFORE_KEY: Final = "before"
_CLAUDE_CODE_MARKS: Final = frozenset({("sessionId",), ("message", "role")})


def _claude_code(file: BinaryIO) -> Iterator[SourceConversation]:
    """Yield the conversations of a file, after checking all of them."""
    sessions: dict[str, list[SourceMessage]] = {}
    first_lines: dict[str, tuple[int, str | None]] = {}
    waiting: list[Fields] = []
    size = 0
    for number, text in lines(file):
        size += len(text)
        if size > DOCUMENT_BYTES_MAX:
            raise LimitExceeded(
                f"line {number} ends more than DOCUMENT_BYTES_MAX = {DOCUMENT_BYTES_MAX:,} bytes, all of which would "
                f"be held in RAM; split the file"
            )
        try:
            line = decode_json(
                text, f"line {number} is no line of a session in JSON", "mend it or remove it, and import again"
            )
        except InvalidInput:
            if sessions and ends_within_line(file):
                break  # The session continues: the next import takes the line.
            raise
        fields = cast("Fields", line) if isinstance(line, dict) else {}
        message = fields.get("message")
        if not isinstance(message, dict) or "role" not in message:
            waiting.append(fields)
            continue
        own_id = _session_id(number, fields)
        cwd = fields.get("cwd")
        first_lines.setdefault(own_id, (number, cwd if isinstance(cwd, str) and cwd else None))
        own = cast("Fields", message)
        rest = {key: value for key, value in fields.items() if key not in ("message", "timestamp")}
        added = {API_KEY: other_fields(own) or None, BEFORE_KEY: waiting or None}
        moment_ns = parse_date_ns(fields.get("timestamp"))
        sessions.setdefault(own_id, []).append(source_message(own, rest, added, occurred_ns=moment_ns))
        waiting = []
    if not sessions:
        raise InvalidInput("the file has no message; give a session that Claude Code wrote")
    for own_id, messages in sessions.items():
        line_number, project = first_lines[own_id]
        yield SourceConversation(line_number, own_id, project, iter(messages))


def _session_id(number: int, fields: Fields) -> str:
    session = fields.get("sessionId")
    if not isinstance(session, str) or not session:
        raise InvalidInput(f"line {number} has a message and no sessionId; give a session that Claude Code wrote")
    agent = fields.get("agentId")
    if not fields.get("isSidechain"):
        return session
    return f"{session}/{agent}" if isinstance(agent, str) and agent else f"{session}/sidechain"


def _is_claude_code(head: bytes) -> bool:
    return _CLAUDE_CODE_MARKS.issubset(paths(head))


# OpenTelemetry: spans of model calls, as collectors and SDKs write them in JSON.
#
# The calls of one ``gen_ai.conversation.id``, or else of one trace, are one conversation. Each span repeats the
# messages before it; those that are already known, in the same order, are not taken again, whatever is new between
# them. A system prompt, which may have the time in it, is taken whenever it has another text. Messages are read from
# the attributes (``gen_ai.input.messages`` and similar, or ``gen_ai.prompt.0.content`` and similar) or from the events
# of a span. A message's metadata has its span, its trace and the model.

_CONVERSATION: Final = "gen_ai.conversation.id"
_LISTS: Final = ("gen_ai.system_instructions", "gen_ai.input.messages", "gen_ai.output.messages")
_EVENT_ROLES: Final = {
    "gen_ai.system.message": "system",
    "gen_ai.user.message": "user",
    "gen_ai.assistant.message": "assistant",
    "gen_ai.tool.message": "tool",
    "gen_ai.choice": "assistant",
}
_OUTPUTS: Final = frozenset(("gen_ai.output.messages", "gen_ai.choice", "gen_ai.completion"))
_VALUE_KEYS: Final = ("stringValue", "boolValue", "intValue", "doubleValue", "bytesValue")


def _otel(file: BinaryIO) -> Iterator[SourceConversation]:
    """Yield the conversations of a file, after checking all of them."""
    calls: dict[str, list[Fields]] = {}
    for number, text in lines(file):
        document = decode_json(text, f"line {number} holds no spans in JSON", "mend it or remove it, and import again")
        for span in _spans(document):
            own_id = span["attributes"].get(_CONVERSATION) or span["trace_id"]
            if isinstance(own_id, str) and own_id:
                calls.setdefault(own_id, []).append(span)
    messages_by_id = {own_id: _merge_messages(spans) for own_id, spans in calls.items()}
    if not any(messages_by_id.values()):
        raise InvalidInput(
            "no span of the file has messages of a model; let the tracer record them (in gen_ai.input.messages and "
            "gen_ai.output.messages, or in events)"
        )
    for own_id, messages in messages_by_id.items():
        if messages:
            yield SourceConversation(1, own_id, None, iter(messages), f"conversation {own_id}")


def _spans(document: object) -> Iterator[Fields]:
    """Yield the spans of a document in one form, whether a collector or an SDK wrote them."""
    fields = cast("Fields", document) if isinstance(document, dict) else {}
    if "context" in fields:
        yield _span(fields, cast("Fields", fields["context"]) if isinstance(fields["context"], dict) else {})
    for resource in _dicts(fields.get("resourceSpans", fields.get("resource_spans"))):
        for scope in _dicts(resource.get("scopeSpans", resource.get("scope_spans"))):
            for span in _dicts(scope.get("spans")):
                yield _span(span, span)


def _span(span: Fields, ids: Fields) -> Fields:
    events = [
        {"name": event.get("name"), "attributes": _attributes(event.get("attributes"))}
        for event in _dicts(span.get("events"))
    ]
    return {
        "span_id": ids.get("spanId", ids.get("span_id")),
        "trace_id": ids.get("traceId", ids.get("trace_id")),
        "begin_ns": _time_ns(span, "startTimeUnixNano", "start_time"),
        "end_ns": _time_ns(span, "endTimeUnixNano", "end_time"),
        "attributes": _attributes(span.get("attributes")),
        "events": events,
    }


def _dicts(listed: object) -> list[Fields]:
    items = cast("list[object]", listed) if isinstance(listed, list) else []
    return [cast("Fields", item) for item in items if isinstance(item, dict)]


_DIGITS_MAX: Final = 20
"""Digits of a 64-bit number."""


def _time_ns(span: Fields, nanoseconds: str, date: str) -> int | None:
    value = span.get(nanoseconds)
    if isinstance(value, str) and value.isdecimal():
        if len(value) > _DIGITS_MAX:
            raise InvalidInput(f"{nanoseconds} of a span has {len(value)} digits; give nanoseconds since 1970")
        value = int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else parse_date_ns(span.get(date))


def _attributes(listed: object) -> Fields:
    if isinstance(listed, dict):
        return cast("Fields", listed)
    return {str(item.get("key")): _value(item.get("value")) for item in _dicts(listed)}


def _value(value: object) -> Any:
    """Return an OTLP value as plain JSON."""
    fields = cast("Fields", value) if isinstance(value, dict) else {}
    for key in _VALUE_KEYS:
        if key in fields:
            return fields[key]
    if "arrayValue" in fields:
        return [_value(item) for item in _dicts(cast("Fields", fields["arrayValue"]).get("values"))]
    if "kvlistValue" in fields:
        return _attributes(cast("Fields", fields["kvlistValue"]).get("values"))
    return None


def _merge_messages(spans: list[Fields]) -> list[SourceMessage]:
    """Return the messages of calls, each only once."""
    messages: list[SourceMessage] = []
    places: dict[bytes, int] = {}  # The places of a key among the messages, as bits.
    prompts: set[bytes] = set()
    calls: set[bytes] = set()
    for span in sorted(spans, key=lambda span: span["begin_ns"] or 0):
        model = span["attributes"].get("gen_ai.response.model", span["attributes"].get("gen_ai.request.model"))
        about = {"span_id": span["span_id"], "trace_id": span["trace_id"]}
        parts = [(source in _OUTPUTS, fields, _key(fields)) for source, fields in _messages_of(span)]
        parts.sort(key=itemgetter(0))  # The input first.
        call = sha256(msgspec.msgpack.encode([key for _, _, key in parts])).digest()
        if call in calls:  # A span around that of the call, such as of a chain.
            continue
        calls.add(call)
        given = [(_is_prompt(fields), key) for is_output, fields, key in parts if not is_output]
        repeated = _repeats([key for _, key in given], places)
        # What a model says to something new is new, whatever it said before.
        if all(is_prompt or number in repeated for number, (is_prompt, _) in enumerate(given)):
            repeated |= _repeats([key for _, _, key in parts], places)
        for number, (is_output, fields, key) in enumerate(parts):
            if _is_prompt(fields):
                if key in prompts:
                    continue
                prompts.add(key)
            elif number in repeated:
                continue
            else:
                places[key] = places.get(key, 0) | 1 << len(messages)
            added = about | {"model": model if is_output else None}
            moment_ns = span["end_ns"] if is_output else span["begin_ns"]
            messages.append(source_message(fields, metadata(other_fields(fields), {}), added, occurred_ns=moment_ns))
    return messages


def _is_prompt(fields: Fields) -> bool:
    role = fields["role"]  # Of any type, as the file has it.
    return isinstance(role, str) and role in PROMPT_ROLES


def _key(fields: Fields) -> bytes:
    """Return what makes two messages the same one."""
    own = (fields["role"], fields.get("content"), fields.get("tool_calls"), fields.get("tool_call_id"))
    return msgspec.json.encode(own, order="deterministic")


def _repeats(keys: Sequence[bytes], places: Mapping[bytes, int]) -> set[int]:
    """Return the numbers of the keys in the longest sequence that is also among the known places, in the same order.

    Of several such sequences, the one with the first keys: what comes again at the end of a history is new. The lengths
    are computed as bits, as Hyyrö does it: after each key, a row has a zero at each place at which the longest common
    sequence of the keys so far and the places up to it becomes longer.
    """
    until = max((bits.bit_length() for bits in places.values()), default=0)
    rows = [(1 << until) - 1]
    for key in keys:
        row, own = rows[-1], rows[-1] & places.get(key, 0)
        rows.append((row + own | row - own) & rows[0])

    def length(number: int) -> int:
        return until - (rows[number] & (1 << until) - 1).bit_count()

    numbers: set[int] = set()
    number = len(keys)
    while left := length(number):
        while length(number - 1) == left:
            number -= 1
        # Up to the first place at which the sequence is as long, which is that of this key.
        until = (~rows[number] & (1 << until) - 1).bit_length() - 1
        number -= 1
        numbers.add(number)
    return numbers


def _messages_of(span: Fields) -> Iterator[tuple[str, Fields]]:
    """Yield the messages of a call as OpenAI chat messages, each with the attribute or event that holds it."""
    tables = [span["attributes"], *(event["attributes"] for event in span["events"])]
    for name in _LISTS:
        for table in tables:
            yield from ((name, message) for message in _list_messages(name, table.get(name)))
    for prefix in ("gen_ai.prompt", "gen_ai.completion"):
        yield from ((prefix, message) for message in _numbered_messages(span["attributes"], prefix))
    for event in span["events"]:
        role = _EVENT_ROLES.get(str(event["name"]))
        if role is not None:
            yield str(event["name"]), _event_message(role, event["attributes"])


def _parse_json(value: object) -> Any:
    """Return the value of a JSON text, or any other value as it is."""
    if not isinstance(value, str):
        return value
    try:
        return msgspec.json.decode(value)
    except checks.UNDECODABLE:
        return value


def _list_messages(name: str, value: object) -> Iterator[Fields]:
    content = _parse_json(value)
    if name == _LISTS[0] and content:
        parts = [{"type": "text", "content": content}] if isinstance(content, str) else _dicts(content)
        yield from _join_parts("system", parts, {})
        return
    for message in _dicts(content):
        rest = {key: value for key, value in message.items() if key not in ("role", "parts")}
        if "parts" in message:
            yield from _join_parts(str(message.get("role", "user")), _dicts(message["parts"]), rest)
        elif "role" in message:
            yield message


def _join_parts(role: str, parts: list[Fields], rest: Fields) -> Iterator[Fields]:
    """Yield a message that comes in parts, and a message of its own for each tool response."""
    texts = [str(part.get("content")) for part in parts if part.get("type") == "text"]
    calls = [_call(part) for part in parts if part.get("type") == "tool_call"]
    answers = [part for part in parts if part.get("type") == "tool_call_response"]
    other = [part for part in parts if part.get("type") not in ("text", "tool_call", "tool_call_response")]
    if texts or calls or other or not answers:
        message: Fields = {"role": role, "content": "\n".join(texts) if texts or not calls else None}
        yield message | ({"tool_calls": calls} if calls else {}) | ({"parts": other} if other else {}) | rest
    for answer in answers:
        result = answer.get("response", answer.get("result"))
        yield {"role": "tool", "content": _text(result), "tool_call_id": answer.get("id")}


def _call(part: Fields) -> Fields:
    function = {"name": part.get("name"), "arguments": _text(part.get("arguments", {}))}
    return {"id": part.get("id"), "type": "function", "function": function}


def _text(value: object) -> str:
    return value if isinstance(value, str) else msgspec.json.encode(value).decode()


def _numbered_messages(attributes: Fields, prefix: str) -> Iterator[Fields]:
    """Yield messages whose fields are separate attributes, such as ``gen_ai.prompt.0.role``."""
    number = 0
    while (start := f"{prefix}.{number}.") and any(key.startswith(start) for key in attributes):
        own = {key.removeprefix(start): value for key, value in attributes.items() if key.startswith(start)}
        calls: list[Fields] = []
        while any(key.startswith(f"tool_calls.{len(calls)}.") for key in own):
            mark = f"tool_calls.{len(calls)}."
            calls.append(_call({key.removeprefix(mark): value for key, value in own.items() if key.startswith(mark)}))
        plain = {key: value for key, value in own.items() if not key.startswith("tool_calls.")}
        default = "user" if prefix == "gen_ai.prompt" else "assistant"
        message: Fields = {"role": default, "content": None} | plain | ({"tool_calls": calls} if calls else {})
        yield message
        number += 1


def _event_message(role: str, attributes: Fields) -> Fields:
    """Return the message of an event, whose fields are attributes, or JSON in one attribute."""
    own = {key: _parse_json(value) if key in ("message", "tool_calls") else value for key, value in attributes.items()}
    inner = own.pop("message", None)
    own |= cast("Fields", inner) if isinstance(inner, dict) else {"content": inner} if inner is not None else {}
    message: Fields = {"role": role, "content": own.pop("content", None)}
    if role == "tool":
        message["tool_call_id"] = own.pop("id", None)
    return message | {key: value for key, value in own.items() if key != "role"}


_OTEL_MARKS: Final = frozenset(
    {("resourceSpans",), ("resource_spans",), ("resourceSpans", ITEM, "scopeSpans"), ("context", "trace_id")}
)


def _is_otel(head: bytes) -> bool:
    return not _OTEL_MARKS.isdisjoint(paths(head))


CLAUDE_CODE: Final = SessionFormat("claude-code", _is_claude_code, _claude_code)
OTEL: Final = SessionFormat("otel", _is_otel, _otel)
