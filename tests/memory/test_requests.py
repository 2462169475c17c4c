"""A window makes a valid request for every provider, whatever was evicted, erased, replaced or is not answered yet."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from refold import Conversation, InvalidInput, LimitExceeded, Memory
from refold.memory.wires import FORMATS, NO_RESULT, OPENING
from tests.support.requests import refusals

PNG = "iVBORw0KGgo="
IMAGE = {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}}
FORMS: list[Any] = sorted(FORMATS)


def call(call_id: str, name: str = "weather", arguments: str = '{"city":"Oslo"}') -> dict[str, Any]:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool_use(call_id: str, name: str = "weather") -> dict[str, Any]:
    return {"type": "tool_use", "id": call_id, "name": name, "input": {"city": "Oslo"}}


def result(call_id: str, content: Any = "4 degrees") -> dict[str, Any]:
    return {"type": "tool_result", "tool_use_id": call_id, "content": content}


def request_of(chat: Conversation, form: Any) -> list[dict[str, Any]]:
    """The request of a conversation in a format, against which its API has nothing."""
    request = chat.messages(form)
    assert refusals(form, request) == [], request
    return request


# Random windows.

IDS = st.sampled_from(["c1", "c2", "c3", "functions.f:0", "toolu_1", ""])
NAMES = st.sampled_from(
    ["weather", "time", "functions.time", "get weather", "<|time|>", "\u5929\u6c17", "9", "w" * 200, ""]
)
ARGUMENTS = st.sampled_from(['{"city":"Oslo"}', '{"city":', "Oslo", "[1]", "null", "", " ", ' {"city": 1}'])
TEXTS: st.SearchStrategy[Any] = st.sampled_from(
    [
        "yes",
        "one two\n",
        [{"type": "text", "text": "look"}, {"type": "text", "text": ""}],
        *(None, "", "  ", [], [{"type": "text", "text": "\n"}]),
    ]
)


@st.composite
def messages(draw: st.DrawFn) -> tuple[Any, ...]:
    """Role, content and the other fields of a message."""
    kind = draw(st.sampled_from(["user", "calls", "calls", "tool", "tool", "blocks", "results", "image", "assistant"]))
    role, content, fields = kind, draw(TEXTS), dict[str, Any]()
    ids = draw(st.lists(IDS, max_size=3))
    if kind == "calls":
        role, fields = (
            "assistant",
            {"tool_calls": [call(call_id, draw(NAMES), draw(ARGUMENTS)) for call_id in ids] or None},
        )
    elif kind == "tool":
        role = draw(st.sampled_from(["tool", "tool", "function"]))
        fields = {"tool_call_id": draw(st.one_of(IDS, st.none())), "name": draw(st.one_of(NAMES, st.none()))}
    elif kind == "blocks":
        role, content = "assistant", [{"type": "thinking", "thinking": "so"}, *map(tool_use, ids)]
    elif kind == "results":
        role, content = "user", [{"type": "text", "text": "here"}, *map(result, ids)]
    elif kind == "image":
        role, content = "user", [IMAGE]
    elif kind == "user":
        role = draw(st.sampled_from(["user", "user", "system", "developer"]))
        fields = {"name": draw(st.sampled_from([None, "Ann", "Ann Lee"]))}
    return role, content, fields | {"pinned": draw(st.sampled_from([False] * 5 + [True]))}


def append(chat: Conversation, role: str, content: Any, fields: dict[str, Any]) -> None:
    with suppress(LimitExceeded):  # Of what is pinned.
        chat.append(role, content, tokens=5, **fields)


def edit(memory: Memory, chat: Conversation, verb: str, place: int, content: Any) -> None:
    window = chat.window()
    message = window[place % len(window)] if window else None
    if message is None or verb == "remove":
        chat.remove(message or "none")
    elif verb == "erase":
        memory.erase([message.seq])
    else:
        with suppress(InvalidInput):  # Of a content that answers no call or another one.
            chat.replace(message, content, tokens=1, tool_call_id=message.tool_call_id)


edits = st.tuples(st.sampled_from(["remove", "erase", "replace"]), st.integers(0, 9), TEXTS)
steps = st.lists(st.one_of(*(messages().map(lambda made: (append, made)) for _ in range(4)), edits), max_size=14)


@settings(max_examples=200, deadline=None)
@given(steps, st.sampled_from([15, 30, 1_000]))
def test_every_window_makes_a_valid_request(taken: list[Any], window_tokens: int) -> None:
    memory = Memory()
    chat = memory.conversation("chat", window_tokens=window_tokens)
    for step in taken:
        if step[0] is append:
            append(chat, *step[1])
        else:
            edit(memory, chat, *step)
    context = memory.context(chat)
    said = [message.content for message in chat.window() if message.role == "user"]
    for form in FORMS:
        request = request_of(chat, form)
        assert refusals(form, context.messages(form)) == []
        assert repr(request).count("'yes'") >= said.count("yes")
        assert repr(request).count(PNG) == said.count([IMAGE])


# What stands where.


def order_of(form: str, request: list[dict[str, Any]]) -> list[str]:
    """The order of what a request says, in one spelling for all formats: call, result, or the role that speaks."""
    order: list[str] = []
    for message in request:
        if form.startswith("openai") or form == "ollama":
            kind = {"function_call": "call", "function_call_output": "result"}.get(message.get("type", ""), "")
            order.append(kind or {"tool": "result"}.get(message["role"], message["role"]))
            order += ["call"] * len(message.get("tool_calls", ()))
            if message.get("tool_calls") and not message["content"]:
                del order[-1 - len(message["tool_calls"])]
            continue
        for block in message["parts" if form == "gemini" else "content"]:
            kinds = {"tool_use": "call", "tool_result": "result"} | {
                "functionCall": "call",
                "functionResponse": "result",
            }
            kind = block.get("type", next(iter(block)))
            order.append(kinds.get(kind, message["role"].replace("model", "assistant")))
    return order


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("blocks", [False, True], ids=["fields", "blocks"])
def test_a_result_stands_behind_its_call_and_the_users_words_after_it(form: Any, blocks: bool) -> None:
    chat = Memory().conversation("chat")
    chat.append("user", "Weather?")
    if blocks:
        chat.append("assistant", [tool_use("c1")])
        chat.append("user", [{"type": "text", "text": "And hurry."}])
        chat.append("user", [{"type": "text", "text": "Well?"}, result("c1")])
    else:
        chat.append("assistant", None, tool_calls=[call("c1")])
        chat.append("user", "And hurry.")
        chat.append("user", "Well?")
        chat.append("tool", "4 degrees", tool_call_id="c1")
    assert order_of(form, request_of(chat, form)) == ["user", "call", "result", "user", "user"]


def texts_of(form: str, request: list[dict[str, Any]]) -> list[str]:
    """What the results of a request say."""
    if form == "anthropic":
        return [block["content"] for each in request for block in each["content"] if block["type"] == "tool_result"]
    if form == "gemini":
        parts = (part["functionResponse"] for each in request for part in each["parts"] if "functionResponse" in part)
        return [answer["response"]["result"] for answer in parts]
    if form == "openai-responses":
        return [item["output"] for item in request if item["type"] == "function_call_output"]
    return [message["content"] for message in request if message["role"] == "tool"]


@pytest.mark.parametrize("form", FORMS)
def test_results_come_in_the_order_of_the_calls_and_the_later_one_counts(form: Any) -> None:
    chat = Memory().conversation("chat")
    chat.append("user", "Weather?")
    chat.append("assistant", "I look.", tool_calls=[call("c1"), call("c2", "time")])
    for call_id, content in [("c2", "noon"), ("c1", "it was interrupted"), ("c1", "4 degrees")]:
        chat.append("tool", content, tool_call_id=call_id)
    assert texts_of(form, request_of(chat, form)) == ["4 degrees", "noon"]


@pytest.mark.parametrize("form", FORMS)
def test_a_call_waits_at_the_end_and_is_closed_by_what_is_said_next(form: Any) -> None:
    chat = Memory().conversation("chat")
    chat.append("user", "Weather?")
    chat.append("assistant", None, tool_calls=[call("c1"), call("c2", "time")])
    assert order_of(form, request_of(chat, form)) == ["user", "call", "call"]
    chat.append("tool", "noon", tool_call_id="c2")
    assert texts_of(form, request_of(chat, form)) == ["noon"]
    chat.append("user", "Well?")
    assert texts_of(form, request_of(chat, form)) == [NO_RESULT, "noon"]
    chat.append("tool", "4 degrees", tool_call_id="c1")
    assert texts_of(form, request_of(chat, form)) == ["4 degrees", "noon"]


@pytest.mark.parametrize("form", FORMS)
def test_a_result_without_its_call_is_left_out(form: Any) -> None:
    chat = Memory().conversation("chat")
    chat.append("user", "Hello!")
    chat.append("tool", "of no call")
    assert order_of(form, request_of(chat, form)) == ["user"]
    chat.append("assistant", [tool_use("c0")])
    chat.append("user", [result("c0", "windy"), result("elsewhere"), {"type": "text", "text": "So?"}])
    assert order_of(form, request_of(chat, form)) == ["user", "call", "result", "user"]
    chat.append("assistant", None, tool_calls=[call("c1"), call("c2", "time")])
    chat.append("function", "noon", name="time")
    chat.append("tool", "4 degrees")
    chat.append("tool", "of no call that waits")
    assert texts_of(form, request_of(chat, form)) == ["windy", "4 degrees", "noon"]


@pytest.mark.parametrize("form", FORMS)
def test_erased_calls_and_results_leave_a_valid_request(form: Any) -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    chat.append("user", "Weather?")
    made = chat.append("assistant", None, tool_calls=[call("c1")])
    answer = chat.append("tool", "4 degrees", tool_call_id="c1")
    chat.append("user", "Thanks.")
    memory.erase([answer.seq])
    assert texts_of(form, request_of(chat, form)) == [""]
    memory.erase([made.seq])
    assert order_of(form, request_of(chat, form)) == ["user", "user"]


@pytest.mark.parametrize("form", FORMS)
def test_an_open_batch_and_a_past_seq_make_valid_requests(form: Any) -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    with memory.batch():
        chat.append("user", "Weather?")
        chat.append("assistant", None, tool_calls=[call("c1")])
        assert order_of(form, request_of(chat, form)) == ["user", "call"]
        chat.append("tool", "4 degrees", tool_call_id="c1")
        assert order_of(form, request_of(chat, form)) == ["user", "call", "result"]
    for seq in range(1, memory.head + 1):
        assert refusals(form, chat.at(seq).messages(form)) == []


@pytest.mark.parametrize("form", FORMS)
def test_a_window_that_does_not_begin_with_the_user_gets_an_opening_where_one_is_required(form: Any) -> None:
    chat = Memory().conversation("chat", window_tokens=40)
    chat.append("user", "Weather?", tokens=10)
    chat.append("assistant", None, tool_calls=[call("c1")], tokens=10)
    chat.append("tool", "4 degrees", tool_call_id="c1", tokens=10)
    chat.append("assistant", "It is cold.", tokens=15)
    request = request_of(chat, form)
    is_opened = form in {"anthropic", "gemini"}
    assert order_of(form, request) == ["user"] * is_opened + ["call", "result", "assistant"]
    assert (OPENING in repr(request[:1])) == is_opened
    chat.append("user", "And tomorrow?", tokens=5)
    assert order_of(form, request_of(chat, form)) == ["user"] * is_opened + ["call", "result", "assistant", "user"]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("content", [None, "", " \n", [], [{"type": "text", "text": " "}], [{"type": "thinking"}]])
@pytest.mark.parametrize("role", ["user", "assistant", "system"])
def test_a_message_that_says_nothing_is_left_out(form: Any, content: Any, role: str) -> None:
    chat = Memory().conversation("chat")
    chat.append("user", "Hello!")
    chat.append(role, content)
    chat.append("user", "Are you there?")
    assert order_of(form, request_of(chat, form)) == ["user", "user"]


@pytest.mark.parametrize("form", FORMS)
def test_blank_texts_beside_calls_and_in_results_are_left_out(form: Any) -> None:
    chat = Memory().conversation("chat")
    chat.append("user", [{"type": "text", "text": ""}, {"type": "text", "text": "Weather?"}])
    chat.append("assistant", " ", tool_calls=[call("c1")])
    chat.append("tool", [{"type": "text", "text": ""}], tool_call_id="c1")
    request = request_of(chat, form)
    assert order_of(form, request) == ["user", "call", "result"]
    assert texts_of(form, request) == [""]


@pytest.mark.parametrize("form", ["anthropic", "openai", "openai-responses"])
def test_ids_that_an_api_refuses_are_changed_in_calls_and_results_alike(form: Any) -> None:
    """Some models number the calls of each message from zero; others write dots and colons, or no id at all."""
    chat = Memory().conversation("chat")
    chat.append("user", "Weather?")
    for temperature in ("4 degrees", "5 degrees"):
        chat.append("assistant", None, tool_calls=[call("functions.f:0"), call("", "time")])
        chat.append("tool", temperature, tool_call_id="functions.f:0")
        chat.append("tool", "noon")
    request = request_of(chat, form)
    assert texts_of(form, request) == ["4 degrees", "noon", "5 degrees", "noon"]
    first = "functions.f:0" if form == "openai" else "functions_f_0"
    for call_id in (first, f"{first}_2", "call", "call_2"):
        assert repr(request).count(f"'{call_id}'") == 2


def test_a_name_that_openai_refuses_is_changed() -> None:
    chat = Memory().conversation("chat")
    chat.append("user", "Hello!", name="Ann <Lee>")
    assert request_of(chat, "openai") == [{"role": "user", "content": "Hello!", "name": "Ann__Lee_"}]


def test_calls_in_another_form_than_openais_become_one_of_its() -> None:
    chat = Memory().conversation("chat")
    chat.append("assistant", None, tool_calls=[{"function": {"name": "weather", "arguments": {"city": "Oslo"}}}])
    chat.append("assistant", [tool_use("c1")])
    (first, closed, second) = request_of(chat, "openai")
    assert first["tool_calls"] == [call("call")]
    assert closed == {"role": "tool", "content": NO_RESULT, "tool_call_id": "call"}
    assert second == {"role": "assistant", "content": None, "tool_calls": [call("c1")]}
    custom = {"id": "c2", "type": "custom", "custom": {"name": "run", "input": "ls"}}
    chat.append("assistant", None, tool_calls=[custom])
    assert chat.messages("openai")[-1]["tool_calls"] == [custom]
    assert chat.messages("anthropic")[-1]["content"] == [
        {"type": "tool_use", "id": "c2", "name": "run", "input": {"arguments": "ls"}}
    ]


# The rules themselves: each format's refuse what its API does.

SAID: dict[str, Any] = {"role": "user", "content": "Weather?"}
MADE: dict[str, Any] = {"role": "assistant", "content": None, "tool_calls": [call("c1")]}
TOLD: dict[str, Any] = {"role": "tool", "content": "4 degrees", "tool_call_id": "c1"}
ITEM: dict[str, Any] = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Weather?"}]}
ASKED: dict[str, Any] = {"role": "user", "content": [{"type": "text", "text": "Weather?"}]}
USED: dict[str, Any] = {"role": "assistant", "content": [tool_use("c1")]}
FUNCTION: dict[str, Any] = {"role": "model", "parts": [{"functionCall": {"name": "weather", "args": {}}}]}
RESPONSE: dict[str, Any] = {"functionResponse": {"name": "weather", "response": {"result": "4 degrees"}}}


@pytest.mark.parametrize(
    ("form", "messages"),
    [
        ("openai", [SAID, {"role": "assistant", "content": None}]),
        ("openai", [SAID, {"role": "assistant", "content": " "}]),
        ("openai", [SAID, MADE, SAID, TOLD]),
        ("openai", [SAID, TOLD]),
        ("openai", [SAID, MADE, TOLD, TOLD]),
        ("openai", [SAID | {"content": [{"type": "image", "source": {}}]}]),
        ("openai", [SAID | {"role": "assistant", "content": [IMAGE]}]),
        ("openai-responses", [ITEM, {"type": "function_call_output", "call_id": "c1", "output": "4 degrees"}]),
        ("openai-responses", [{"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}, ITEM]),
        ("openai-responses", [ITEM | {"role": "assistant"}]),
        ("anthropic", [USED]),
        ("anthropic", [ASKED, ASKED]),
        ("anthropic", [ASKED, USED, ASKED]),
        ("anthropic", [ASKED, USED, {"role": "user", "content": [{"type": "text", "text": "So?"}, result("c1")]}]),
        ("anthropic", [ASKED, USED, {"role": "user", "content": [result("c1"), result("c1")]}]),
        ("anthropic", [{"role": "user", "content": [result("c1")]}]),
        ("anthropic", [{"role": "user", "content": [{"type": "text", "text": " "}]}]),
        ("anthropic", [{"role": "user", "content": [IMAGE]}]),
        ("gemini", [FUNCTION]),
        ("gemini", [{"role": "user", "parts": [{"text": "Weather?"}]}, FUNCTION, FUNCTION]),
        (
            "gemini",
            [{"role": "user", "parts": [{"text": "Weather?"}]}, FUNCTION, {"role": "user", "parts": [RESPONSE] * 2}],
        ),
        ("gemini", [{"role": "user", "parts": [{"text": "Weather?"}, RESPONSE]}]),
        ("gemini", [{"role": "user", "parts": []}]),
        ("ollama", [{"role": "user", "content": None}]),
        ("ollama", [SAID, {"role": "tool", "content": "4 degrees", "tool_name": "weather"}]),
        ("ollama", [SAID | {"images": ["https://example.org/a.png"]}]),
    ],
)
def test_the_rules_refuse_what_an_api_refuses(form: Any, messages: list[dict[str, Any]]) -> None:
    assert refusals(form, messages) != []


# Names and arguments that a model made up.


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "fit"),
    [
        ("functions.time", "functions_time"),
        ("get time", "get_time"),
        ("<|channel|>time", "__channel__time"),
        ("t" * 200, "t" * 64),
        ("", "unnamed"),
    ],
)
def test_a_call_and_its_result_name_the_tool_alike_and_as_the_api_takes_it(form: Any, name: str, fit: str) -> None:
    with Memory() as memory:
        chat = memory.conversation("c")
        chat.append("user", "What time is it?")
        chat.append("assistant", None, tool_calls=[call("c1", name)])
        chat.append("tool", "noon", tool_call_id="c1", name=name or None)
        chat.append("assistant", [tool_use("c2", name)])
        chat.append("user", [result("c2")])
        chat.append("assistant", "It is noon.")
        written = names_in(request_of(chat, form))
    own = {"gemini": name if "." in name else fit, "anthropic": fit if len(name) < 64 else "t" * 128}.get(form, fit)
    assert set(written) == {own}


def names_in(value: Any) -> list[str]:
    """The names in a request."""
    if isinstance(value, list):
        return [name for each in value for name in names_in(each)]
    if not isinstance(value, dict):
        return []
    own = [each for field, each in value.items() if field in {"name", "tool_name"}]
    return own + [name for each in value.values() for name in names_in(each)]


@pytest.mark.parametrize(
    ("given", "written"),
    [
        ('{"city": "Oslo"}', '{"city": "Oslo"}'),
        ("", "{}"),
        (" ", "{}"),
        ("null", "{}"),
        ('{"city":', '{"arguments":"{\\"city\\":"}'),
        ("Oslo", '{"arguments":"Oslo"}'),
        ("[1]", '{"arguments":[1]}'),
    ],
)
def test_arguments_of_a_call_are_a_json_object_and_stay_to_the_letter_if_they_are_one(given: str, written: str) -> None:
    with Memory() as memory:
        chat = memory.conversation("c")
        chat.append("user", "What is the weather?")
        chat.append("assistant", None, tool_calls=[call("c1", arguments=given)])
        chat.append("tool", "blue", tool_call_id="c1")
        assert request_of(chat, "openai")[1]["tool_calls"] == [call("c1", arguments=written)]
        for form in FORMS:
            request_of(chat, form)
