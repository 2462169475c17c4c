"""Skills in a session of an agent: what they allow it, and what it learns at its end."""

import re
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from refold.agent import AgentLoop, FunctionTool, HookContext, Reply
from refold.agent.defaults import default_hooks
from refold.agent.hooks import Hooks
from refold.agent.providers import CallableProvider
from refold.skills import SkillRoots
from tests.agent.test_loop import Script, call
from tests.support.memories import remembering

pytest.importorskip("yaml", reason="PyYAML is not installed")

CALLS = [("Read", "the changelog"), ("Bash", "git log"), ("Write", "the notes")]
ANSWER = {
    "name": "release-notes",
    "description": "Write the notes of a release.",
    "tags": ["git"],
    "body": "1. Read the log.\n2. One line a change.\n",
}


def answering(asked: list[Any]) -> CallableProvider:
    def answer(messages: list[dict[str, Any]], system: list[str], schema: dict[str, Any]) -> Any:
        asked.append((messages, system, schema))
        return ANSWER

    return CallableProvider(answer)


def test_a_provider_is_asked_in_its_own_way() -> None:
    with remembering() as memory:
        asked: list[Any] = []
        found = memory.skills.maybe_generate(answering(asked), summary="Did it.", tool_calls=CALLS)
        assert found.skill is not None
        ((messages, system, schema),) = asked
        assert [message["role"] for message in messages] == ["user"]
        assert "Did it." in messages[0]["content"]
        assert "You turn a finished session" in system[0]
        assert schema["required"] == ["name", "description", "tags", "body"]


def begun(memory: Memory, hooks: Hooks) -> HookContext:
    chat = memory.conversation("s1")
    chat.append("user", "Write the notes.", tokens=3)
    for name, about in CALLS:
        chat.session.record_call(name, {"about": about}, "done")
    return hooks.context(chat)


def test_a_session_that_went_well_is_learned_from_where_the_settings_say_so() -> None:
    with remembering() as memory:
        asked: list[Any] = []
        library = memory.skills.library
        hooks = default_hooks(memory, memory.skills, answering(asked))
        context = begun(memory, hooks)
        memory.settings.set("memory_auto_extract", value=False)
        for is_on, is_good, names in ((False, True, []), (True, False, []), (True, True, ["release-notes"])):
            memory.settings.set("skills_auto_generate", value=is_on)
            hooks.fire_session_end(context, context.conversation.session.summary(success=is_good))
            assert [skill.name for skill in library.list("pending_review")] == names
        assert library.list()[0].sessions == ("s1",)
        ((messages, _, _),) = asked
        assert "- Bash: " in messages[0]["content"]
        assert "git log" in messages[0]["content"]
        context.conversation.erase()
        assert library.list() == [], "what was learned of a session goes with it"


def test_the_skills_beside_a_message_say_which_tools_may_be_called(tmp_path: Path) -> None:
    for name, front in (("deploy", "allowed-tools: Read Bash(git:*)\n"), ("greet", "")):
        path = tmp_path / f".skills/{name}/SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(f"---\nname: {name}\ndescription: About {name}.\n{front}---\nBody\n", encoding="utf-8")
    with remembering() as memory:
        hooks = default_hooks(memory, memory.skills.with_roots(SkillRoots(project=str(tmp_path))))
        context = hooks.context(memory.conversation("s1"))

        def skipped(text: str) -> list[str]:
            hooks.fire_user_message(context, text)
            return [name for name in ("Read", "Bash", "Write") if hooks.fire_before_tool(context, name, {}).skip]

        assert not hooks.fire_before_tool(context, "Write", {}).skip
        assert skipped("deploy it") == ["Write"]
        reason = hooks.fire_before_tool(context, "Write", {}).skip_reason
        assert reason is not None
        assert reason.startswith("forbidden: the active skills allow")
        assert skipped("greet them") == []
        assert skipped("deploy it") == ["Write"]
        assert skipped("something else") == []
        assert skipped("deploy it") == ["Write"]
        memory.settings.set("skills_enabled", value=False)
        assert skipped("deploy it") == []


def skills_below(memory: Memory, project: Path, **files: str) -> Any:
    for name, text in files.items():
        path = project / f".skills/{name}/SKILL.md"
        path.parent.mkdir(parents=True)
        path.write_text(text, encoding="utf-8")
    return memory.skills.with_roots(SkillRoots(project=str(project)))


def test_no_skill_takes_the_tools_of_the_memory_or_those_of_a_skill_beside_it(tmp_path: Path) -> None:
    front = "---\nname: {0}\ndescription: About {0}.\nallowed-tools: Read\n---\nBody\n"
    with remembering() as memory:
        texts = {"deploy": front.format("deploy"), "greet": "---\nname: greet\ndescription: About greet.\n---\nBody\n"}
        hooks = default_hooks(memory, skills_below(memory, tmp_path, **texts))
        context = hooks.context(memory.conversation("s1"))

        def refused(text: str) -> list[str]:
            hooks.fire_user_message(context, text)
            tools = ("Write", "memory_add", "memory_search", "memory_set", "memory", "skill_use")
            return [name for name in tools if hooks.fire_before_tool(context, name, {}).skip]

        assert refused("deploy it") == ["Write"]
        assert refused("deploy it and greet them") == []


