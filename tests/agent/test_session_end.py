"""The end of a session: what is learned, recorded and said, and what later sessions have of it."""

import logging
from typing import Any

import pytest

from refold import Memory
from refold.agent import (
    AgentLoop,
    Call,
    CallableProvider,
    ContextBudget,
    FunctionTool,
    ProviderFailed,
    Reply,
    default_hooks,
)
from refold.limits import EXTRACTED_CONTEXT_CHARS_MAX
from tests.agent.test_loop import Script
from tests.support.memories import Clock, assert_sound


def learning(*contents: str) -> CallableProvider:
    """A model that learns each of the texts once the prompt has its last word."""

    def answer(messages: list[dict[str, Any]], *_: object) -> dict[str, Any]:
        said = messages[-1]["content"].partition("## Conversation Summary")[2].partition("## Already Known")[0]
        return {
            "memories": [
                {"content": content, "category": "fact", "keywords": [], "importance": 0.6}
                for content in contents
                if content.split()[-1].strip(".") in said
            ]
        }

    return CallableProvider(answer, id="scripted")


def test_the_loop_fills_its_summary(memory: Memory) -> None:
    chat = memory.conversation("c")
    model = Script(Reply(None, (Call("c1", "memory_read"),)), Reply("It listens on 5432."), Reply("Bye!"))
    loop = AgentLoop(memory, chat, model)
    loop.run("Which port does the database have?")
    loop.run("Thanks.")
    summary = loop.end()
    assert (summary.task_description, summary.outcome) == ("Which port does the database have?", "Bye!")
    assert (summary.tool_usage, summary.total_turns, summary.success) == ({"memory_read": 1}, 2, True)
    chat.session.describe_task("Find the port.")
    assert chat.session.summary().task_description == "Find the port."


def test_a_summary_of_blocks_of_a_fork_and_of_what_was_erased(memory: Memory) -> None:
    chat = memory.conversation("c")
    said = chat.append(
        "user", [{"type": "text", "text": "Look:"}, {"type": "image"}, {"type": "text", "text": "a cat"}]
    )
    chat.append("assistant", "Nice.")
    assert chat.session.summary().task_description == "Look:\na cat"
    fork = chat.fork("d")
    fork.append("user", "And now?")
    assert (fork.session.summary().task_description, fork.session.summary().total_turns) == ("Look:\na cat", 2)
    fork.close(drop=True)
    memory.erase([said])
    assert (chat.session.summary().task_description, chat.session.summary().outcome) == ("", "Nice.")


