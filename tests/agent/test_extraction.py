"""Extraction: what a model is asked, what of its answer is kept, and that nonsense leaves nothing half written."""

import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

import pytest

from refold import InvalidInput, Memory
from refold.agent import (
    PROVIDERS,
    AgentLoop,
    CallableProvider,
    HttpProvider,
    NoJson,
    ProviderFailed,
    Reply,
    UserMessageResult,
    default_hooks,
    extract,
    extract_idle,
)
from refold.agent.lessons import clamp_importance, parse_lessons
from refold.agent.providers import parse_json
from refold.agent.secrets import secret_in
from refold.event import Event
from refold.limits import EXTRACTED_COUNT_MAX
from refold.views.session import FindingNoted, TaskDescribed
from tests.agent.test_loop import Script
from tests.support.memories import Clock, assert_sound
from tests.support.model_server import anthropic, openai, serving

PNPM = {"category": "preference", "content": "Use pnpm, not npm.", "keywords": ["pnpm"], "importance": 0.9}
PORT = {"category": "fact", "content": "The API listens on port 8080.", "keywords": [], "importance": 0.4}


def talked(memory: Memory) -> Any:
    chat = memory.conversation("s1", project="acme")
    chat.append("user", "Please use pnpm here, not npm.")
    chat.append("assistant", "I will.")
    chat.session.describe_task("Install the packages.")
    chat.session.note_file("package.json", lines=20)
    chat.session.note_finding("The lock file is pnpm's.")
    return chat


def scripted(*items: Any) -> CallableProvider:
    return CallableProvider(lambda _, __, ___: {"memories": list(items)}, id="scripted")


def test_state_of_a_session_is_read_at_its_end_and_that_of_a_round_is_not(memory: Memory) -> None:
    chat = memory.conversation("s1", project="acme")
    asked: list[str] = []

    def answer(messages: Any, _: Any, __: Any) -> Any:
        asked.append(messages[-1]["content"])
        return {"memories": [PNPM]}

    provider = CallableProvider(answer, id="scripted")
    chat.state["temp:attempt"] = "third"
    assert extract(chat, provider, memory=memory).ids == (), "nothing outlives a round, so no model is asked"
    chat.state["session:packages"] = {"by": "pnpm"}
    chat.state["lockfile"] = "pnpm-lock.yaml"
    extracted = extract(chat, provider, memory=memory)
    assert len(extracted.ids) == len(asked) == 1
    assert '## Key Findings\nlockfile: pnpm-lock.yaml\npackages: {"by":"pnpm"}\n' in asked[0].replace("- ", "")
    assert "third" not in asked[0]
    assert extract(chat, provider, memory=memory).ids == (), "it was read"
    set_seq = next(recorded.stamp.seq for recorded in chat.events() if getattr(recorded.event, "key", "") == "lockfile")
    extracted_event = next(r.event for r in chat.events() if type(r.event).__name__ == "MemoriesExtracted")
    assert set_seq in extracted_event.sources or any(set_seq in r.event.sources for r in memory.events())


def test_memory_round_trip_a_new_session_knows_what_the_old_one_learnt(memory: Memory) -> None:
    """A scenario of the seed, by its name: session, extraction, new session, injection."""
    extracted = extract(talked(memory), scripted(PNPM), memory=memory)
    (entry,) = memory.project("acme").list()
    assert extracted.ids == (entry.id,)
    assert (entry.category, entry.importance, entry.session, list(entry.keywords)) == (
        "preference",
        0.9,
        "s1",
        ["pnpm"],
    )
    later = memory.conversation("s2", project="acme")
    assert "- [PREF] Use pnpm, not npm." in memory.context(later).text
    assert_sound(memory)


def test_memory_decay_a_memory_that_nobody_uses_loses_importance() -> None:
    clock = Clock()
    with Memory(clock_ns=clock) as memory:
        extract(talked(memory), scripted(PNPM), memory=memory)
        clock.advance(14 * 86_400)
        memory.project("acme").decay()
        assert memory.project("acme").list()[0].importance == pytest.approx(0.9 * 0.95**2)


