"""Hooks: eight points, in order, whose failures stop nothing."""

import asyncio
import logging
import threading
from pathlib import Path
from typing import Any

import pytest

from refold import InvalidInput, Memory
from refold.agent import (
    AfterLlmResult,
    AfterToolResult,
    BeforeLlmResult,
    BeforeToolResult,
    Blocked,
    HookContext,
    ToolResult,
    UserMessageResult,
)
from refold.agent import hooks as agent_hooks
from refold.agent.defaults import default_hooks
from refold.skills import SkillRoots


def begun(memory: Memory) -> HookContext:
    chat = memory.conversation("s1", project="acme")
    context: HookContext = memory.hooks.context(chat, provider_name="scripted", model_name="tiny")
    return context


def test_hook_chain_three_hooks_run_in_order_at_session_end(memory: Memory) -> None:
    """A scenario of the seed, by its name."""
    context = begun(memory)
    called: list[Any] = []
    summary = context.conversation.session.summary()
    for number in range(3):
        memory.hooks.register("session_end", lambda _, said, number=number: called.append((number, said)))
    memory.hooks.fire_session_end(context, summary)
    assert called == [(0, summary), (1, summary), (2, summary)]


def test_skill_matching_a_skill_of_the_project_is_shown_beside_the_message(memory: Memory, tmp_path: Path) -> None:
    """A scenario of the seed, by its name."""
    folder = tmp_path / ".skills" / "release-notes"
    folder.mkdir(parents=True)
    head = "---\nname: release-notes\ndescription: Write the notes of a release.\n---\n"
    (folder / "SKILL.md").write_text(f"{head}One line a change.\n", encoding="utf-8")
    skills = memory.skills.with_roots(SkillRoots(project=str(tmp_path)))
    hooks, context = default_hooks(memory, skills), begun(memory)
    said = "write the notes of the release"
    heard = hooks.fire_user_message(context, said)
    assert [(name, text) for name, text, _ in heard.skills] == [("release-notes", "One line a change.")]
    context.conversation.append("user", said, metadata=heard.metadata)
    part = memory.context(context.conversation).part("skills")
    assert part is not None
    assert part.text == "[skill:release-notes]\nOne line a change.\n[/skill]"
    assert hooks.fire_user_message(context, "what is for lunch?") == UserMessageResult()
    selected = memory.skills.last_selection("s1")
    assert selected is not None
    assert (selected.query, selected.names) == (said, ("release-notes",))
    memory.settings.set("skills_enabled", value=False)
    assert hooks.fire_user_message(context, said).skills == ()
    assert memory.context(context.conversation).part("skills") is None


def test_there_are_eight_points_and_no_ninth(memory: Memory) -> None:
    assert len(agent_hooks.POINTS) == 8
    with pytest.raises(InvalidInput, match="give one of session_start, user_message"):
        memory.hooks.register("coffee", print)
    no_function: Any = 5
    with pytest.raises(InvalidInput, match="a hook must be a function"):
        memory.hooks.register("session_start", no_function)


def test_without_hooks_nothing_changes(memory: Memory) -> None:
    context, hooks = begun(memory), memory.hooks
    messages = [{"role": "user", "content": "hi"}]
    hooks.fire_session_start(context)
    assert hooks.fire_user_message(context, "hi") == UserMessageResult()
    assert hooks.fire_before_llm(context, messages) is messages
    assert hooks.fire_after_llm(context, "hi") == AfterLlmResult()
    assert hooks.fire_before_tool(context, "t", {}) == BeforeToolResult()
    assert hooks.fire_after_tool(context, "t", ToolResult("t", "ok")) == AfterToolResult()
    hooks.fire_compaction(context, [])
    assert memory.head == 0


def test_a_hook_is_told_who_and_where(memory: Memory) -> None:
    seen: list[HookContext] = []
    memory.hooks.register("session_start", seen.append)
    memory.hooks.fire_session_start(begun(memory))
    (context,) = seen
    assert (context.session_id, context.project) == ("s1", "acme")
    assert (context.provider_name, context.model_name) == ("scripted", "tiny")
    context.conversation.scratchpad.note("from a hook")
    assert memory.conversation("s1").scratchpad.notes() == ["from a hook"]


def test_changes_of_a_message_chain_and_a_stop_ends_them(memory: Memory) -> None:
    context, hooks = begun(memory), memory.hooks
    called: list[Any] = []
    hooks.register("user_message", lambda _, text: f"{text}!")
    hooks.register("user_message", lambda _, text: UserMessageResult(f"{text}?"))
    hooks.register("user_message", lambda _, __: None)
    assert hooks.fire_user_message(context, "hi") == UserMessageResult("hi!?")
    hooks.register("user_message", lambda _, __: UserMessageResult(stop_reason="enough"))
    hooks.register("user_message", lambda _, text: called.append(text))
    assert hooks.fire_user_message(context, "hi") == UserMessageResult("hi!?", "enough")
    assert called == []