def test_a_session_of_blank_texts_has_no_task_and_no_episode(memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
    default_hooks(memory)
    for texts, tasks in ((["  "], []), (["  ", "Find the port."], ["Find the port."])):
        chat = memory.conversation(f"c{len(texts)}", project="p")
        for text in texts:
            chat.append("user", text)
            chat.append("assistant", "Yes?")
        AgentLoop(memory, chat, Script()).end()
        assert [hit.entry.task for hit in memory.project("p").search_episodes("").hits] == tasks
    assert not caplog.records


def test_a_session_becomes_an_episode_once_and_its_hooks_say_what_they_did(memory: Memory) -> None:
    default_hooks(memory, provider=learning("The port is 5432.", "The team deploys on Friday."))
    loop = AgentLoop(memory, memory.conversation("c", project="acme"), Script(Reply("Noted."), Reply("Good.")))
    loop.run("The port is 5432, and we deploy on Friday.")
    loop.end()
    assert loop.notices == ("Learned 2 new facts about this project",)
    project = memory.project("acme")
    (hit,) = project.search_episodes("")
    episode = hit.entry
    assert (episode.kind, episode.session) == ("success", "c")
    assert (episode.task, episode.outcome) == ("The port is 5432, and we deploy on Friday.", "Noted.")
    loop.end()
    assert project.stats().episodes == 1, "nothing was said since"
    loop.run("And it failed.")
    loop.end(success=False)
    assert project.stats().kinds == {"failure": 1, "success": 1}
    memory.settings.set("memory_enabled", value=False)
    AgentLoop(memory, memory.conversation("e", project="acme"), Script(Reply("x"))).run("Go on.")
    assert project.stats().episodes == 2
    assert_sound(memory)


def test_a_provider_out_of_reach_is_one_line_that_names_who_failed_and_the_next_end_learns(
    memory: Memory, caplog: pytest.LogCaptureFixture
) -> None:
    editor = {"content": "The editor is vim.", "category": "fact", "keywords": [], "importance": 0.6}
    answers: list[Any] = [ProviderFailed("tiny could not be asked\n(refused); try again later"), "no JSON", [editor]]

    def answer(*_: Any) -> Any:
        found = answers.pop(0)
        if isinstance(found, Exception):
            raise found
        return found

    default_hooks(memory, provider=CallableProvider(answer, id="tiny"))
    chat = memory.conversation("s1", project="acme")
    AgentLoop(memory, chat, Script(Reply("I see."))).run("My editor is vim.")
    with caplog.at_level(logging.WARNING, logger="refold"):
        AgentLoop(memory, chat, Script()).end()
        AgentLoop(memory, chat, Script()).end()
    first, second = caplog.records
    assert first.exc_info is second.exc_info is None
    assert first.getMessage() == (
        "hook extract_at_end failed in conversation 's1': tiny could not be asked (refused); try again later; the "
        "messages that were not learnt from are read again at the next end() or extract() of this conversation"
    )
    assert "extract_at_end failed in conversation 's1': Failed to parse memory extraction JSON" in second.getMessage()
    assert memory.project("acme").count() == 0
    loop = AgentLoop(memory, chat, Script())
    loop.end()
    assert [entry.content for entry in memory.project("acme").list()] == [editor["content"]]
    assert loop.notices == ("Learned 1 new fact about this project",)
    assert len(caplog.records) == 2


def test_a_memory_quotes_what_it_came_from(memory: Memory) -> None:
    long = "So much to say. " * 40 + "The port is 5432 since the move. " + "And more of it. " * 40
    default_hooks(memory, provider=learning("The port is 5432."))
    chat = memory.conversation("c")
    loop = AgentLoop(memory, chat, Script(Reply("Noted.")))
    loop.run(long)
    loop.end()
    (entry,) = memory.project().list()
    assert entry.source_context is not None
    assert len(entry.source_context) == EXTRACTED_CONTEXT_CHARS_MAX
    assert "port is 5432" in entry.source_context
    chat.erase()
    assert memory.project().list() == []


def test_no_quotation_holds_a_secret(memory: Memory) -> None:
    default_hooks(memory, provider=learning("The port is 5432."))
    loop = AgentLoop(memory, memory.conversation("c"), Script(Reply("Noted.")))
    loop.run("The port is 5432 and the password is hunter22.")
    loop.end()
    (entry,) = memory.project().list()
    assert entry.source_context != ""
    assert "hunter22" not in repr(entry)


def test_a_context_shows_what_was_tried_in_sessions_like_this_one(memory: Memory) -> None:
    project = memory.project("acme")
    project.record_episode("failure", session="a", task="Migrate the billing database", outcome="The lock timed out.")
    project.record_episode("success", session="b", task="Write the release notes", outcome="Done.\n## Past Sessions")
    project.record_episode("success", session="c", task="Migrate the billing database again", outcome="It worked.")
    chat = memory.conversation("c", project="acme")
    chat.append("user", "Migrate the billing database, please.")
    context = memory.context(chat, query="Migrate the billing database, please.")
    part = context.part("episodes")
    assert part is not None
    assert part.text == (
        "## Past Sessions\n"
        "- Wed 2026-11-18: [failure] began with: Migrate the billing database; ended with: The lock timed out."
    )
    assert memory.rebuild(memory.show(context)).matches
    assert memory.context(chat, query="What is for lunch?").part("episodes") is None
    assert memory.context(chat).part("episodes") is None
    notes = memory.context(chat, query="the release notes").part("episodes")
    assert notes is not None
    assert notes.text.splitlines()[1:] == [
        "- Wed 2026-11-18: began with: Write the release notes; ended with: Done. ## Past Sessions"
    ]


def failing(memory: Memory, error: str = "disk full") -> AgentLoop:
    def fail(*_: Any) -> Any:
        raise RuntimeError(error)

    default_hooks(memory)
    memory.tools.register(FunctionTool("deploy", "Deploy.", {"type": "object", "properties": {}}, fail))
    calls = (Reply(None, (Call(f"c{number}", "deploy", "{}"),)) for number in range(9))
    return AgentLoop(memory, memory.conversation("a", project="acme"), Script(*calls))


def test_a_session_whose_last_turn_was_stopped_failed_and_says_why(memory: Memory) -> None:
    loop = failing(memory)
    turn = loop.run("Deploy version 3 to production.")
    summary = loop.end()
    assert (summary.success, summary.stop_reason) == (False, turn.stop_reason)
    shown = sessions_for(memory, "What did we talk about last time?")
    assert shown == (
        "## Past Sessions\n- Wed 2026-11-18: [failure] began with: Deploy version 3 to production.; ended with: "
        f"stopped: {turn.stop_reason}"
    )
    assert "disk full" in shown
    loop.run("Deploy version 4, then.")
    loop.end(success=True)
    assert "ended with: stopped: the model called" in sessions_for(memory, "What did we talk about last time?")


def test_a_session_that_another_loop_ends_without_an_answer_failed(memory: Memory) -> None:
    failing(memory).run("Deploy version 3 to production.")
    loop = AgentLoop(memory, memory.conversation("a", project="acme"), Script())
    assert loop.end().stop_reason == "the user's last message has no answer"
    assert "[failure]" in sessions_for(memory, "What did we talk about last time?")
    chat = memory.conversation("b", project="acme")
    answered = AgentLoop(memory, chat, Script(Reply("Done.")))
    answered.run("Roll it back, please.")
    assert (answered.end().success, answered.end().stop_reason) == (True, "")


def test_the_reason_of_a_stopped_session_is_erased_with_the_output_that_it_quotes(memory: Memory) -> None:
    loop = failing(memory, "disk of Alice full")
    loop.run("Deploy version 3 to production.")
    loop.end()
    output = next(message for message in reversed(loop.chat.history()) if message.role == "tool")
    memory.erase([output])
    assert "Alice" not in sessions_for(memory, "What did we talk about last time?")


def test_sessions_take_a_small_part_of_a_small_budget(memory: Memory) -> None:
    for name in "ab":
        text = f"Migrate the billing database {name}. " * 6
        memory.project("acme").record_episode("failure", session=name, task=text, outcome=text)
    chat = memory.conversation("c", project="acme")

    def shown(tokens: int) -> int:
        part = memory.context(chat, query="Migrate the billing database", budget=tokens).part("episodes")
        assert part is None or part.tokens <= tokens / 24
        return 0 if part is None else part.text.count("[failure]")

    assert [shown(tokens) for tokens in (1_000, 3_500, 9_000)] == [0, 1, 2]


def tell(memory: Memory, name: str, text: str, answer: str) -> None:
    """Hold a session of one message in the project acme, with the default hooks."""
    default_hooks(memory)
    loop = AgentLoop(memory, memory.conversation(name, project="acme"), Script(Reply(answer)))
    loop.run(text)
    loop.end()


def sessions_for(memory: Memory, query: str) -> str:
    """Return the past sessions in the context of a new conversation, without earlier messages."""
    budget = ContextBudget(messages_count=0)
    context = memory.context(memory.conversation("now", project="acme"), query=query, budget=budget)
    part = context.part("episodes")
    return "" if part is None else part.text


def test_past_sessions_show_no_secret(memory: Memory) -> None:
    tell(memory, "a", "The new cabin Wi-Fi password is " + "himbeere77.", "I will use himbeere77 for the cabin router.")
    tell(memory, "b", "My key is AKIA" + "ABCDEFGHIJKLMNOP for the backup server.", "The backup server has it.")
    cabin = sessions_for(memory, "What's the cabin Wi-Fi password?")
    assert cabin.startswith(
        "## Past Sessions\n- Wed 2026-11-18: began with: The new cabin Wi-Fi password is [a password, not shown]"
    )
    backup = sessions_for(memory, "Which key has the backup server?")
    assert backup.endswith(
        "My key is [an AWS access key, not shown] for the backup server.; ended with: The backup server has it."
    )
    assert "AKIA" not in backup


def test_past_sessions_do_not_repeat_what_was_taken_back(memory: Memory) -> None:
    project, query = memory.project("acme"), "Am I allergic to peanuts or shellfish?"
    tell(memory, "a", "Remember that I am allergic to peanuts and shellfish.", "I will look for recipes without them.")
    assert "peanuts" in sessions_for(memory, query)
    (fact,) = project.list()
    project.delete(fact.id)
    assert sessions_for(memory, query) == ""
    assert "peanuts" in sessions_for(memory.at(memory.head - 1), query)


def test_past_sessions_do_not_repeat_what_a_request_or_its_answer_took_back(memory: Memory) -> None:
    default_hooks(memory)
    model = Script(Reply("Which one, for how many?"), Reply("No peanuts, no shellfish."), Reply("Forgotten."))
    loop = AgentLoop(memory, memory.conversation("a", project="acme"), model)
    loop.run("Find a menu with peanuts or shellfish.")
    loop.run("Remember that I am allergic to peanuts and shellfish.")
    loop.end()
    assert "No peanuts" in sessions_for(memory, "A menu with peanuts or shellfish")
    loop = AgentLoop(memory, memory.conversation("b", project="acme"), model)
    loop.run("Forget that I am allergic to peanuts and shellfish.")
    loop.end()
    assert memory.project("acme").count() == 0
    assert sessions_for(memory, "A menu with peanuts or shellfish") == ""


def test_beside_a_question_a_session_has_its_own_answer_or_none(memory: Memory) -> None:
    default_hooks(memory)
    chat = memory.conversation("a", project="acme")
    loop = AgentLoop(memory, chat, Script(Reply("Take T65 from Shipton Mill."), Reply("Three cups."), Reply("At 240.")))
    loop.run("Which flour should I buy for baguettes?")
    loop.run("How many cups of sugar for the brioche?")
    loop.end()
    assert sessions_for(memory, "Which flour for baguettes did you say?") == (
        "## Past Sessions\n- Wed 2026-11-18: began with: Which flour should I buy for baguettes?; "
        "ended with: How many cups of sugar for the brioche? -> Three cups."
    )
    loop.run("How hot is the oven for baguettes from that flour?")
    loop.end()
    assert sessions_for(memory, "Which oven for baguettes and flour?").splitlines()[2:] == [
        "- Wed 2026-11-18: began with: How hot is the oven for baguettes from that flour?; ended with: At 240."
    ]
    chat.append("user", "Is that oven any good for a rye bread?")
    loop.end()
    pairs = [(hit.entry.task, hit.entry.outcome) for hit in memory.project("acme").search_episodes("")]
    assert ("Is that oven any good for a rye bread?", "stopped: the user's last message has no answer") in pairs


def test_a_session_that_ended_with_what_was_taken_back_is_not_shown(memory: Memory) -> None:
    default_hooks(memory)
    model = Script(Reply("Paint and brushes."), Reply("A fine colour."), Reply("Forgotten."))
    loop = AgentLoop(memory, memory.conversation("a", project="acme"), model)
    loop.run("What does it take to paint a boat?")
    loop.run("Remember that I love red boats.")
    loop.end()
    assert "red boats" in sessions_for(memory, "How do we paint the boat?")
    AgentLoop(memory, memory.conversation("b", project="acme"), model).run("Forget that I love red boats.")
    assert sessions_for(memory, "How do we paint the boat?") == ""


def test_a_session_that_was_dropped_or_restored_away_is_not_shown_unless_a_fork_goes_on(memory: Memory) -> None:
    for name in ("dropped", "forked", "restored", "kept"):
        chat = memory.conversation(name, project="acme")
        chat.append("user", "Good morning.")
        chat.snapshot("before")
        tell(memory, name, f"When do I tell my boss of the pregnancy, asks the {name} one?", "In week 12.")
    query, shown = "When does my boss hear of the pregnancy?", ("dropped", "forked", "restored", "kept")

    def sessions(at: int | None = None) -> list[str]:
        there = memory if at is None else memory.at(at)
        budget = ContextBudget(messages_count=0, episodes_count=9)
        context = there.context(there.conversation("now", project="acme"), query=query, budget=budget)
        return [name for name in shown if f"the {name} one" in context.text]

    assert sessions() == list(shown)
    before = memory.head
    memory.conversation("dropped").drop()
    memory.conversation("forked").fork("fork")
    memory.conversation("forked").drop()
    chat = memory.conversation("restored")
    chat.restore("before")
    assert sessions() == ["forked", "kept"]
    assert sessions(before) == list(shown)
    memory.conversation("fork").drop()
    assert sessions() == ["kept"]


def test_a_session_says_nothing_of_what_a_restore_took_back_before_its_end(memory: Memory) -> None:
    default_hooks(memory)
    chat = memory.conversation("a", project="acme")
    chat.append("user", " ")
    chat.snapshot("before")
    loop = AgentLoop(memory, chat, Script(Reply("In week 12."), Reply("In June.")))
    loop.run("When do I tell my boss of the pregnancy?")
    chat.restore("before")
    loop.run("When do we sail to the island?")
    loop.end()
    assert [(hit.entry.task, hit.entry.outcome) for hit in memory.project("acme").search_episodes("")] == [
        ("When do we sail to the island?", "In June.")
    ]


@pytest.mark.parametrize("query", ["What did we talk about last time?", "What do you know about me?"])
def test_a_question_about_the_past_or_oneself_brings_the_newest_sessions(memory: Memory, query: str) -> None:
    for number in range(4):
        tell(memory, f"s{number}", f"Where is island {number}?", f"North of island {number + 1}.")
    assert sessions_for(memory, query).splitlines()[1:] == [
        f"- Wed 2026-11-18: began with: Where is island {number}?; ended with: North of island {number + 1}."
        for number in (2, 3)
    ]
    context = memory.context(memory.conversation("now", project="acme"), query=query)
    assert memory.rebuild(memory.show(context)).matches
    assert sessions_for(memory, "Hi again!") == ""


def test_a_session_too_old_to_know_what_of_it_was_taken_back_is_not_shown(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    tell(memory, "a", "Book the Kyoto hotel for spring.", "The Ryokan Sakura is booked.")
    assert "Ryokan" in sessions_for(memory, "Which Kyoto hotel?")
    for module in ("refold.agent.candidates", "refold.memory.earlier"):
        monkeypatch.setattr(f"{module}.EARLIER_EVENTS_COUNT", 4)
    assert sessions_for(memory, "Which Kyoto hotel?") == ""


@pytest.mark.parametrize(
    ("text", "query", "other"),
    [
        ("The trip to Kyoto starts on May 22nd.", "When does my trip to Kyoto start?", "When may I take the bus?"),
        (
            "\u4eac\u90fd\u3078\u306e\u51fa\u5f35\u306f5\u670822\u65e5\u3067\u3059\u3002",
            "\u4eac\u90fd\u3078\u306e\u51fa\u5f35\u306f\u3044\u3064\u3067\u3059\u304b\uff1f",
            "\u96fb\u8eca\u306f\u3069\u3053\u3067\u3059\u304b\uff1f",
        ),
        (
            "\u53bb\u5317\u4eac\u7684\u51fa\u5dee\u662f\u4e94\u6708\u4e8c\u5341\u4e8c\u65e5\u3002",
            "\u53bb\u5317\u4eac\u7684\u51fa\u5dee\u662f\u4ec0\u4e48\u65f6\u5019\uff1f",
            "\u6211\u7684\u751f\u65e5\u662f\u4ec0\u4e48\u65f6\u5019\uff1f",
        ),
        (
            "\ubd80\uc0b0 \uc5ec\ud589\uc740 5\uc6d4\uc5d0 \uc2dc\uc791\ud569\ub2c8\ub2e4.",
            "\ubd80\uc0b0 \uc5ec\ud589\uc740 \uc5b8\uc81c \uc2dc\uc791\ud558\ub098\uc694?",
            "\ub0b4 \uc0dd\uc77c\uc740 \uc5b8\uc81c\uc608\uc694?",
        ),
    ],
)
def test_past_sessions_are_alike_by_what_they_are_about(memory: Memory, text: str, query: str, other: str) -> None:
    tell(memory, "a", text, "Noted: 23 guests, 7 rooms.")
    assert text in sessions_for(memory, query)
    assert sessions_for(memory, other) == ""


def test_words_of_everyday_talk_make_no_sessions_alike(memory: Memory) -> None:
    tell(memory, "a", "What may we do about the old bridge, please?", "You may paint the handrail.")
    assert sessions_for(memory, "What may I do about the trip, please?") == ""
    assert sessions_for(memory, "Is the bridge painted, with its handrails?") != ""


def test_a_session_that_says_only_what_another_part_says_is_not_shown(memory: Memory) -> None:
    tell(memory, "a", "Remember that I own a tabby cat.", "Okay, got it.")
    context = memory.context(memory.conversation("now", project="acme"), query="Which tabby cat do I own?")
    assert context.text.count("I own a tabby cat") == 1
    assert memory.rebuild(memory.show(context)).matches
    tell(memory, "b", "Find a vet for the tabby cat.", "Doctor Meow has time at nine.")
    assert "Doctor Meow" in sessions_for(memory, "Which vet has the tabby cat?")
    project = memory.project("acme")
    project.record_episode("failure", task="Renew the parrot's chip", outcome="It failed.")
    project.record_episode("success", task="Renew the parrot's chip", outcome="It worked.")
    project.add("Renew the parrot's chip next year.")
    assert sessions_for(memory, "Renew the parrot's chip").splitlines()[1:] == [
        "- Wed 2026-11-18: [failure] began with: Renew the parrot's chip; ended with: It failed."
    ]


# A month.

FACTS = {
    3: ("The database listens on port 6543.", "Which port does the database listen on?"),
    5: ("The office of the team is in Bergen.", "In which city is the office?"),
    8: ("Deployments happen on Thursday.", "When do deployments happen?"),
    11: ("The frontend is written in Svelte.", "What is the frontend written in?"),
    14: ("The logo of the company is a heron.", "Which animal is on the logo?"),
    18: ("Backups are kept in Zurich.", "Where are backups kept?"),
}


@pytest.mark.parametrize("tokens", [None, 1_500])
def test_what_was_told_in_a_month_is_there_when_it_is_asked_for(tokens: int | None) -> None:
    clock, shown, largest = Clock(), 0, 0
    with Memory(clock_ns=clock, window_tokens=1_000) as memory:
        default_hooks(memory, provider=learning(*(fact for fact, _ in FACTS.values())))
        for session in range(60):
            day, chat = session // 2, memory.conversation(f"s{session}", project="acme")
            model = Script(*[Reply("All right.")] * 9)
            loop = AgentLoop(memory, chat, model, budget=tokens)
            if session % 2 == 0 and day in FACTS:
                loop.run(FACTS[day][0])
            for number in range(2):
                loop.run(f"Let us talk about topic {session} and detail {number} for a while.")
            if session == 50:
                for fact, question in FACTS.values():
                    loop.run(question)
                    shown += fact in model.asked[-1][0]["content"]
            for asked in model.asked:
                prompt = asked[0]["content"]
                lines = [line for line in prompt.splitlines() if line.startswith("- [")]
                assert len(lines) == len(set(lines)), "nothing is shown twice"
            events = [event for event, _ in chat.events() if type(event).__name__ == "ContextShown"]
            largest = max(largest, *(sum(getattr(event, "tokens")) for event in events))  # noqa: B009 - of one kind
            loop.end()
            clock.advance(43_200)
        assert shown == len(FACTS)
        assert largest <= (tokens or 6_500)
        entries = memory.project("acme").list()
        assert len(entries) == len(FACTS)
        assert all(entry.importance > 0.55 for entry in entries), "what is used does not fade"
        assert memory.project("acme").stats().episodes == 60
        assert_sound(memory)


def test_memories_that_were_not_used_for_days_lose_importance_at_the_end_of_a_session() -> None:
    clock = Clock()
    with Memory(clock_ns=clock) as memory:
        default_hooks(memory)
        project = memory.project("acme")
        project.add("The database listens on port 6543.", importance=0.8)
        project.add("Ferries leave from pier nine.", importance=0.8)

        def importance() -> dict[str, float]:
            return {entry.content.split()[1]: entry.importance for entry in project.list()}

        loop = AgentLoop(memory, memory.conversation("first", project="acme"), Script(Reply("Yes."), Reply("Good.")))
        loop.run("Hello.")
        clock.advance(21 * 86_400)
        loop.end()
        assert importance() == {"database": pytest.approx(0.8 * 0.95**3), "leave": pytest.approx(0.8 * 0.95**3)}
        memory.settings.set("memory_enabled", value=False)
        clock.advance(21 * 86_400)
        loop.run("Hello again.")
        loop.end()
        assert importance()["leave"] == pytest.approx(0.8 * 0.95**3)
        assert_sound(memory)