def test_every_memory_names_the_events_it_came_from(memory: Memory) -> None:
    chat = talked(memory)
    extract(chat, scripted(PNPM), memory=memory)
    (added,) = (found for found in memory.project("acme").events() if type(found.event).__name__ == "MemoryAdded")
    told = [stamp.seq for event, stamp in chat.events() if isinstance(event, (TaskDescribed, FindingNoted))]
    assert added.event.sources == (*told, *(message.seq for message in chat.window()))
    memory.erase([chat.window()[0]])
    assert memory.project("acme").list() == []


@pytest.mark.parametrize("kind", [TaskDescribed, FindingNoted])
def test_a_memory_goes_with_what_else_the_model_was_told(memory: Memory, kind: type[Event]) -> None:
    chat = talked(memory)
    extract(chat, scripted(PNPM), memory=memory)
    memory.erase([stamp.seq for event, stamp in chat.events() if isinstance(event, kind)])
    assert memory.project("acme").list() == []


def test_the_prompt_holds_the_session_and_what_is_known(memory: Memory) -> None:
    memory.project("acme").add("Tests need Docker.", category="convention")
    asked: list[Any] = []

    def answer(messages: list[Any], system: list[str], schema: dict[str, Any]) -> str:
        asked.extend([messages, system, schema])
        return "[]"

    extract(talked(memory), CallableProvider(answer), memory=memory)
    ((message,), (system,), schema) = asked
    text = message["content"]
    for said in (
        "## Session Task\nInstall the packages.\n",
        "## Files Read\n- package.json (20 lines)\n",
        "## Key Findings\n- The lock file is pnpm's.\n",
        "## Conversation Summary\nWed 2026-11-18:\n[1] user: Please use pnpm here, not npm.\n[2] assistant: I will.\n",
        "## Already Known (DO NOT duplicate these)\n1. [convention] Tests need Docker.\n",
        "Do NOT extract secrets, credentials, API keys, or passwords",
    ):
        assert said in text
    assert "Do NOT extract secrets" in system
    assert schema["properties"]["memories"]["type"] == "array"


def test_what_was_read_is_not_read_again(memory: Memory) -> None:
    chat = talked(memory)
    asked: list[Any] = []

    def answer(messages: list[Any], _: list[str], __: dict[str, Any]) -> list[Any]:
        asked.append(messages)
        return [PNPM]

    provider = CallableProvider(answer)
    extract(chat, provider, memory=memory)
    head = memory.head
    chat.append("user", "Thanks!")
    extract(chat, provider, memory=memory)
    assert len(asked) == 2
    assert "pnpm here" not in asked[1][0]["content"].partition("## Conversation Summary")[2]
    assert memory.project("acme").count() == 1
    assert memory.head > head
    quiet = memory.conversation("quiet")
    assert extract(quiet, provider, memory=memory).ids == ()
    assert len(asked) == 2


def test_an_extraction_is_one_commit_with_its_reasons(memory: Memory) -> None:
    chat = talked(memory)
    bad = PNPM | {"content": " "}
    extracted = extract(chat, scripted(PNPM, bad, PORT), memory=memory)
    assert extracted.dropped == ("item 2: its content is empty",)
    events = [found for found in memory.events() if type(found.event).__name__ in ("MemoryAdded", "MemoriesExtracted")]
    assert [type(found.event).__name__ for found in events] == ["MemoryAdded", "MemoryAdded", "MemoriesExtracted"]
    assert len({found.stamp.time_ns for found in events}) == 1
    event: Any = events[-1].event
    assert (event.ids, event.provider, event.dropped) == (extracted.ids, "scripted", extracted.dropped)
    assert memory.stats().usage == {"memory_extracted": 2}


