"""Histories of Microsoft's Agent Framework: equal to its own files, and messages of conversations."""

import asyncio
import doctest
import importlib
from pathlib import Path
from random import Random
from typing import Any

import pytest
import run_blocks

from refold import InvalidInput, Memory
from tests.support.memories import assert_sound
from tests.support.paths import ROOT

WHY_NOT = "Microsoft's Agent Framework is not in the development environment; tools/test --adapters tests its adapter"
pytest.importorskip("agent_framework", reason=WHY_NOT)

from agent_framework import (  # noqa: E402 - it is there from here on
    Agent,
    BaseChatClient,
    ChatResponse,
    Content,
    FileHistoryProvider,
    FunctionInvocationLayer,
    InMemoryHistoryProvider,
    Message,
    tool,
)

from refold.adapters.agent_framework import RefoldHistoryProvider  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore:.*experimental")

CALL = Content.from_function_call("c1", "port_of", arguments='{"service": "db"}')
OTHER = Content.from_function_call("c2", "port_of", arguments={"service": "é", "deep": [1, None]}, id="own")
RESULT = Content.from_function_result("c1", result="5432")
IMAGE = Content.from_data(b"\0\xff", media_type="image/png")
MESSAGES = [
    Message("user", ["Which port?"]),
    Message("system", ["Be brief."], author_name="boss", message_id="m1"),
    Message("user", [IMAGE, "What is it?", Content.from_uri("https://a.test/b.png", media_type="image/png")]),
    Message("assistant", [Content.from_text_reasoning(text="Look it up.", protected_data="x"), "Wait.", CALL]),
    Message("assistant", [CALL]),
    Message("assistant", [OTHER, "between", CALL, IMAGE], additional_properties={"mood": {"good": [1, 2.5, None]}}),
    Message("assistant", [Content.from_function_call("c3", "now"), Content.from_function_result("c3", result="noon")]),
    Message("tool", [RESULT]),
    Message("tool", [RESULT, Content.from_function_result("c2", result={"port": 5432}, id="own"), RESULT]),
    Message("tool", [Content.from_function_result("c1", result=[Content.from_text("5432"), IMAGE], exception="no")]),
    Message("user", ["first", RESULT, "last"], author_name="ann"),
    Message("tool", [Content("function_result", call_id="c1", result={"a": [1]}), Content("function_result")]),
    Message("tool", [Content.from_function_result("nobody's", result="5432")]),
    Message("assistant", [Content.from_usage({"input_token_count": 3}), Content.from_error(message="late")]),
    Message("assistant", [Content("function_call", call_id="c4"), Content("function_call", name="f", call_id="c5")]),
    Message("robot", ["beep"], additional_properties={"_excluded": True}),
    Message("user", [""]),
    Message("assistant", []),
    Message("tool", []),
    Message("user", [Content("text", text="see", annotations=[{"type": "citation", "title": "t"}])]),
]


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def dumped(messages: list[Any]) -> list[Any]:
    return [message.to_dict() for message in messages]


def test_messages_come_back_as_they_were_given_and_each_is_stored_once(memory: Memory) -> None:
    provider = RefoldHistoryProvider(memory)
    run(provider.save_messages("s", MESSAGES))
    assert dumped(run(provider.get_messages("s"))) == dumped(MESSAGES)
    assert memory.tables() == []
    window = memory.conversation("agent-framework/s").window()
    assert [message.content for message in window[:2]] == ["Which port?", "Be brief."]
    calls = [(message.role, [call["id"] for call in message.tool_calls]) for message in window if message.tool_calls]
    assert calls == [("assistant", ["c1"]), ("assistant", ["c2"]), ("assistant", ["c3"]), ("assistant", ["c5"])]
    answers = [(message.role, message.tool_call_id) for message in window if message.tool_call_id]
    assert answers[:3] == [("tool", "c3"), ("tool", "c1"), ("tool", "c1")]


@pytest.mark.parametrize("seed", range(4))
def test_random_steps_lead_where_the_frameworks_own_providers_lead(tmp_path: Path, seed: int) -> None:
    """Three hundred steps over three sessions, some opened anew, beside its providers in files and in RAM."""
    draw, names = Random(seed), ("a", "b/../c", None)
    options = {"skip_excluded": bool(seed % 2)}
    files, in_ram = FileHistoryProvider(tmp_path / "files", **options), InMemoryHistoryProvider(**options)
    states: dict[Any, dict[str, Any]] = {name: {} for name in names}

    async def steps(provider: RefoldHistoryProvider) -> None:
        for _ in range(60):
            name = draw.choice(names)
            if draw.random() < 0.6:
                given = draw.choices(MESSAGES, k=draw.randrange(4))
                if draw.random() < 0.3 and not seed % 2:  # A transcript that is given anew, with what came since.
                    given = [*await provider.get_messages(name), *given]
                for each in (provider, files):
                    await each.save_messages(name, given)
                await in_ram.save_messages(name, given, state=states[name])
            mine = dumped(await provider.get_messages(name))
            assert mine == dumped(await files.get_messages(name))
            assert mine == dumped(await in_ram.get_messages(name, state=states[name]))

    for _ in range(5):
        with RefoldHistoryProvider.from_path(tmp_path / "store", **options) as provider:
            run(steps(provider))
            assert_sound(provider.memory)
            assert run(provider.sessions()) == ["a", "b/../c", "default"]