def test_messages_for_the_model_are_changed_only_by_what_is_returned(memory: Memory) -> None:
    context, hooks = begun(memory), memory.hooks
    messages: list[dict[str, Any]] = [{"role": "user", "content": "hi"}]
    hooks.register("before_llm", lambda _, given: given.clear())
    hooks.register("before_llm", lambda _, given: given[0].update(content="changed") if given else None)
    assert hooks.fire_before_llm(context, messages) == [{"role": "user", "content": "hi"}]
    hooks.register("before_llm", lambda _, given: BeforeLlmResult([*given, {"role": "user", "content": "more"}]))
    assert [message["content"] for message in hooks.fire_before_llm(context, messages)] == ["hi", "more"]


def test_a_models_text_is_replaced_or_blocked(memory: Memory) -> None:
    context, hooks = begun(memory), memory.hooks
    hooks.register("after_llm", lambda _, text: AfterLlmResult(text.upper()))
    hooks.register("after_llm", lambda _, text: AfterLlmResult(block_reason=f"no {text}"))
    assert hooks.fire_after_llm(context, "hi") == AfterLlmResult("HI", "no HI")


def test_hook_intercept_a_call_is_changed_or_skipped(memory: Memory) -> None:
    context, hooks = begun(memory), memory.hooks
    called: list[Any] = []
    hooks.register("before_tool", lambda _, __, given: BeforeToolResult(modified_arguments=given | {"safe": True}))
    assert hooks.fire_before_tool(context, "Bash", {"command": "ls"}).modified_arguments == {
        "command": "ls",
        "safe": True,
    }
    hooks.register("before_tool", lambda _, name, __: ToolResult(name, "ok", b'"from the hook"'))
    hooks.register("before_tool", lambda *given: called.append(given))
    found = hooks.fire_before_tool(context, "Bash", {})
    assert (found.skip, found.output, called) == (True, "from the hook", [])


def test_what_hooks_inject_behind_a_tool_is_joined(memory: Memory) -> None:
    context, hooks = begun(memory), memory.hooks
    for text in ("one", "two"):
        hooks.register("after_tool", lambda _, __, ___, text=text: AfterToolResult(injected_context=text))
    hooks.register("after_tool", lambda *_: AfterToolResult(replacement_output="other"))
    found = hooks.fire_after_tool(context, "t", ToolResult("t", "ok"))
    assert found == AfterToolResult("one\ntwo", "other")