def test_another_loop_refuses_the_tools_that_the_skills_of_the_message_do_not_allow(tmp_path: Path) -> None:
    """As where a process ended before the model answered, and the next one goes on."""
    text = "---\nname: deploy\ndescription: About deploy.\nallowed-tools: Read\n---\nBody\n"
    wiped: list[int] = []
    with remembering() as memory:
        default_hooks(memory, skills_below(memory, tmp_path, deploy=text))
        memory.tools.register(FunctionTool("Wipe", "d", {}, lambda *_: wiped.append(1)))
        chat = memory.conversation("s1")

        class Down:
            def reply(self, *_: Any) -> Reply:
                raise ConnectionError

        with pytest.raises(ConnectionError):
            AgentLoop(memory, chat, Down()).run("deploy it")
        assert AgentLoop(memory, chat, Script(call("Wipe"), Reply("Well."))).resume().text == "Well."
        assert wiped == []
        assert "forbidden: the active skills allow" in str(chat.window()[-2].content)
        AgentLoop(memory, chat, Script(call("Wipe"), Reply("Well."))).run("hello")
        assert wiped == [1], "it holds for the message that it was selected for"
        with pytest.raises(ConnectionError):
            AgentLoop(memory, chat, Down()).run("deploy it again")
        (tmp_path / ".skills/deploy/SKILL.md").unlink()
        memory.skills.with_roots(SkillRoots(project=str(tmp_path))).refresh()
        default_hooks(memory, memory.skills.with_roots(SkillRoots(project=str(tmp_path))))
        AgentLoop(memory, chat, Script(call("Wipe"), Reply("Well."))).resume()
        assert wiped == [1, 1], "a skill that is gone restricts nothing"


def test_a_skill_that_merely_applies_to_the_project_restricts_nothing(tmp_path: Path) -> None:
    configuration = '{"skills": {"rules": {"path": "extra/rules", "detect": {"files": ["go.mod"]}}}}'
    (tmp_path / "external-skills.json").write_text(configuration, encoding="utf-8")
    text = "---\nname: rules\ndescription: About Go.\nallowed-tools: Read\n---\nBody\n"
    with remembering() as memory:
        (tmp_path / "extra/rules").mkdir(parents=True)
        (tmp_path / "extra/rules/SKILL.md").write_text(text, encoding="utf-8")
        skills = skills_below(memory, tmp_path)
        assert skills.select("write some rules about Go") == (), "its files are not there"
        assert [match.match_reason for match in skills.select("", forced=["rules"])] == ["user_forced"]
        (tmp_path / "go.mod").touch()
        skills.refresh()
        hooks = default_hooks(memory, skills)
        context = hooks.context(memory.conversation("s1"))
        assert [name for name, _, _ in hooks.fire_user_message(context, "hello").skills] == ["rules"]
        assert not hooks.fire_before_tool(context, "Write", {}).skip


def test_each_selected_skill_is_shown_by_whole_sections_and_only_what_is_shown_is_recorded(tmp_path: Path) -> None:
    body = "".join(f"# Part {number}\n\n{'word ' * 30}end {number}.\n\n" for number in range(40))
    names = ("deploy-alpha", "deploy-beta", "deploy-gamma")
    texts = {name: f"---\nname: {name}\ndescription: Deploy to {name}.\n---\n{body}" for name in names}
    with remembering() as memory:
        hooks = default_hooks(memory, skills_below(memory, tmp_path, **texts))
        context = hooks.context(memory.conversation("s1"))
        heard = {name: text for name, text, _ in hooks.fire_user_message(context, "deploy the servers").skills}
        for name in names:
            shown = heard[name]
            assert 900 < len(shown) <= 1_334
            assert "end 0." in shown
            assert re.search(r"end [456]\.\n\n\(\d+ more lines left out\)\Z", shown), "the last section is whole"
        memory.settings.set("skills_max_injected_chars", 300)
        assert len(hooks.fire_user_message(context, "deploy the servers").skills) == 1
        selected = memory.skills.last_selection("s1")
        assert selected is not None
        assert selected.names == ("deploy-alpha",)


def test_a_configuration_bounds_the_lines_that_are_shown_of_a_skill(tmp_path: Path) -> None:
    body = "".join(f"- step {number}\n" for number in range(60))
    (tmp_path / "external-skills.json").write_text('{"settings": {"max_content_lines": 5}}', encoding="utf-8")
    with remembering() as memory:
        texts = {"deploy": f"---\nname: deploy\ndescription: Deploy the servers.\n---\n{body}"}
        hooks = default_hooks(memory, skills_below(memory, tmp_path, **texts))
        ((_, shown, _),) = hooks.fire_user_message(
            hooks.context(memory.conversation("s1")), "deploy the servers"
        ).skills
        assert re.findall(r"step \d+", shown) == [f"step {number}" for number in range(shown.count("step"))]
        assert 0 < shown.count("step") <= 5


def test_a_skill_is_learned_from_what_was_said_and_done() -> None:
    with remembering() as memory:
        asked: list[Any] = []
        memory.settings.set("memory_auto_extract", value=False)
        memory.settings.set("skills_auto_generate", value=True)
        hooks = default_hooks(memory, memory.skills, answering(asked))
        chat = memory.conversation("s1")
        chat.append("user", "Write the notes of release 7.", tokens=3)
        for name, about in CALLS:
            chat.session.record_call(name, {"about": about}, "no", outcome="forbidden")
        context = hooks.context(chat)
        hooks.fire_session_end(context, chat.session.summary(success=True))
        assert asked == [], "what was forbidden was not done"
        for name, about in CALLS:
            chat.session.record_call(name, {"about": about}, "done")
        chat.append("assistant", "They are in NOTES.md.", tokens=3)
        hooks.fire_session_end(context, chat.session.summary(success=True))
        ((messages, _, _),) = asked
        assert "user: Write the notes of release 7.\nassistant: They are in NOTES.md." in messages[0]["content"]