def test_nothing_is_stored_where_one_message_cannot_be(memory: Memory) -> None:
    provider = RefoldHistoryProvider(memory)
    with pytest.raises(InvalidInput, match="inf"):
        run(provider.save_messages("s", [*MESSAGES[:2], Message("user", ["x"], additional_properties={"n": 1e999})]))
    assert run(provider.get_messages("s")) == []
    assert run(provider.sessions()) == []


def test_tasks_that_share_a_session_keep_their_order_and_sessions_do_not_mix(memory: Memory) -> None:
    provider = RefoldHistoryProvider(memory)

    async def save(number: int) -> None:
        said = [Message("user", [f"{number} asks"]), Message("assistant", [f"{number} answers"])]
        await provider.save_messages(f"s{number % 2}", said)

    async def main() -> None:
        await asyncio.gather(*map(save, range(48)))
        for name in range(2):
            texts = [message.text for message in await provider.get_messages(f"s{name}")]
            assert texts == [f"{number} {verb}" for number in range(name, 48, 2) for verb in ("asks", "answers")]

    run(main())
    assert_sound(memory)


def test_a_budget_keeps_what_fits_and_a_call_together_with_its_result(memory: Memory) -> None:
    provider = RefoldHistoryProvider(memory, window_tokens=60, project="ports")
    run(provider.save_messages("s", [Message("assistant", [CALL]), Message("tool", [RESULT])]))
    for number in range(20):
        run(provider.save_messages("s", [Message("user", [f"Message {number} of some length."])]))
    kept = run(provider.get_messages("s"))
    assert 2 < len(kept) < 20
    assert {content.type for message in kept for content in message.contents} == {"text"}
    chat = memory.conversation("agent-framework/s")
    assert chat.search("5432")[0].entry.content == "5432"
    assert chat.project == "ports"


def test_a_budget_can_be_given_and_changed_after_a_session_began(memory: Memory) -> None:
    messages = [Message("user", [f"Message {number} of some length."]) for number in range(20)]
    run(RefoldHistoryProvider(memory).save_messages("s", messages))
    assert len(run(RefoldHistoryProvider(memory, window_tokens=60).get_messages("s"))) < 20
    wider = RefoldHistoryProvider(memory, window_tokens=10_000)
    run(wider.save_messages("s", [Message("user", [f"Next {number}."]) for number in range(20)]))
    assert len(run(wider.get_messages("s"))) > 20
    # Without one, it keeps what it has.
    assert len(run(RefoldHistoryProvider(memory).get_messages("s"))) > 20
    assert memory.conversation("agent-framework/s").window_tokens == 10_000
    # A past state is read with what it had then.
    assert len(run(RefoldHistoryProvider(memory.at(memory.head), window_tokens=60).get_messages("s"))) > 20


def test_a_session_is_deleted_and_erased(tmp_path: Path) -> None:
    with RefoldHistoryProvider.from_path(tmp_path / "store", name="chats") as provider:
        for name in ("kept", "gone"):
            run(provider.save_messages(name, [Message("user", [f"{name}: the secret is plum"])]))
        run(provider.delete_session("gone"))
        assert (run(provider.sessions()), run(provider.get_messages("gone"))) == (["kept"], [])
        run(provider.save_messages("gone", [Message("user", ["anew"])]))
        assert [message.text for message in run(provider.get_messages("gone"))] == ["anew"]
        run(provider.delete_session("gone"))
        for name in ("gone", "kept"):
            assert run(provider.erase_session(name)).seqs
        assert run(provider.sessions()) == []
        assert_sound(provider.memory)
    for file in (tmp_path / "store").iterdir():
        data = file.read_bytes()
        assert (data.count(b"secret is plum"), data.count(b"chats/gone")) == (0, 0)