def test_extracted_memories_wait_for_review_where_the_setting_says_so(memory: Memory) -> None:
    memory.settings.set("memory_review_extracted", value=True)
    extract(talked(memory), scripted(PNPM), memory=memory)
    (entry,) = memory.project("acme").list()
    assert entry.status == "pending_review"
    assert memory.context(memory.conversation("s2", project="acme")).ids == ()
    memory.project("acme").approve(entry.id)
    assert memory.context(memory.conversation("s2", project="acme")).ids == (entry.id,)


def test_what_was_recalled_in_the_session_is_not_learnt_again(memory: Memory) -> None:
    chat = talked(memory)
    known = memory.project("acme").add("Use pnpm, not npm, for all packages.")
    memory.project("acme").recall("pnpm", conversation=chat)
    extracted = extract(chat, scripted(PNPM, PORT), memory=memory)
    assert extracted.dropped == (f"item 1: memory {known.id} says it already",)
    assert [entry.content for entry in memory.project("acme").list()][1:] == ["The API listens on port 8080."]


def test_what_the_model_was_shown_is_not_learnt_again(memory: Memory) -> None:
    chat = talked(memory)
    known = memory.project("acme").add("Use pnpm, not npm, for all packages.")
    memory.show(memory.context(chat))
    extracted = extract(chat, scripted(PNPM), memory=memory)
    assert extracted.dropped == (f"item 1: memory {known.id} says it already",)
    assert memory.project("acme").count() == 1


def test_a_secret_is_dropped_and_its_reason_does_not_show_it(memory: Memory) -> None:
    chat, key = talked(memory), "AKIA" + "ABCDEFGHIJKLMNOP"
    extracted = extract(chat, scripted(PORT | {"content": f"The key is {key}."}), memory=memory)
    assert extracted.dropped == ("item 1: it seems to hold an AWS access key",)
    assert memory.project("acme").count() == 0
    assert key not in repr([found.event for found in memory.events()])


@pytest.mark.parametrize(
    "text",
    [
        "-----BEGIN RSA PRIVATE KEY-----",
        "AKIA" + "ABCDEFGHIJKLMNOP",
        "sk-" + "proj-abcdefghijklmnop1234",
        "ghp_" + "a" * 36,
        "glpat-" + "a" * 20,
        "xoxb-" + "12345678-abc",
        "AIza" + "a" * 35,
        "eyJhbGciOiJI.eyJzdWIiOiIx.c2ln",
        "Authorization: Bearer " + "a" * 20,
        "postgres://user:hunter22@db/app",
        "The password is hunter22!",
        "api_key = 'abc123def456ghi789'",
    ],
)
def test_the_common_shapes_of_secrets_are_seen(text: str) -> None:
    assert secret_in(f"Remember: {text}") is not None


@pytest.mark.parametrize(
    "text",
    [
        "Passwords are stored hashed.",
        "The password is stored in the vault.",
        "The token counter rounds up.",
        "Use the API key from the environment.",
        "See https://example.org/path:8080/x.",
        "The task-skipping-behaviour flag is on.",
        "The tokenizer is cl100k.",
    ],
)
def test_what_only_speaks_of_secrets_is_none(text: str) -> None:
    assert secret_in(text) is None


# What models write.


@pytest.mark.parametrize(
    "text",
    [
        '[{"a": 1}]',
        'Sure! Here it is:\n```json\n[{"a": 1}]\n```\nAnything else?',
        '```\n[{"a": 1}]\n```',
        '<think>maybe [1, 2]?</think>[{"a": 1}]',
        'the thought began before </think> [{"a": 1}]',
        '{not json} [{"a": 1}]',
        '\ufeff [{"a": 1}] trailing',
        '[{"a": 1}] <think>was that right?</think> Yes.',
        "<think>" * 50_000 + "</think>" + '[{"a": 1}]',
        "<think>one</think><THINKING>two</thinking>" + '[{"a": 1}]',
    ],
)
def test_json_is_found_in_what_models_write(text: str) -> None:
    assert parse_json(text) == ([{"a": 1}], False)


