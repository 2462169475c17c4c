"""Hooks that come and go, end the process, time out by themselves, or answer with what no session can use."""

import asyncio
import logging
from typing import Any

import pytest

from refold import EmbedderFailed, InvalidInput, Memory, StoreBusy, StoreCorrupt, StoreUnreachable
from refold.agent import (
    AfterLlmResult,
    AfterToolResult,
    AgentLoop,
    Call,
    CallableProvider,
    ContextBudget,
    FunctionTool,
    HookContext,
    NoJson,
    ProviderFailed,
    Reply,
    ToolFailed,
    ToolResult,
    UserMessageResult,
    default_hooks,
    extract,
)
from refold.limits import INJECTED_MEMORIES_COUNT_MAX
from refold.message import INJECTED_KEY
from tests.agent.test_loop import Script, call
from tests.support.memories import assert_sound


def begun(memory: Memory) -> HookContext:
    context: HookContext = memory.hooks.context(memory.conversation("s1"))
    return context


FIRED: dict[str, tuple[Any, ...]] = {
    "user_message": ("x",),
    "before_llm": ([],),
    "after_llm": ("x",),
    "before_tool": ("t", {}),
    "after_tool": ("t", ToolResult("t", "ok")),
}


@pytest.mark.parametrize("point", FIRED)
def test_a_hook_that_takes_itself_away_hides_no_other(memory: Memory, point: str) -> None:
    called: list[str] = []

    def once(*_: Any) -> None:
        memory.hooks.unregister(point, once)

    memory.hooks.register(point, once)
    memory.hooks.register(point, lambda *_: called.append(point))
    getattr(memory.hooks, f"fire_{point}")(begun(memory), *FIRED[point])
    assert called == [point]


async def cancelled(*_: Any) -> None:
    raise asyncio.CancelledError


def exits(*_: Any) -> None:
    raise SystemExit(3)


@pytest.mark.parametrize("hook", [cancelled, exits])
def test_a_hook_cannot_end_the_process(memory: Memory, hook: Any, caplog: pytest.LogCaptureFixture) -> None:
    memory.hooks.register("session_start", hook)
    memory.hooks.fire_session_start(begun(memory))
    assert f"hook {hook.__name__} raised" in caplog.text


EXPECTED: list[Exception] = [
    ProviderFailed("later"),
    NoJson("later"),
    EmbedderFailed("later"),
    StoreBusy("later"),
    StoreUnreachable("later"),
]
UNEXPECTED: list[Exception] = [
    ConnectionError("later"),
    InvalidInput("later"),
    StoreCorrupt("later"),
    ToolFailed("later"),
]


@pytest.mark.parametrize("error", EXPECTED + UNEXPECTED, ids=lambda error: type(error).__name__)
def test_what_a_hook_may_expect_is_told_in_one_line_and_all_else_with_its_traceback(
    memory: Memory, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: Any) -> None:
        raise error

    def ask(context: HookContext, text: str) -> None:
        context.write(text, fail)
        fail()

    memory.hooks.register("user_message", ask)
    with caplog.at_level(logging.WARNING, logger="refold"):
        turn = AgentLoop(memory, memory.conversation("s1"), Script(Reply("done"))).run("go")
    expected = error in EXPECTED
    told = [record.getMessage() for record in caplog.records]
    kind = type(error).__name__
    if expected:
        assert told == ["hook ask failed in conversation 's1': later", "hook fail failed in conversation 's1': later"]
        assert turn.notices == (f"the hook ask raised {kind}: later", f"the hook fail raised {kind}: later")
    else:
        assert told == ["hook ask raised in conversation 's1'", "hook fail raised in conversation 's1'"]
        ends = f"{f': {error}' if str(error) else ''}; the log has its traceback"
        assert turn.notices == (f"the hook ask raised {kind}{ends}", f"the hook fail raised {kind}{ends}")
    assert [record.exc_info is None for record in caplog.records] == [expected] * 2