def test_what_was_erased_leaves_messages_that_a_model_takes(tmp_path: Path) -> None:
    secret = "the secret is plum"  # noqa: S105 - a fruit
    given = [
        Message("user", ["before"]),
        Message("user", [IMAGE, secret]),
        Message("assistant", [CALL, OTHER]),
        Message("tool", [Content.from_function_result("c1", result=secret), Content.from_function_result("c2")]),
        Message("assistant", [Content.from_function_call("c3", "tell", arguments={"what": secret})]),
        Message("tool", [Content.from_function_result("c3", result="told")]),
        Message("assistant", ["after"], additional_properties={"note": secret}),
    ]
    with RefoldHistoryProvider.from_path(tmp_path / "store") as provider:
        run(provider.save_messages("s", given))
        provider.memory.erase(text="secret is plum", derived="keep")
        left = run(provider.get_messages("s"))
        assert dumped(left[:2]) == dumped([given[0], given[2]])
        results = [(content.call_id, content.result) for message in left[2:] for content in message.contents]
        assert results == [("c1", ""), ("c2", "")]
        run(provider.save_messages("s", [Message("user", ["more"])]))
        assert run(provider.get_messages("s"))[-1].text == "more"
        assert_sound(provider.memory)
    for file in (tmp_path / "store").iterdir():
        assert b"secret is plum" not in file.read_bytes()


class Scripted(FunctionInvocationLayer, BaseChatClient):
    """A client that looks the port up once, and answers with what it was shown."""

    def __init__(self) -> None:
        super().__init__()
        self.inputs: list[list[Any]] = []

    async def _inner_get_response(self, *, messages: Any, **_: Any) -> ChatResponse:
        self.inputs.append(list(messages))
        results = [content.result for message in messages for content in message.contents if content.result]
        said: Any = f"It is {results[-1]}." if results else Content.from_function_call("c1", "port_of", arguments="{}")
        return ChatResponse(messages=[Message("assistant", [said])])


def port_of() -> str:
    """Look up the port."""
    return "5432"


def test_an_agent_goes_on_in_another_process_and_is_seen_as_messages(tmp_path: Path) -> None:
    client = Scripted()

    def talk(text: str) -> str:
        with RefoldHistoryProvider.from_path(tmp_path / "store") as provider:
            agent = Agent(client, tools=[tool(port_of, approval_mode="never_require")], context_providers=[provider])
            return str(run(agent.run(text, session=agent.create_session(session_id="trip"))))

    assert talk("Which port does the database have?") == "It is 5432."
    assert talk("And again?") == "It is 5432."
    assert len(client.inputs) == 3, "the second run asked the model once: it was shown the result of the first"
    assert [message.role for message in client.inputs[2]] == ["user", "assistant", "tool", "assistant", "user"]
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("agent-framework/trip")
        roles = [message.role for message in chat.window()]
        assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        assert {recorded.stamp.actor for recorded in chat.events()} >= {"agent-framework"}
        assert memory.why("5432", conversation="agent-framework/trip").is_there
        assert_sound(memory)


def test_a_save_is_one_commit(memory: Memory) -> None:
    provider = RefoldHistoryProvider(memory)
    run(provider.save_messages("s", MESSAGES[:1]))
    before = memory.head
    run(provider.save_messages("s", MESSAGES[1:]))
    assert len({stamp.time_ns for _, stamp in memory.events(after=before)}) == 1


def test_the_guide_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    page = ROOT / "engine" / "docs" / "guides.md"
    assert run_blocks.run_file(page, sections="Keep the history of Microsoft's Agent Framework".__eq__) == 1


def test_the_examples_hold() -> None:
    results = doctest.testmod(importlib.import_module("refold.adapters.agent_framework"))
    assert (results.failed, results.attempted > 0) == (0, True)


def test_images_count_as_such_wherever_they_are(memory: Memory) -> None:
    image = Content.from_data(bytes(300_000), "image/png")
    by_url = Content.from_uri("https://example.org/a.png", media_type="image/png")
    provider = RefoldHistoryProvider(memory, window_tokens=8_000)
    call = Content.from_function_call("c", "look", arguments={})
    messages = [
        Message("user", ["look", image]),
        Message("user", [by_url]),
        Message("assistant", [call]),
        Message("tool", [Content.from_function_result("c", result=[Content.from_text("a cat"), image, by_url])]),
    ]
    run(provider.save_messages("s", messages))
    chat = memory.conversation("agent-framework/s")
    assert [message.tokens // 1_000 for message in chat.window()] == [1, 1, 0, 2]
    assert dumped(run(provider.get_messages("s"))) == dumped(messages)
    for _ in range(9):
        run(provider.save_messages("s", [Message("user", ["look", image])]))
    assert len(run(provider.get_messages("s"))) == 7


@pytest.mark.parametrize("form", ["openai", "openai-responses", "anthropic", "gemini", "ollama"])
def test_a_session_with_contents_of_every_kind_can_be_sent(form: Any) -> None:
    memory = Memory()
    run(RefoldHistoryProvider(memory).save_messages("s", MESSAGES))
    sent = str(memory.conversation("agent-framework/s").messages(form))
    assert "Look it up." not in sent
    assert "(usage)" in sent
    assert memory.context(memory.conversation("agent-framework/s"), query="port?", budget=20_000).messages(form)