def test_lines_of_json_are_an_array() -> None:
    assert parse_json('{"a": 1}\n{"a": 2}\n') == ([{"a": 1}, {"a": 2}], False)
    assert parse_json('Here:\n{"a": 1},\n\n{"a": 2}\nDone.') == ([{"a": 1}, {"a": 2}], False)
    assert parse_json('{"a": 1} and {"a": 2}') == ({"a": 1}, False), "the first of two in a sentence"


@pytest.mark.parametrize(
    "text",
    [
        *("null", "None.", "No new facts.", "There are no new facts worth remembering.", "Nothing to extract!"),
        *("No memories", "`null`", "<think>Hm.</think> No new information was found in this session."),
    ],
)
def test_an_answer_that_there_is_nothing_is_an_empty_array(text: str) -> None:
    assert parse_json(text) == ([], False)


@pytest.mark.parametrize(
    "text",
    [
        *(
            "No.",
            "I cannot help with that.",
            "Nothing else matters",
            "No memory of the server is left to serve you: 503",
        ),
        *("There are no more tokens", "none of your business", "Error: null", "nonsense", "No facts. But he said yes."),
    ],
)
def test_an_answer_that_says_something_else_is_none(text: str) -> None:
    with pytest.raises(NoJson):
        parse_json(text)


def test_long_nonsense_is_looked_through_in_time() -> None:
    for text in ("a.b-" * 50_000, "<think>" * 50_000, "[{" * 50_000, "sk-a-" * 50_000, "eyJ.a" * 50_000):
        with pytest.raises(NoJson):
            parse_json(text)
        secret_in(text)


def test_of_an_answer_that_was_cut_off_the_whole_items_are_read() -> None:
    assert parse_json('[{"a": 1}, {"a": 2}, {"a"') == ([{"a": 1}, {"a": 2}], True)
    assert parse_json('{"memories": [{"a": 1}, {"a": 2}, {"b": "cut') == ([{"a": 1}, {"a": 2}], True)


@pytest.mark.parametrize("text", ["", "no", "<think>[1]", "{", "[" * 100_000, "{'a': 1}", "[1, 2", "\ud800"])
def test_what_holds_no_json_says_so(text: str) -> None:
    with pytest.raises(NoJson, match="Failed to parse memory extraction JSON"):
        parse_json(text)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (10**15, 1.0),
        (-3, 0.0),
        (float("nan"), 0.5),
        (float("inf"), 0.5),
        ("high", 0.5),
        (None, 0.5),
        (True, 0.5),
        (0.3, 0.3),
    ],
)
def test_importance_is_clamped(given: Any, expected: float) -> None:
    assert clamp_importance(given) == expected


@pytest.mark.parametrize(
    "answer",
    [
        *([PNPM], {"memories": [PNPM]}, {"items": [PNPM]}, {"facts": [PNPM]}, {"memory": [PNPM]}, PNPM),
        [{"memories": [PNPM]}, {"memories": []}],
    ],
)
def test_an_array_may_come_in_an_object(answer: Any) -> None:
    assert [item.content for item in parse_lessons(answer).items] == ["Use pnpm, not npm."]


@pytest.mark.parametrize("answer", [None, 7, "text", {"other": []}, {"memories": "none"}])
def test_an_answer_of_another_shape_is_refused(answer: Any) -> None:
    with pytest.raises(NoJson, match="expected an array"):
        parse_lessons(answer)


@pytest.mark.parametrize(
    ("item", "reason"),
    [
        (7, "it is a number, not an object"),
        ({"content": " "}, "its content is empty"),
        ({"content": 5}, "its content is empty"),
        (PNPM | {"content": "x" * 2_001}, "its content is over EXTRACTED_CHARS_MAX"),
        (PNPM | {"content": "\ud800"}, "its content is no valid Unicode"),
    ],
)
def test_bad_items_are_dropped_with_their_reasons(item: Any, reason: str) -> None:
    found = parse_lessons([item, PORT])
    assert [kept.content for kept in found.items] == [PORT["content"]]
    assert found.dropped[0].startswith(f"item 1: {reason}")