def test_error_propagation_a_hook_that_raises_is_logged_and_stops_nothing(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    context, hooks = begun(memory), memory.hooks
    called: list[Any] = []

    def broken(*_: Any) -> None:
        raise ZeroDivisionError("oops")

    for point in agent_hooks.POINTS:
        hooks.register(point, broken)
    hooks.register("session_start", called.append)
    with caplog.at_level(logging.WARNING, logger="refold"):
        hooks.fire_session_start(context)
        assert hooks.fire_user_message(context, "hi") == UserMessageResult()
    assert called == [context]
    assert len(caplog.records) == 2
    assert all("broken raised" in record.getMessage() for record in caplog.records)


def boom(*_: Any) -> None:
    raise ZeroDivisionError("oops")


def late(*_: Any) -> None:
    threading.Event().wait(30)


def speechless(*_: Any) -> Any:
    return BeforeToolResult(modified_arguments=5)  # type: ignore[arg-type]


def denies(*_: Any) -> Any:
    return False


def mistakes(*_: Any) -> Any:
    return AfterToolResult(block_reason="no")


@pytest.mark.parametrize(
    ("guard", "problem"),
    [
        (boom, "raised ZeroDivisionError"),
        (late, "took longer than 0.05 s"),
        (speechless, "returned what cannot be"),
        (denies, "returned what cannot be"),
        (mistakes, "returned what cannot be"),
    ],
)
def test_a_guard_that_fails_or_is_late_lets_nothing_through(memory: Memory, guard: Any, problem: str) -> None:
    context, hooks = begun(memory), memory.hooks
    hooks.timeout_seconds = 0.05
    called: list[Any] = []
    for point in ("before_tool", "before_llm"):
        hooks.register(point, guard)
        hooks.register(point, lambda *given: called.append(given))
    found = hooks.fire_before_tool(context, "Bash", {"command": "rm -rf /"})
    assert found.skip
    assert f"the hook {guard.__name__} {problem}" in str(found.skip_reason)
    with pytest.raises(Blocked, match=f"the hook {guard.__name__} {problem}.*the model was not asked"):
        hooks.fire_before_llm(context, [])
    assert called == []


def test_a_guard_may_say_why_no_model_is_asked(memory: Memory) -> None:
    memory.hooks.register("before_llm", lambda *_: BeforeLlmResult(block_reason="too dear"))
    with pytest.raises(Blocked, match=r"^too dear$"):
        memory.hooks.fire_before_llm(begun(memory), [])


def test_what_hooks_inject_beside_a_message_is_joined_and_becomes_metadata(memory: Memory) -> None:
    context, hooks = begun(memory), memory.hooks
    for text in ("one", "two"):
        skill = (text, f"Do {text}.", 2.0)
        hooks.register(
            "user_message",
            lambda _, __, text=text, skill=skill: UserMessageResult(injected_context=text, skills=(skill,)),
        )
    heard = hooks.fire_user_message(context, "hi")
    assert (heard.injected_context, [name for name, _, _ in heard.skills]) == ("one\ntwo", ["one", "two"])
    assert UserMessageResult().metadata is None
    context.conversation.append("user", "hi", metadata=heard.metadata)
    built = memory.context(context.conversation, tools=())
    assert built.text == (
        "Today is Wednesday, 2026-11-18.\n\n[skill:one]\nDo one.\n[/skill]\n\n[skill:two]\nDo two.\n[/skill]\n\n"
        "[For This Message]\none\ntwo"
    )
    assert built.messages()[-1] == {"role": "user", "content": "[For This Message]\none\ntwo\n\n[Message]\nhi"}
    assert context.conversation.window()[-1].content == "hi"
    context.conversation.append("user", "and now?")
    assert [part.name for part in memory.context(context.conversation, tools=()).parts] == ["today"], (
        "it belongs to one message"
    )
    context.conversation.append("user", "x", metadata={"refold_injected": {"text": 5}})
    built = memory.context(context.conversation, tools=())
    assert [part.name for part in built.parts] == ["today"], "what another program wrote is left alone"


def test_default_hooks_twice_are_there_once(memory: Memory, tmp_path: Path) -> None:
    own = memory.hooks.register("user_message", lambda *_: None)
    for _ in range(2):
        hooks = default_hooks(memory, memory.skills.with_roots(SkillRoots(project=str(tmp_path))))
    assert repr(hooks) == "Hooks(session_start=1, user_message=3, before_tool=1, session_end=3)"
    assert hooks.unregister_group("skills") == 3
    assert hooks.unregister_group("skills") == 0
    assert hooks.unregister("user_message", own)


def test_a_hook_that_hangs_is_left_behind(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    context, hooks, never = begun(memory), memory.hooks, threading.Event()
    called: list[Any] = []
    hooks.timeout_seconds = 0.05
    hooks.register("session_start", lambda _: never.wait(60))
    hooks.register("session_start", called.append)
    hooks.fire_session_start(context)
    never.set()
    assert called == [context]
    assert "took longer than 0.05 s" in caplog.text
    assert [notice.partition("<lambda> ")[2] for notice in context.notices] == [
        "took longer than 0.05 s; it was left behind"
    ]
    hooks.timeout_seconds = 0
    with pytest.raises(InvalidInput, match="timeout_seconds is 0"):
        hooks.fire_session_start(context)


def test_asynchronous_hooks_run_from_sync_and_async_code(memory: Memory) -> None:
    context, hooks = begun(memory), memory.hooks

    async def later(_: HookContext, text: str) -> str:
        await asyncio.sleep(0)
        return text + "!"

    hooks.register("user_message", later)
    assert hooks.fire_user_message(context, "a").modified_message == "a!"

    async def inside() -> UserMessageResult:
        return await asyncio.to_thread(hooks.fire_user_message, context, "b")

    assert asyncio.run(inside()).modified_message == "b!"


def test_a_hook_can_be_taken_away(memory: Memory) -> None:
    context, hooks = begun(memory), memory.hooks
    hook = hooks.register("user_message", lambda _, __: "changed")
    assert repr(hooks) == "Hooks(user_message=1)"
    assert hooks.unregister("user_message", hook) is True
    assert hooks.unregister("user_message", hook) is False
    assert hooks.fire_user_message(context, "hi") == UserMessageResult()


# Compaction.


def test_compaction_fires_with_what_an_append_evicted(memory: Memory) -> None:
    chat = memory.conversation("s1", window_tokens=10)
    context = memory.hooks.context(chat)
    seen: list[Any] = []
    memory.hooks.register("compaction", lambda _, evicted: seen.append([message.content for message in evicted]))
    for number in range(4):
        message = chat.append("user", f"m{number}", tokens=4)
        memory.hooks.compacted(context, message.seq)
    assert seen == [["m0"], ["m1"]]


def test_whoever_writes_compaction_fires_after_the_durable_append(memory: Memory) -> None:
    chat = memory.conversation("s1", window_tokens=10)
    context, done = memory.hooks.context(chat), threading.Event()
    seen: list[str] = []

    def compact(_: HookContext, evicted: list[Any]) -> None:
        seen.extend(message.content for message in evicted)
        if len(seen) == 3:
            done.set()

    memory.hooks.register("compaction", compact)
    with memory.hooks.watch(context) as subscription:
        memory.conversation("other", window_tokens=1).append("user", "elsewhere", tokens=4)
        for number in range(4):
            chat.append("user", f"m{number}", tokens=4)
        chat.set_window_tokens(4)
        assert done.wait(30)
        assert subscription.error is None
    assert seen == ["m0", "m1", "m2"]