def test_a_hook_without_a_name_of_its_own_is_named_by_where_it_was_made(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    memory.hooks.register("session_start", lambda _: 1 // 0)
    with caplog.at_level(logging.WARNING, logger="refold"):
        memory.hooks.fire_session_start(begun(memory))
    name = "test_a_hook_without_a_name_of_its_own_is_named_by_where_it_was_made.<locals>.<lambda>"
    assert [record.getMessage() for record in caplog.records] == [f"hook {name} raised in conversation 's1'"]


def test_a_time_out_within_a_hook_is_its_error_and_not_ours(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    def ask(_: HookContext) -> None:
        raise TimeoutError("the database")

    memory.hooks.register("session_start", ask)
    with caplog.at_level(logging.WARNING, logger="refold"):
        memory.hooks.fire_session_start(begun(memory))
    assert "raised" in caplog.text
    assert "the database" in caplog.text
    assert "took longer" not in caplog.text


def test_what_a_hook_does_to_what_is_inside_counts_for_nothing(memory: Memory) -> None:
    context, hooks = begun(memory), memory.hooks
    messages: list[dict[str, Any]] = [{"role": "user", "content": [{"type": "text", "text": "hi"}]}]
    hooks.register("before_llm", lambda _, given: given[0]["content"].clear())
    assert hooks.fire_before_llm(context, messages)[0]["content"] == [{"type": "text", "text": "hi"}]
    arguments: dict[str, Any] = {"paths": ["a"]}
    hooks.register("before_tool", lambda _, __, given: given["paths"].append("/etc/shadow"))
    hooks.fire_before_tool(context, "t", arguments)
    assert arguments == {"paths": ["a"]}
    seen: list[int] = []
    message = context.conversation.append("user", "x")
    hooks.register("compaction", lambda _, evicted: evicted.clear())
    hooks.register("compaction", lambda _, evicted: seen.append(len(evicted)))
    hooks.fire_compaction(context, [message])
    assert seen == [1]


# Guards are in tests of their own: there, what cannot be used lets nothing through.
WRONG: list[Any] = [
    ("user_message", UserMessageResult(5)),  # type: ignore[arg-type]
    ("user_message", UserMessageResult(stop_reason=5)),  # type: ignore[arg-type]
    ("user_message", UserMessageResult(injected_context="x", memories=(5,))),  # type: ignore[arg-type]
    ("user_message", UserMessageResult(injected_context="x", memories=("\ud800",))),
    ("user_message", "\ud800"),
    ("after_llm", AfterLlmResult(5)),  # type: ignore[arg-type]
    ("after_tool", AfterToolResult(replacement_output={"a": 1})),  # type: ignore[arg-type]
    ("after_tool", AfterToolResult(injected_context="\ud800")),
]


@pytest.mark.parametrize(("point", "answer"), WRONG)
def test_an_answer_that_no_session_can_use_is_logged_and_changes_nothing(
    memory: Memory, point: str, answer: Any, caplog: pytest.LogCaptureFixture
) -> None:
    memory.hooks.register(point, lambda *_: answer)
    model = Script(Reply(None, (Call("c1", "memory_read"),)), Reply("done"))
    chat = memory.conversation("s1")
    assert AgentLoop(memory, chat, model).run("go").text == "done"
    assert [message.content for message in chat.window()] == ["go", None, '{"entries":{},"notes":[]}', "done"]
    assert "counts for nothing" in caplog.text
    assert_sound(memory)


@pytest.mark.parametrize("point", [[], None, 5, "coffee"])
def test_a_point_that_is_none_is_refused(memory: Memory, point: Any) -> None:
    with pytest.raises(InvalidInput, match="point is"):
        memory.hooks.register(point, print)
    assert memory.hooks.unregister(point, print) is False
    with pytest.raises(InvalidInput, match="takes a Conversation"):
        memory.hooks.context(point)


@pytest.mark.parametrize("name", [[], None, 5, "coffee"])
def test_a_setting_that_is_none_is_refused(memory: Memory, name: Any) -> None:
    with pytest.raises(InvalidInput, match="there is no setting"):
        memory.settings.get(name)
    with pytest.raises(InvalidInput, match="there is no setting"):
        memory.settings.set(name, 1)


@pytest.mark.parametrize("score", ["x", None, True, float("nan"), float("inf"), 10**400])
def test_a_score_that_is_none_is_refused(memory: Memory, score: Any) -> None:
    with pytest.raises(InvalidInput, match="score is"):
        memory.settings.count_usage("skill_used", score=score)
    assert memory.head == 0


def test_what_a_message_recalls_is_bounded_and_listed_once(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    ids = [memory.add(f"The port of service {number} is {number}.").id for number in range(3)]
    chat = memory.conversation("c")
    many = [ids[0]] * 9 + [ids[2]] + ["none"] * INJECTED_MEMORIES_COUNT_MAX + [ids[1]]
    chat.append("user", "x", metadata={INJECTED_KEY: {"text": "Recalled:", "memories": many}})
    part = memory.context(chat, query="nothing of it", budget=ContextBudget(memories_count=0)).part("injected")
    assert part is not None
    assert [line[-3:] for line in part.text.splitlines()[-2:]] == [" 0.", " 2."]
    assert part.text.count("The port") == 2
    memory.hooks.register("user_message", lambda *_: UserMessageResult(memories=tuple(many)))
    AgentLoop(memory, memory.conversation("d"), Script(Reply("done"))).run("go")
    assert "over INJECTED_MEMORIES_COUNT_MAX = 1,000" in caplog.text
    assert memory.conversation("d").window()[0].metadata == {"refold_heard": True}


@pytest.mark.parametrize("way", ["kept", "erased", "replaced"])
def test_the_answer_to_a_withheld_message_stays_withheld(way: str) -> None:
    with Memory() as memory:
        chat, seen = memory.conversation("c", project="p"), list[str]()
        said = "I will not keep it. Dr. Weber treats hepatitis with Epclusa."
        model = Script(call("look"), Reply(said))
        memory.tools.register(FunctionTool("look", "Look.", {}, lambda *_: "Epclusa is for hepatitis"))
        AgentLoop(memory, chat, model, hooks=default_hooks(memory)).run("Don't remember this: I have hepatitis C.")
        question, *rest = chat.history()
        if way == "erased":
            memory.erase([question])
        elif way == "replaced":
            chat.replace(question, "I have an illness.")

        def complete(asked: Any, *_: Any) -> str:
            seen.append(asked[0]["content"])
            return "[]"

        provider = CallableProvider(complete)
        for page in ([*rest], None):
            extract(chat, provider, memory=memory, messages=page)
        assert not any("Epclusa" in each for each in seen)
        other = memory.conversation("o", project="p")
        other.append("user", "Who treats hepatitis with Epclusa?")
        assert "Weber" not in memory.context(other).text