@pytest.mark.parametrize(
    ("given", "category"),
    [
        *(("personal", "fact"), (5, "fact"), (None, "fact"), (["preference"], "fact"), ("", "fact")),
        *(("preference|fact", "preference"), (" Convention ", "convention"), ("preferences", "fact")),
    ],
)
def test_an_unknown_category_costs_no_fact(given: Any, category: str) -> None:
    found = parse_lessons([PNPM | {"category": given}, {"content": "The API listens on port 8080."}])
    assert [item.category for item in found.items] == [category, "fact"]
    assert found.dropped == ()


def test_no_more_items_than_the_bound_and_each_once() -> None:
    many = [
        PORT | {"content": f"fact {chr(97 + number % 26) * 5}{number}"} for number in range(EXTRACTED_COUNT_MAX + 5)
    ]
    found = parse_lessons([*many, *many])
    assert len(found.items) == EXTRACTED_COUNT_MAX
    assert parse_lessons([PNPM, PNPM]).dropped == ("item 2: item 1 says it already",)


# A provider that fails.


def test_a_provider_that_fails_leaves_nothing(memory: Memory) -> None:
    chat = talked(memory)
    head = memory.head

    def fail(*_: Any) -> str:
        raise ProviderFailed("no", 500)

    for provider in (CallableProvider(fail), CallableProvider(lambda *_: "nonsense"), scripted_badly()):
        with pytest.raises((ProviderFailed, NoJson)):
            extract(chat, provider, memory=memory)
        assert memory.head == head
    no_provider: Any = object()
    with pytest.raises(InvalidInput, match="provider needs an id"):
        extract(chat, no_provider, memory=memory)


def scripted_badly() -> CallableProvider:
    return CallableProvider(lambda *_: {"unrelated": 1})


def test_session_time_out_extracts_from_conversations_that_rest() -> None:
    clock = Clock()
    with Memory(clock_ns=clock) as memory:
        talked(memory)
        assert extract_idle(memory, scripted(PNPM), idle_seconds=600) == {}
        clock.advance(601)
        assert list(extract_idle(memory, scripted(PNPM), idle_seconds=600)) == ["s1"]
        assert extract_idle(memory, scripted(PORT), idle_seconds=600) == {}
        assert memory.project("acme").count() == 1


def test_idle_sessions_are_read_though_their_window_was_cleared_and_dropped_forks_are_not() -> None:
    with Memory(clock_ns=Clock()) as memory:
        chat = talked(memory)
        fork = chat.fork("fork")
        fork.append("user", "Something else that nothing has read.")
        fork.close(drop=True)
        chat.clear_window()
        assert list(extract_idle(memory, scripted(PNPM), idle_seconds=0)) == [chat.id]
        assert extract_idle(memory, scripted(PORT), idle_seconds=0) == {}


# The default hooks.


def test_default_hooks_obey_commands_and_extract_at_the_end_and_at_compaction(memory: Memory) -> None:
    chat = talked(memory)
    hooks = default_hooks(memory, lambda _, text: f"Look up {text}", scripted(PORT))
    context = hooks.context(chat)
    heard = hooks.fire_user_message(context, "Remember that the tests need Docker.")
    stored = "The memory has stored what the user asks to remember. Do not store it again."
    text = f"{stored}\nLook up Remember that the tests need Docker."
    assert heard == UserMessageResult(injected_context=text)
    assert [entry.importance for entry in memory.project("acme").list()] == [0.95]
    hooks.fire_session_start(context)
    assert [entry.content for entry in context.shared["memories"]] == ["the tests need Docker"]
    hooks.fire_user_message(context, "Forget that the tests need Docker.")
    assert memory.project("acme").count() == 0
    hooks.fire_user_message(context, "Remember that the password is hunter22!")
    assert memory.project("acme").count() == 0
    chat.append("user", "The port is said to the end of the window. " * 4)
    chat.set_window_tokens(160)
    hooks.fire_compaction(context, chat.window())
    assert [entry.content for entry in memory.project("acme").list()] == [PORT["content"]]
    chat.append("user", "more")
    hooks.fire_session_end(context, chat.session.summary())
    assert chat.session.extracted_seq() == chat.window()[-1].seq


