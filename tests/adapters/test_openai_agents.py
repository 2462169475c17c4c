"""Sessions of the OpenAI Agents SDK: equal to the SDK's own, driven by its runner, and messages of a conversation."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    RunConfig,
    Runner,
    Session,
    SessionSettings,
    SQLiteSession,
    Usage,
    function_tool,
)
from openai.types.responses import ResponseFunctionToolCall, ResponseOutputMessage, ResponseOutputText

from refold import InvalidInput, Memory
from refold.adapters.openai_agents import RefoldSession
from tests.support.memories import assert_sound

CALL = {"type": "function_call", "call_id": "c1", "name": "port_of", "arguments": '{"service": "db"}', "id": "fc_1"}
RESULT = {"type": "function_call_output", "call_id": "c1", "output": "5432"}
ITEMS: list[Any] = [
    {"role": "user", "content": "Which port?"},
    {"role": "system", "content": [{"type": "input_text", "text": "Be brief."}]},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Look it up."}]},
    CALL,
    CALL | {"call_id": "c2", "status": "completed"},
    RESULT,
    RESULT | {"call_id": "c2"},
    RESULT | {"call_id": "nobody's"},
    RESULT | {"output": [{"type": "input_text", "text": "5432"}]},
    {
        "type": "message",
        "id": "msg_1",
        "role": "assistant",
        "status": "completed",
        "content": [{"type": "output_text", "text": "5432", "annotations": []}],
    },
    {"role": "user", "content": ""},
    {"role": "assistant", "content": []},
]


def run(coroutine: Any) -> Any:
    return asyncio.run(coroutine)


def test_a_session_is_one_of_the_sdk(memory: Memory) -> None:
    assert isinstance(RefoldSession("s", memory), Session)


def test_items_come_back_as_they_were_given_and_leave_from_the_end(memory: Memory) -> None:
    async def main() -> None:
        session, left = RefoldSession("s", memory), list(ITEMS)
        await session.add_items(ITEMS)
        while left:
            assert await session.get_items() == left
            assert await session.get_items(limit=3) == left[-3:]
            assert await session.pop_item() == left.pop()
        assert await session.get_items() == []
        assert await session.pop_item() is None
        assert len(memory.conversation("s").history()) > len(ITEMS), "the log keeps them"

    run(main())


@pytest.mark.parametrize("number", range(4))
def test_it_does_what_the_sdks_own_session_does(memory: Memory, number: int) -> None:
    """Six hundred random steps, over two sessions in one memory."""

    async def main() -> None:
        random, sessions = Random(number), {name: RefoldSession(name, memory) for name in "ab"}
        models = {name: SQLiteSession(name) for name in "ab"}
        for _ in range(600):
            name = random.choice("ab")
            session, model = sessions[name], models[name]
            match random.choice(["add", "add", "get", "pop", "pop", "clear" if random.random() < 0.2 else "add"]):
                case "add":
                    items = random.choices(ITEMS, k=random.randrange(5))
                    await session.add_items(items)
                    await model.add_items(items)
                case "get":
                    limit = random.choice([None, 0, 1, 5])
                    assert await session.get_items(limit) == await model.get_items(limit)
                case "pop":
                    assert await session.pop_item() == await model.pop_item()
                case _:
                    await session.clear_session()
                    await model.clear_session()
            assert await session.get_items() == await model.get_items()
        for model in models.values():
            model.close()

    run(main())


def test_settings_bound_what_is_read(memory: Memory) -> None:
    async def main() -> None:
        for settings in (SessionSettings(limit=2), {"limit": 2}):
            session = RefoldSession("s", memory, session_settings=settings)
            await session.clear_session()
            await session.add_items(ITEMS[:3])
            assert await session.get_items() == ITEMS[1:3]
            assert await session.get_items(limit=1) == ITEMS[2:3]

    run(main())


def test_a_budget_keeps_what_fits_and_a_call_together_with_its_result(memory: Memory) -> None:
    async def main() -> None:
        session = RefoldSession("s", memory, window_tokens=60)
        await session.add_items([CALL, RESULT])
        for number in range(20):
            await session.add_items([{"role": "user", "content": f"Message {number} of some length."}])
        items = await session.get_items()
        assert 2 < len(items) < 20
        assert items[-1]["content"].startswith("Message 19")
        assert not [item for item in items if "call_id" in item]
        assert memory.conversation("s").search("5432")[0].entry.content == "5432"

    run(main())


def test_a_budget_can_be_given_and_changed_after_a_session_began(memory: Memory) -> None:
    async def main() -> None:
        items = [{"role": "user", "content": f"Message {number} of some length."} for number in range(20)]
        await RefoldSession("s", memory).add_items(items)
        assert len(await RefoldSession("s", memory, window_tokens=60).get_items()) < 20
        wider = RefoldSession("s", memory, window_tokens=10_000)
        await wider.add_items(items)
        assert len(await wider.get_items()) > 20
        # Without one, it keeps what it has.
        assert len(await RefoldSession("s", memory).get_items()) > 20
        assert memory.conversation("s").window_tokens == 10_000
        # A past state is read with what it had then.
        assert len(await RefoldSession("s", memory.at(memory.head), window_tokens=60).get_items()) > 20

    run(main())
    with pytest.raises(InvalidInput, match="window_tokens"):
        RefoldSession("s", memory, window_tokens=-1)
    with pytest.raises(InvalidInput, match="project"):
        RefoldSession("s", memory, project="other")


def test_nothing_is_added_where_one_item_cannot_be(memory: Memory) -> None:
    async def main() -> None:
        session = RefoldSession("s", memory)
        with pytest.raises(InvalidInput, match="bytes"):
            await session.add_items([ITEMS[0], {"type": "reasoning", "blob": b"bytes"}])
        assert await session.get_items() == []

    run(main())


def test_tasks_share_a_session(memory: Memory) -> None:
    async def main() -> None:
        sessions = [RefoldSession("s", memory) for _ in range(4)]
        pairs = [[CALL | {"call_id": f"{n}"}, RESULT | {"call_id": f"{n}"}] for n in range(24)]
        await asyncio.gather(*(sessions[n % 4].add_items(pair) for n, pair in enumerate(pairs)))
        items = await sessions[0].get_items()
        assert sorted(item["call_id"] for item in items[::2]) == sorted(f"{n}" for n in range(24))
        assert all(one["call_id"] == two["call_id"] for one, two in zip(items[::2], items[1::2], strict=True))

    run(main())


def test_what_was_erased_leaves_items_that_a_model_takes(memory: Memory) -> None:
    async def main() -> None:
        session = RefoldSession("s", memory)
        await session.add_items([ITEMS[0], CALL, RESULT, CALL | {"call_id": "c2"}, RESULT | {"call_id": "c2"}])
        asked, _, result, call, _ = memory.conversation("s").window()
        memory.erase([asked, result, call], derived="keep")
        assert await session.get_items() == [CALL, RESULT | {"output": ""}]
        await session.add_items([ITEMS[0]])
        assert await session.get_items(limit=1) == [ITEMS[0]]

    run(main())


@pytest.mark.parametrize("erased", range(1, 64))
def test_what_was_erased_is_not_popped(memory: Memory, erased: int) -> None:
    """Whatever of a dialogue was erased, items leave from the end as they are shown."""

    async def main() -> None:
        session = RefoldSession("s", memory)
        others = CALL | {"call_id": "c2"}, RESULT | {"call_id": "c2"}
        await session.add_items([ITEMS[0], CALL, RESULT, others[0], ITEMS[0], others[1]])
        window = memory.conversation("s").window()
        memory.erase([each for place, each in enumerate(window) if erased >> place & 1], derived="keep")
        left = await session.get_items()
        while left:
            assert await session.pop_item() == left.pop()
            assert await session.get_items() == left
        assert await session.pop_item() is None

    run(main())


class Scripted(Model):
    """A model that looks the port up once, and answers with what it was shown."""

    def __init__(self) -> None:
        self.inputs: list[list[Any]] = []

    async def get_response(self, system_instructions: Any, input: Any, *_: Any, **__: Any) -> ModelResponse:  # noqa: A002, ARG002 - as the SDK names it
        self.inputs.append(list(input))
        results = [item for item in input if item.get("type") == "function_call_output"]
        output: Any
        if results:
            part = ResponseOutputText(type="output_text", text=f"It is {results[-1]['output']}.", annotations=[])
            output = ResponseOutputMessage(
                id="msg", type="message", role="assistant", status="completed", content=[part]
            )
        else:
            output = ResponseFunctionToolCall(type="function_call", call_id="c1", name="port_of", arguments="{}")
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *_: Any, **__: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


@function_tool
def port_of() -> str:
    """Look up the port."""
    return "5432"


def test_the_runner_of_the_sdk_goes_on_where_it_was(tmp_path: Path) -> None:
    """Two runs with a memory of their own each; then the log answers what a session alone cannot."""
    model = Scripted()
    agent = Agent(name="a", model=model, tools=[port_of])

    def talk(text: str) -> str:
        with Memory(tmp_path / "store") as memory:
            session = RefoldSession("trip", memory, project="travel")
            result = run(Runner.run(agent, text, session=session, run_config=RunConfig(tracing_disabled=True)))
            return str(result.final_output)

    assert talk("Which port does the database have?") == "It is 5432."
    assert talk("And again?") == "It is 5432."
    assert len(model.inputs) == 3, "the second run asked the model once: it was shown the result of the first"
    assert [item.get("content") for item in model.inputs[2] if item.get("role") == "user"] == [
        "Which port does the database have?",
        "And again?",
    ]
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("trip")
        roles = [message.role for message in chat.window()]
        assert roles == ["user", "assistant", "tool", "assistant", "user", "assistant"]
        assert {recorded.stamp.actor for recorded in chat.events()} >= {"openai-agents"}
        assert chat.project == "travel"
        assert memory.why("5432", conversation="trip").is_there
        memory.erase(text="5432")
        assert_sound(memory)
        assert "5432" not in str(run(RefoldSession("trip", memory).get_items()))
    assert b"5432" not in (tmp_path / "store" / "data.mdb").read_bytes()


IMAGE = "data:image/png;base64," + "A" * 80_000
REASONING = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "A" * 40}
SAID = {
    "type": "message",
    "id": "msg_1",
    "role": "assistant",
    "status": "completed",
    "content": [{"type": "output_text", "text": "It is there.", "annotations": []}],
}
PAIRS: list[tuple[Any, Any]] = [
    (CALL, RESULT),
    (CALL, RESULT | {"output": [{"type": "input_text", "text": "Here:"}, {"type": "input_image", "image_url": IMAGE}]}),
    (
        {"type": "computer_call", "id": "cu", "call_id": "c1", "action": {"type": "click", "x": 1, "y": 2}},
        {
            "type": "computer_call_output",
            "call_id": "c1",
            "output": {"type": "computer_screenshot", "image_url": IMAGE},
        },
    ),
    (
        {"type": "shell_call", "call_id": "c1", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "c1", "output": [{"stdout": "a.txt", "outcome": {"type": "exit"}}]},
    ),
    (
        {"type": "local_shell_call", "id": "l1", "call_id": "c1", "action": {"type": "exec"}, "status": "completed"},
        {"type": "local_shell_call_output", "id": "c1", "output": "a.txt"},
    ),
    (
        {"type": "custom_tool_call", "call_id": "c1", "name": "code", "input": "1 + 1"},
        {"type": "custom_tool_call_output", "call_id": "c1", "output": "2"},
    ),
    (
        {"type": "mcp_approval_request", "id": "a1", "name": "pay", "arguments": "{}", "server_label": "bank"},
        {"type": "mcp_approval_response", "approval_request_id": "a1", "approve": True},
    ),
]
KINDS = [call["type"] for call, _ in PAIRS]


@pytest.mark.parametrize(("call", "output"), PAIRS, ids=KINDS)
@pytest.mark.parametrize("before", [[], [REASONING], [REASONING, SAID]], ids=len)
def test_a_call_its_result_and_the_reasoning_before_it_stay_together(before: list[Any], call: Any, output: Any) -> None:
    async def main() -> None:
        turn = [*before, call, output]
        memory = Memory()
        session = RefoldSession("s", memory)
        await session.add_items([{"role": "user", "content": "Where?"}, *turn, {"role": "user", "content": "And now?"}])
        chat = memory.conversation("s")
        assert [message.role for message in chat.window()] == ["user", "assistant", "tool", "user"]
        assert sum(message.tokens for message in chat.window()) < 1_300, "an image is no text"
        for form in ("openai", "openai-responses", "anthropic", "gemini", "ollama"):
            assert "there is no result" not in str(chat.messages(form))
        sent = await session.get_items()
        assert sent[1:-1] == turn
        for tokens in range(chat.token_count(), 0, -1 if chat.token_count() < 400 else -100):
            chat.set_window_tokens(tokens)
            left = [item for item in await session.get_items() if "content" not in item or item == SAID]
            assert left in ([], turn)

    run(main())


@pytest.mark.parametrize(("call", "output"), PAIRS, ids=KINDS)
def test_the_items_of_one_message_are_popped_one_by_one(call: Any, output: Any) -> None:
    async def main() -> None:
        session = RefoldSession("s", Memory())
        items = [REASONING, SAID, call, CALL | {"call_id": "c9"}, output, REASONING, SAID]
        await session.add_items(items)
        while items:
            assert await session.get_items() == items
            assert await session.pop_item() == items.pop()

    run(main())


@pytest.mark.parametrize(("call", "output"), PAIRS, ids=KINDS)
def test_an_erased_result_leaves_what_a_model_takes(call: Any, output: Any) -> None:
    async def main() -> None:
        memory = Memory()
        session = RefoldSession("s", memory)
        await session.add_items([{"role": "user", "content": "Where?"}, REASONING, call, output])
        memory.erase([memory.conversation("s").window()[-1]])
        _, *left = await session.get_items()
        is_function = call["type"] == "function_call"
        assert left == ([REASONING, call, RESULT | {"output": ""}] if is_function else [])

    run(main())


@pytest.mark.parametrize(
    ("call", "output"),
    [
        (CALL | {"arguments": '{"text": "' + "word " * 2_500 + '"}'}, RESULT),
        (
            {
                "type": "computer_call",
                "id": "cc1",
                "call_id": "c1",
                "action": {"type": "type", "text": "word " * 2_500},
            },
            {"type": "computer_call_output", "call_id": "c1", "output": {"type": "computer_screenshot"}},
        ),
    ],
)
def test_a_result_is_not_sent_without_its_call_that_did_not_fit(memory: Memory, call: Any, output: Any) -> None:
    async def main() -> None:
        session = RefoldSession("s", memory, window_tokens=2_000)
        await session.add_items([ITEMS[0]])
        await session.add_items([call])
        await session.add_items([output])
        assert await session.get_items() == []
        await session.add_items([{"role": "assistant", "content": "Written."}])
        assert await session.get_items() == [{"role": "assistant", "content": "Written."}]

    run(main())