def test_what_has_left_the_window_is_read_in_batches_and_all_of_it_is_read(memory: Memory) -> None:
    read: list[list[str]] = []

    def reply(messages: Any, _: Any, __: Any) -> Any:
        read.append(re.findall(r"thing \d+", messages[0]["content"].partition("## Conversation Summary")[2]))
        return []

    default_hooks(memory, provider=CallableProvider(reply))
    model = SimpleNamespace(reply=lambda *_: Reply("I see, thank you for telling me about that. " * 5))
    loop = AgentLoop(memory, memory.conversation("c", project="ann", window_tokens=2_000), model)
    for number in range(60):
        loop.run(f"Today I did thing {number}, and afterwards I met a friend in the park near the station.")
    assert 2 <= len(read) <= 8
    assert min(map(len, read)) > 5, "no call for a message or two"
    loop.end()
    assert [name for names in read for name in names] == [f"thing {number}" for number in range(60)]


def test_settings_turn_the_default_hooks_off(memory: Memory) -> None:
    chat = talked(memory)
    for setting in ("memory_enabled", "skills_enabled"):
        memory.settings.set(setting, value=False)
    hooks = default_hooks(memory, lambda _, text: f"Look up {text}", scripted(PORT))
    head, context = memory.head, hooks.context(chat)
    hooks.fire_session_start(context)
    assert hooks.fire_user_message(context, "Remember that x.") == UserMessageResult()
    hooks.fire_session_end(context, chat.session.summary())
    assert (memory.head, context.shared) == (head, {})


# Over the wire.


@pytest.mark.parametrize("name", sorted(PROVIDERS))
def test_cross_provider_each_of_the_seven_is_asked_in_its_own_way(name: str) -> None:
    quirks = PROVIDERS[name]
    value = {"memories": [PNPM]}
    forced = quirks.ladder[0] == "tool"
    if quirks.wire == "openai":
        reply = openai(None, json.dumps(value)) if forced else openai(json.dumps(value))
    else:
        reply = anthropic(None, value) if forced else anthropic(json.dumps(value))
    with Memory() as memory, serving(reply) as model:
        provider = HttpProvider(name, "tiny", api_key="k-1", url=model.url)
        extracted = extract(talked(memory), provider, memory=memory)
        assert (extracted.channel, extracted.input_tokens, extracted.output_tokens) == (quirks.ladder[0], 7, 3)
        assert memory.project("acme").count() == 1
        ((path, headers, asked),) = model.asked
    assert path == "/v1"
    assert asked["model"] == "tiny"
    assert headers["x-api-key" if quirks.wire == "anthropic" else "authorization"].endswith("k-1")
    assert ("cache_control" in json.dumps(asked)) == (name == "anthropic")
    assert isinstance(asked.get("system", ""), list if name == "anthropic" else str)
    assert "k-1" not in repr(provider)


def test_the_ladder_goes_down_until_a_channel_is_understood() -> None:
    refusal = (400, {"error": "response_format is not supported"})
    answers = [refusal, refusal, openai("no JSON here"), openai('Here: [{"content": "x", "category": "fact"}]')]
    with serving(*answers) as model:
        result = HttpProvider("openai", "tiny", url=model.url).complete_json([], ["Extract."], {"type": "object"})
        assert (result.channel, result.value) == ("prompt", [{"content": "x", "category": "fact"}])
        bodies = [asked for _, _, asked in model.asked]
    assert [sorted(set(body) - {"model", "messages", "temperature", "max_tokens"}) for body in bodies] == [
        ["response_format"],
        ["tool_choice", "tools"],
        ["response_format"],
        [],
    ]
    assert "JSON" in bodies[2]["messages"][0]["content"]


@pytest.mark.parametrize("status", [401, 429, 500, 503])
def test_other_statuses_are_raised_at_once(status: int) -> None:
    with serving((status, {"error": "no"}), openai("[]")) as model:
        with pytest.raises(ProviderFailed, match=str(status)) as raised:
            HttpProvider("openai", "tiny", url=model.url).complete_json([], ["x"], {})
        assert raised.value.status == status
        assert len(model.asked) == 1


def refused(status: int, body: object, *, api_key: str | None = None, query: str = "") -> str:
    """Return the message of a provider that refuses every channel."""
    with serving(*[(status, body)] * 4) as model:
        provider = HttpProvider("ollama", "qwen3", api_key=api_key, url=model.url + query)
        with pytest.raises(ProviderFailed) as raised:
            provider.complete_json([], ["x"], {})
    return str(raised.value)


MISSING = "model 'qwen3' not found, try pulling it first"


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({"error": {"message": MISSING, "type": "api_error"}}, MISSING),
        ({"type": "error", "error": {"type": "not_found_error", "message": MISSING}}, MISSING),
        ({"error": MISSING}, MISSING),
        ({"message": MISSING}, MISSING),
        ({"detail": [{"loc": ["body"], "msg": MISSING}]}, MISSING),
        ([{"error": {"code": 404, "message": MISSING}}], MISSING),
        (b"404 page not found", "404 page not found"),
        (b"<html>\r\n<title>Not\x1b[2J\x07 Found</title>\xff", "<html> <title>Not [2J Found</title>\ufffd"),
        ({"error": {"message": "un\u202esafe\u0085 text"}}, "un safe text"),
        ({"error": {"code": 7}}, '{"error": {"code": 7}}'),
        (b"x" * 5_000_000, "x" * 297 + "..."),
    ],
)
def test_the_reason_of_a_provider_is_quoted_in_bounds_and_without_controls(body: object, said: str) -> None:
    message = refused(404, body)
    assert message.startswith(f"ollama/qwen3 answered 404 to channel prompt: {said}; check model=, and url=")


@pytest.mark.parametrize(
    ("status", "advice"),
    [
        (301, "check url="),
        (400, "check model= and the length of what was asked"),
        (401, "check api_key="),
        (403, "check api_key="),
        (404, "check model=, and url=, the whole address of the endpoint"),
        (405, "check url="),
        (418, "see the provider's documentation"),
        (429, "try again later"),
        (500, "try again later"),
        (529, "try again later"),
    ],
)
def test_a_refusal_names_the_option_to_check(status: int, advice: str) -> None:
    assert advice in refused(status, {"error": "no"})
    assert "without a reason" in refused(status, b" ")


@pytest.mark.parametrize("key", ["k-1", "sk-" + "abcdefgh12345678", 'q"uo/te+d', "AKIA" + "ABCDEFGHIJKLMNOP"])
def test_no_form_of_the_key_is_quoted(key: str) -> None:
    for form in (key, quote(key, safe=""), json.dumps(key)):
        for body in ({"error": f"bad key {form}!"}, f"bad key Bearer {form}, sorry".encode()):
            message = refused(401, body, api_key=key)
            assert "bad key" in message
            assert "***" in message
            assert key not in message
            assert form not in message
    assert "hunter2hunter2" not in refused(401, {"error": "no hunter2hunter2"}, query="?key=hunter2hunter2")
    other = "AKIA" + "QRSTUVWXYZABCDEF"
    assert "left out, because it seems to hold an AWS access key" in refused(401, {"error": f"not {other}"})


def test_a_session_whose_provider_refuses_says_why_in_its_notices(memory: Memory) -> None:
    with serving(*[(404, {"error": {"message": MISSING}})] * 4) as model:
        default_hooks(memory, provider=HttpProvider("ollama", "qwen3", url=model.url))
        loop = AgentLoop(memory, memory.conversation("c"), Script(Reply("ok")))
        loop.run("I live in Oslo.")
        loop.end()
    (notice,) = loop.notices
    assert notice.startswith(
        f"the hook extract_at_end raised ProviderFailed: ollama/qwen3 answered 404 to channel prompt: {MISSING}"
    )
    assert notice.endswith("are read again at the next end() or extract() of this conversation")


@pytest.mark.parametrize("reply", [b"", b"{", b"[]", b'{"choices": []}', b'{"choices": [{"message": null}]}', b"\xff"])
def test_a_reply_that_is_none_is_a_typed_error(reply: bytes) -> None:
    with serving(reply) as model:
        quirks = PROVIDERS["ollama"]
        provider = HttpProvider(type(quirks)(name="x", url=model.url, wire="openai", ladder=("prompt",)), "tiny")
        with pytest.raises(ProviderFailed, match="no usable answer"):
            provider.complete_json([], ["x"], {})


def test_a_provider_that_hangs_is_given_up_in_time() -> None:
    with serving("hang") as model, pytest.raises(ProviderFailed, match=r"could not be asked|took too long"):
        HttpProvider("openai", "tiny", url=model.url).complete_json([], ["x"], {}, timeout_seconds=0.2)


def test_nobody_at_the_address_is_a_typed_error(tmp_path: Path) -> None:
    with serving() as model:
        url = model.url
    assert tmp_path.is_dir()
    with pytest.raises(ProviderFailed, match=rf"could not be asked at {url} .*check url="):
        HttpProvider("openai", "tiny", url=url).complete_json([], ["x"], {}, timeout_seconds=2)


@pytest.mark.parametrize(("provider", "url"), [("acme", None), ("openai", "ftp://x"), ("openai", "nonsense")])
def test_a_provider_that_is_none_is_refused(provider: str, url: str | None) -> None:
    with pytest.raises(InvalidInput):
        HttpProvider(provider, "tiny", url=url)


@pytest.mark.parametrize(
    ("content", "keywords", "said"),
    [
        ("User no longer owns a car", ["car"], "Sold the Volvo, I go by bike now."),
        ("User is an owner of two ships", [], "Sold the Volvo, I go by bike now."),
        ("The user works as a tax adviser", [], "I work in taxes, as an adviser."),
        ("User drove a Volvo", ["user"], "I drive a Volvo since May, and love it."),
        ("User owns a boat", ["users"], "My boat is blue, and my boat is fast."),
        ("User works from home", [], "I work from home."),
        ("The port of the API is 8080", [], "The API listens on 8080."),
    ],
)
def test_a_memory_is_quoted_from_the_message_that_said_it_whose_words_count(
    memory: Memory, content: str, keywords: list[str], said: str
) -> None:
    chat, texts = memory.conversation("c", project="p"), list[str]()
    for number, text in enumerate(
        (
            "Good morning! My scarf is known. Can you greet each user?",
            "I work from home.",
            "I work in taxes, as an adviser.",
            "The API listens on 8080.",
            "I drive a Volvo since May, and love it.",
            "My boat is red.",
            "My boat is blue, and my boat is fast.",
            "Sold the Volvo, I go by bike now.",
        ),
        1,
    ):
        texts.append(text)
        chat.append("user", text, occurred=number)
        chat.append("assistant", f"{text} Very well, user.", occurred=number)
    extract(chat, scripted(PORT | {"content": content, "keywords": keywords}), memory=memory)
    (entry,) = memory.project("p").list()
    assert (entry.source_context, entry.occurred_ns) == (f"user: {said}", texts.index(said) + 1)
