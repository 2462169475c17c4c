"""Earlier messages in a context: which of them answer a question, and which are never shown."""

import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from refold import Context, Memory, NotFound, Snapshot
from refold.agent import ContextBudget
from refold.engine.loader import Loader
from refold.event import Recorded
from refold.memory.lineage import Link
from refold.views.session import ContextShown
from tests.support.bounds import lowered
from tests.support.memories import Clock, assert_sound, remembering

pytestmark = pytest.mark.usefixtures("ranked")

LETTER = "The staging database listens on port 6432."
ASKED = "Which port does the staging database have?"


def part_of(context: Context) -> str:
    """The part with earlier messages, empty where there is none."""
    part = context.part("messages")
    return "" if part is None else part.text


def ask(memory: Memory, name: str = "now", project: str | None = "acme", asked: str = ASKED) -> Context:
    chat = memory.conversation(name, project=project)
    chat.append("user", asked)
    context: Context = memory.context(chat, query=asked)
    return context


def told(memory: Memory, name: str = "then", project: str | None = "acme", text: str = LETTER) -> int:
    """Say something in a conversation; return its seq."""
    chat = memory.conversation(name, project=project)
    chat.append("user", "Good morning, here is what I know.")
    return chat.append("user", text).seq


# What is found.


def test_what_was_said_in_another_conversation_of_the_project_is_shown(memory: Memory) -> None:
    seq = told(memory)
    memory.conversation("then").append("assistant", "Port 6432 of the staging database, noted.\nAnything else?")
    context = ask(memory)
    assert part_of(context) == (
        "## Earlier Messages\nSaid before, here or in other conversations of this project:\n\n"
        "Wed 2026-11-18:\n"
        "- user: The staging database listens on port 6432.\n"
        "- assistant: Port 6432 of the staging database, noted.\n  Anything else?"
    )
    assert context.seqs == (seq, seq + 1)
    assert context.parts[-1].tier == "volatile"


def test_without_a_query_the_newest_message_of_the_user_is_the_question(memory: Memory) -> None:
    told(memory)
    chat = memory.conversation("now", project="acme")
    chat.append("user", ASKED)
    chat.append("assistant", "I have to look that up.")
    assert "6432" in part_of(memory.context(chat))
    assert part_of(memory.context(chat, query=" ")) == ""


def test_what_left_the_window_is_shown_and_what_is_in_it_is_not(memory: Memory) -> None:
    chat = memory.conversation("long", project="acme", window_tokens=60)
    chat.append("user", LETTER, tokens=30)
    chat.append("user", ASKED, tokens=30)
    assert part_of(memory.context(chat, query=ASKED)) == ""
    chat.append("assistant", "I do not know the port of the staging database.", tokens=20)
    shown = part_of(memory.context(chat, query=ASKED))
    assert "6432" in shown
    assert "I do not know" not in shown


def test_no_message_of_another_project_or_of_none_is_shown(memory: Memory) -> None:
    told(memory, "elsewhere", "umbrella", f"{LETTER} Says umbrella.")
    told(memory, "alone", None, f"{LETTER} Says nobody.")
    told(memory, "default", "default", f"{LETTER} Says default.")
    assert part_of(ask(memory)) == ""
    assert part_of(ask(memory, "other", "umbrella")).count("6432") == 1
    # Without a project there is nobody to share it with: only those who chose the common project did.
    assert (
        part_of(ask(memory, "lonely", None)).count("Says") == part_of(ask(memory, "lonely", None)).count("default") == 1
    )
    chat = memory.conversation("alone", window_tokens=None)
    chat.clear_window()
    chat.append("user", ASKED)
    assert "Says nobody." in part_of(memory.context(chat, query=ASKED))


def test_a_context_for_another_project_has_its_messages_and_the_conversations_own(memory: Memory) -> None:
    told(memory, "elsewhere", "umbrella", f"{LETTER} Says umbrella.")
    told(memory, "beside", "acme", f"{LETTER} Says acme.")
    chat = memory.conversation("now", project="acme")
    chat.append("user", f"{LETTER} Say I.")
    chat.clear_window()
    chat.append("user", ASKED)
    shown = part_of(memory.context(chat, query=ASKED, project="umbrella"))
    assert "Says umbrella." in shown
    assert "Say I." in shown
    assert "Says acme." not in shown


def test_a_fork_sees_what_was_said_before_it_and_nothing_of_the_other_way(memory: Memory) -> None:
    main = memory.conversation("main", project="acme")
    before = main.append("user", f"{LETTER} Says the past.").seq
    main.clear_window()
    main.append("user", "Let us go on.")
    fork = main.fork("fork")
    main.append("user", f"{LETTER} Says the main line.")
    main.clear_window()
    fork.append("user", f"{LETTER} Says the fork.")
    fork.clear_window()
    twin = main.fork("twin", at=before)
    twin.clear_window()
    for chat, words in ((main, ["past", "main line"]), (fork, ["past", "fork"]), (twin, ["past"])):
        chat.append("user", ASKED)
        shown = part_of(memory.context(chat, query=ASKED))
        assert [word for word in ("past", "main line", "fork") if f"Says the {word}." in shown] == words
    assert part_of(ask(memory, "another")).count("Says") == 3
    fork.close(drop=True)
    assert "Says the fork." not in part_of(ask(memory, "later"))


@pytest.mark.parametrize(
    "asked",
    ["hi", "thanks, that looks great!", "yes, go on", "Where did my cousin plant the roses?", "port", "ok " * 4_000],
)
def test_small_talk_and_another_matter_bring_nothing(memory: Memory, asked: str) -> None:
    for number in range(30):
        told(memory, f"then {number}", text=f"{LETTER} Line {number}: restart the service before the backup.")
    assert part_of(ask(memory, asked=asked)) == ""


@pytest.mark.parametrize("asked", ["When do we paint?", "when do we paint", "And when is it that we paint again?"])
def test_a_question_of_one_word_is_answered_by_it(memory: Memory, asked: str) -> None:
    chat = memory.conversation("then", project="acme")
    chat.append("user", "We paint the kitchen in June.")
    chat.append("assistant", "I will remember that.")
    assert "in June" in part_of(ask(memory, asked=asked))
    for number in range(12):
        memory.conversation(f"asked {number}", project="acme").append("user", "When do we paint?")
    assert "in June" in part_of(ask(memory, "once more", asked=asked)), "what only asks makes no word common"
    assert part_of(ask(memory, "told", asked="We paint!")) == ""
    assert part_of(ask(memory, "other", asked="When do we sail?")) == ""


def test_a_question_of_one_word_that_many_messages_have_brings_the_best_few(memory: Memory) -> None:
    chat = memory.conversation("then", project="acme", window_tokens=None)
    counts = []
    for number in range(60):
        chat.append("user", f"We paint the long wall with number {number}, and the keeper counts the boats again.")
        counts.append(part_of(ask(memory, f"asked {number}", asked="When do we paint?")).count("wall"))
    assert counts == [*range(1, 11), *[8] * 50]
    shown = part_of(ask(memory, "at last", asked="When do we paint?"))
    assert [f"number {number}," in shown for number in (51, 52, 59)] == [False, True, True], "the newest of equals"
    assert part_of(ask(memory, "told", asked="We paint!")) == ""


def test_a_question_that_was_asked_before_comes_with_its_answer_alone(memory: Memory) -> None:
    chat = memory.conversation("then", project="acme")
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    asked = chat.append("user", "Which flour should I buy for baguettes?")
    chat.append("assistant", "Let me see.", tool_calls=[call])
    chat.append("tool", "T65", tool_call_id="c1")
    chat.append("assistant", "Take T65 from Shipton Mill.")
    chat.append("user", "How many cups of sugar for the brioche?")
    chat.append("assistant", "Three cups.")
    question = "Which flour did you recommend for baguettes?"
    lines = ["- user: Which flour should I buy for baguettes?", "- assistant: Take T65 from Shipton Mill."]
    context = ask(memory, "now", asked=question)
    assert part_of(context).splitlines()[4:] == lines
    assert memory.rebuild(memory.show(context)).matches
    single = memory.context(memory.conversation("now"), query=question, budget=ContextBudget(messages_count=1))
    assert part_of(single).splitlines()[4:] == [f"{lines[0]} (answered)"]
    chat.replace(asked, "Which flour would you buy for French baguettes?")
    shown = part_of(ask(memory, "replaced", asked="Which flour did you buy for French baguettes?"))
    assert "French" in shown
    assert "Three cups" not in shown


def test_an_answer_stands_below_its_own_question_when_two_are_asked_at_once(memory: Memory) -> None:
    one, two = (memory.conversation(name, project="acme") for name in ("one", "two"))
    one.append("user", "How many grams of yeast for the pizza dough?")
    two.append("user", "How many days may the pizza dough rest?")
    one.append("assistant", "Seven.")
    two.append("assistant", "Three.")
    one.append("assistant", "Of fresh yeast, for the dough.")
    context = ask(memory, asked="How many days did you say the pizza dough may rest?")
    assert part_of(context).splitlines()[4:] == [
        "- user: How many grams of yeast for the pizza dough?",
        "- assistant: Of fresh yeast, for the dough.",
        "- user: How many days may the pizza dough rest?",
        "- assistant: Three.",
    ]
    assert memory.rebuild(memory.show(context)).matches


def test_a_question_comes_with_the_newest_content_of_its_answer_and_of_its_own(memory: Memory) -> None:
    chat = memory.conversation("then", project="acme")
    asked, said = chat.append("user", "When does the gardener come?"), chat.append("assistant", "On Monday.")
    other = memory.conversation("other", project="acme")
    other.append("user", "When does the gardener get paid?")
    other.append("assistant", "In June.")
    for content in ("On Friday.", "On Tuesday."):
        chat.replace(said, content)
    before = memory.head
    query = "Which day did you say the gardener comes?"
    rest = ["- user: When does the gardener get paid?", "- assistant: In June."]
    lines = ["- user: When does the gardener come?", "- assistant: On Tuesday.", *rest]
    assert part_of(ask(memory, "first", asked=query)).splitlines()[4:] == lines
    chat.replace(asked, "When does the old gardener come?")
    context = ask(memory, "second", asked=query)
    lines = [*rest, "- user: When does the old gardener come?", "- assistant: On Tuesday."]
    assert part_of(context).splitlines()[4:] == lines
    assert memory.rebuild(memory.show(context)).matches
    past = memory.at(before)
    context = past.context(past.conversation("third", project="acme"), query=query)
    assert "- user: When does the gardener come?\n- assistant: On Tuesday." in part_of(context)


def test_a_long_answer_is_not_shown_for_its_question(memory: Memory) -> None:
    chat = memory.conversation("then", project="acme")
    chat.append("user", "Which flour should I buy for baguettes?")
    chat.append("assistant", "It depends on the mill of the country. " * 60)
    assert part_of(ask(memory, asked="Which flour did you recommend for baguettes?")).count("- ") == 1


def test_words_of_any_talk_do_not_answer_a_question(memory: Memory) -> None:
    told(memory, text="Good morning! What a nice day, thanks for the help with the work, let us talk again tomorrow.")
    for asked in ("Good morning, nice day!", "Thanks, that was a great help. Let us go on with the work tomorrow."):
        assert part_of(ask(memory, asked, asked=asked)) == ""


def test_neither_the_question_itself_nor_the_same_twice(memory: Memory) -> None:
    told(memory, "b")
    told(memory, "c")
    ask(memory, "asked before")
    assert part_of(ask(memory)).count("staging") == 1


def test_a_secret_is_masked_and_the_rest_of_its_message_shown(memory: Memory) -> None:
    told(memory, "first", text="The password of the staging database is 'old-secret'.")
    told(memory, "then", text="The new password of the staging database is 'hunter2222', and its port is 6432.")
    context = ask(memory, asked="What is the password of the staging database?")
    assert "old-secret" not in str(context.messages())
    assert "hunter2222" not in str(context.messages())
    assert "The new password of the staging database is '[a password, not shown]', and its port is 6432." in part_of(
        context
    )


def test_messages_of_tools_and_calls_without_words_are_not_shown(memory: Memory) -> None:
    chat = memory.conversation("then", project="acme")
    call = {"id": "c1", "type": "function", "function": {"name": "read", "arguments": '{"port": "staging database"}'}}
    chat.append("assistant", None, tool_calls=[call])
    chat.append("tool", "staging database port 6432", tool_call_id="c1")
    chat.append("system", "The staging database has port 6432.")
    assert part_of(ask(memory)) == ""


def test_what_came_as_bytes_from_another_memory_is_found_and_built_again(memory: Memory) -> None:
    with Memory() as other:
        chat = other.conversation("then")
        chat.append("user", "First of all, good morning.")
        chat.append("user", LETTER)
        packed = chat.snapshot().to_bytes()
    memory.conversation("then", project="acme").restore(Snapshot.from_bytes(packed))
    context = ask(memory)
    assert "6432" in part_of(context)
    assert memory.rebuild(memory.show(context)).matches


def test_what_a_restore_took_back_is_not_shown_until_another_brings_it_back(memory: Memory) -> None:
    chat = memory.conversation("then", project="acme")
    chat.append("user", f"{LETTER} Says the past.")
    before = chat.snapshot("before")
    whole = memory.snapshot("whole")
    chat.append("user", f"{LETTER} Says the undone.")
    memory.conversation("since", project="acme").append("user", f"{LETTER} Says what began since.")
    after = memory.snapshot("after")

    def said(name: str) -> list[str]:
        shown = part_of(ask(memory, name))
        return [word for word in ("past", "undone", "what began since", "anew") if f"Says the {word}." in shown] + (
            ["since"] if "Says what began since." in shown else []
        )

    assert said("a") == ["past", "undone", "since"]
    memory.restore(whole)
    assert said("b") == ["past"]
    chat.append("user", f"{LETTER} Says the anew.")
    assert said("c") == ["past", "anew"]
    memory.restore(after)
    assert said("d") == ["past", "undone", "since"]
    chat.restore(before)
    assert said("e") == ["past", "since"]
    chat.clear_window()
    chat.append("user", ASKED)
    own = part_of(memory.context(chat, query=ASKED))
    assert ("Says the past." in own, "Says the undone." in own) == (True, False)
    assert [message.content for message in chat.history()][1] == f"{LETTER} Says the undone.", "history stays"
    assert memory.search_messages("undone")


def test_a_conversation_that_went_on_from_bytes_does_not_show_what_it_had(memory: Memory) -> None:
    with Memory() as other:
        other.conversation("chat").append("user", f"{LETTER} From elsewhere.")
        packed = other.conversation("chat").snapshot().to_bytes()
    chat = memory.conversation("then", project="acme")
    chat.append("user", f"{LETTER} Said here.")
    chat.restore(Snapshot.from_bytes(packed))
    shown = part_of(ask(memory))
    assert ("From elsewhere." in shown, "Said here." in shown) == (True, False)


def test_a_fork_keeps_what_its_dropped_or_replaced_origin_had(memory: Memory) -> None:
    for name, replaces in (("dropped", False), ("replaced", True)):
        origin = memory.conversation(name, project="acme")
        before = origin.append("user", f"{LETTER} Says {name}.").seq
        origin.append("user", f"{LETTER} Not {name}.")
        fork = origin.fork(f"fork of {name}", at=before)
        if replaces:
            fork.append("user", f"{LETTER} Anew {name}.")
            fork.fork(name, replace=True)
            memory.conversation(f"fork of {name}").drop()
        else:
            origin.drop()
    context = ask(memory)
    words = ["Says dropped.", "Not dropped.", "Says replaced.", "Not replaced.", "Anew replaced."]
    expected = ["Says dropped.", "Says replaced.", "Anew replaced."]
    assert [word for word in words if word in part_of(context)] == expected
    found = [str(hit.entry.content) for hit in memory.search_messages("staging port 6432")]
    assert sorted(text.removeprefix(f"{LETTER} ") for text in found if text != ASKED) == sorted(expected)
    memory.conversation("fork of dropped").drop()
    assert "Says dropped." not in part_of(ask(memory, "later"))
    assert not [hit for hit in memory.search_messages("dropped") if "dropped" in str(hit.entry.content)]


def test_the_messages_of_a_fork_of_the_memory_are_shown_as_far_as_they_are_common(memory: Memory) -> None:
    chat = memory.conversation("then", project="acme")
    chat.append("user", f"{LETTER} Says the past.")
    other = memory.fork("other")
    chat.append("user", f"{LETTER} Says the main line.")
    other.conversation("then").append("user", f"{LETTER} Says the other.")
    memory.restore(other.snapshot())
    shown = part_of(ask(memory))
    assert ("Says the past." in shown, "Says the main line." in shown) == (True, False)


# Budgets and switches.


def test_a_setting_and_a_budget_turn_it_off(memory: Memory) -> None:
    for number in range(5):
        told(memory, f"then {number}", text=f"{LETTER} {number}")
    chat = memory.conversation("now", project="acme")
    chat.append("user", ASKED)
    for off in (ContextBudget(messages_count=0), ContextBudget(messages_chars=0)):
        assert part_of(memory.context(chat, query=ASKED, budget=off)) == ""
    assert len(memory.context(chat, query=ASKED, budget=ContextBudget(messages_count=2)).seqs) == 2
    memory.settings.set("messages_max_injected", 3)
    assert len(memory.context(chat, query=ASKED).seqs) == 3
    memory.settings.set("messages_max_injected", 0)
    assert part_of(memory.context(chat, query=ASKED)) == ""
    memory.settings.set("messages_max_injected", 3)
    memory.settings.set("memory_enabled", value=False)
    assert part_of(memory.context(chat, query=ASKED)) == ""


def test_what_does_not_fit_is_counted_and_the_best_stay(memory: Memory) -> None:
    best = told(memory)
    for number in range(20):
        told(memory, f"then {number}", text=f"Port {number} of some database is a matter of its own. {'word ' * 30}")
    chat = memory.conversation("now", project="acme")
    chat.append("user", ASKED)
    context = memory.context(chat, query=ASKED, budget=400)
    assert context.tokens <= 400
    assert best in context.seqs
    left_out = context.left_out["messages"]
    assert part_of(context).endswith(f"\n({left_out} less relevant messages left out)")
    assert left_out + len(context.seqs) == 21
    assert memory.rebuild(memory.show(context)).matches


def test_memories_and_messages_share_what_there_is(memory: Memory) -> None:
    project = memory.project("acme")
    for number in range(60):
        project.add(f"Fact {number}: the staging database number {number} is backed up at night, {number * 31} times.")
        told(
            memory,
            f"then {number}",
            text=f"My staging database {number} has the port {number}, as all of us here have known for a long time.",
        )
    chat = memory.conversation("now", project="acme")
    chat.append("user", ASKED)
    for tokens in (600, 1_200, 2_400):
        context = memory.context(chat, query=ASKED, budget=tokens)
        sizes = {part.name: part.tokens for part in context.parts}
        assert tokens == 2_400 or 0.2 < sizes["messages"] / sizes["memories"] < 0.5
        assert 0.95 * tokens < context.tokens <= tokens
    alone = memory.context(chat, query=ASKED, budget=ContextBudget(tokens=1_200, memories_count=0))
    assert alone.tokens > 1_000
    without = memory.context(chat, query=ASKED, budget=ContextBudget(tokens=1_200, messages_count=0))
    assert without.tokens > 1_000


def test_short_texts_go_before_long_ones_of_about_their_rank(memory: Memory) -> None:
    project = memory.project("acme")
    for number in range(4):
        long = number % 2
        project.add(f"Staging database {number} has a port. {'Tell the team what it is for. ' * (20 * long)}")
        told(
            memory,
            f"then {number}",
            text=f"Of staging database {number} the port is known. {'So I heard. ' * (40 * long)}",
        )
    whole = ask(memory)
    assert (len(whole.ids), len(whole.seqs)) == (4, 4)
    small = memory.context(memory.conversation("now"), query=ASKED, budget=250)
    assert set(small.ids) == {entry.id for entry in project.list() if len(entry.content) < 100}
    assert len(small.seqs) == 2
    assert "So I heard" not in part_of(small)


def test_beside_a_message_that_answers_one_word_is_enough(memory: Memory) -> None:
    told(memory, "other", text="The replica of the staging area is in Bern.")
    assert part_of(ask(memory, "before")) == "", "alone it answers nothing"
    told(memory)
    assert "in Bern" in part_of(ask(memory))


def test_what_a_shown_memory_says_needs_no_message(memory: Memory) -> None:
    entry = memory.project("acme").add("The staging database listens on port 6432.")
    chat = memory.conversation("now", project="acme")
    chat.append("user", ASKED)
    memory.show(memory.context(chat, query=ASKED))
    told(memory, text=f"By the way: {LETTER} Note it.")
    context = memory.context(chat, query=ASKED)
    assert entry.id in context.ids, "the prefix does not change because of a message"
    assert "By the way" in part_of(context)
    told(memory, "asked for", text=f"Please remember that: {LETTER}")
    assert part_of(memory.context(chat, query=ASKED)).count("\n- ") == 1


@pytest.mark.parametrize(
    ("role", "text", "category", "is_fact", "is_quoted"),
    [
        ("user", f"Please remember that: {LETTER}", "fact", True, True),
        ("user", LETTER, "fact", False, True),
        ("user", f"By the way, I was told: {LETTER} Note it.", "fact", False, True),
        ("user", f"By the way, I was told: {LETTER} Note it.", "preference", True, True),
        ("assistant", f"I was not sure, and looked again: {LETTER} So you said.", "fact", True, True),
    ],
)
def test_a_fact_stands_beside_the_messages_that_quote_it(
    memory: Memory, role: str, text: str, category: str, *, is_fact: bool, is_quoted: bool
) -> None:
    entry = memory.project("acme").add(LETTER, category=category)
    memory.conversation("then", project="acme").append(role, text)
    context = ask(memory)
    assert (context.ids == (entry.id,), "messages" in [part.name for part in context.parts]) == (is_fact, is_quoted)


# What was shown.


def test_what_a_user_took_back_is_not_shown_again(memory: Memory) -> None:
    """Neither the message that told it, nor its answer, nor the request to forget it."""
    chat, project = memory.conversation("then", project="acme"), memory.project("acme")
    told = chat.append("user", LETTER)
    chat.append("assistant", "Noted: the staging database listens on port 6432.")
    entry = project.add("Staging listens on port 6432", sources=[told])
    asked = chat.append("user", "Forget that the staging database listens on port 6432.")
    assert part_of(ask(memory, "before")).count("6432") == 3
    before = memory.head
    project.delete(entry.id, sources=[asked])
    assert "6432" not in part_of(ask(memory, "after"))
    assert part_of(memory.context(memory.conversation("before").at(before), query=ASKED)).count("6432") == 3
    memory.restore(memory.at(before).snapshot())
    assert "6432" in part_of(ask(memory, "restored"))


@pytest.mark.parametrize(
    ("asked", "answer", "is_hidden"),
    [
        ("What do I like to drink?", "You like green tea most.", True),
        ("What do I like to drink?", "Green tea!", True),
        ("What do I drink?", "Your drink is green tea.", True),
        ("Do I like green tea?", "Yes, you like green tea.", True),
        ("What do I like to drink?", "You like black tea most.", False),
        ("What do I like to drink?", "Green tea. Your dentist is Doctor Weber.", True),
        ("What do you know?", "Your dentist is Doctor Weber.\n- You like green tea\n- You have a cat", True),
        ("Where can I go?", "You like green tea, so try the shop in Graz.", True),
        ("Where can I go?", "Try the shop in Graz; you like green tea.", True),
        ("Where can I go?", "Try the shop in Graz: it sells green tea.", False),
        ("Where can I go?", "The shop in Graz sells black tea, green tea, and coffee.", False),
        ("Do I like green tea?", "You do not like green tea; you like coffee.", False),
        ("Do I like green tea?", "No, you do not like green tea.", False),
        ("I like green tea. Where is the tea shop?", "The tea shop is in Graz.", False),
        ("What did I eat in Rome?", "Pasta.", False),
    ],
)
@pytest.mark.parametrize("query", ["What do you know about me?", "What did we talk about last time?"])
def test_what_repeats_a_forgotten_statement_is_not_shown(
    memory: Memory, asked: str, answer: str, query: str, *, is_hidden: bool
) -> None:
    remember = memory.conversation("s1", project="acme").append("user", "Remember that I like green tea.")
    entry = memory.project("acme").add("I like green tea", sources=[remember])
    chat = memory.conversation("s2", project="acme")
    chat.append("user", asked)
    chat.append("assistant", answer)
    question = chat.append("user", "My cat is Tom.")
    memory.project("acme").record_episode(
        "success",
        session="s2",
        task="My cat is Tom.",
        outcome=answer,
        approach="",
        tools=(),
        keywords=(),
        sources=[question, question.seq - 1],
    )
    before = memory.head
    memory.project("acme").delete(
        entry, sources=[memory.conversation("s3", project="acme").append("user", "Forget it.")]
    )

    def text_at(seq: int | None = None) -> str:
        here = memory if seq is None else memory.at(seq)
        text = here.context(here.conversation("now", project="acme"), query=query).text
        return " ".join(str(text).split())

    answer = " ".join(answer.split())
    assert answer in text_at(before)
    assert (answer in text_at()) is not is_hidden
    assert "My cat is Tom." in text_at() or is_hidden
    if is_hidden:
        assert asked not in text_at()
        memory.project("acme").add("User drinks tea: green tea", sources=[question])
        assert answer in text_at(), "a fact that holds says it, too"


@pytest.mark.parametrize(("asker", "is_hidden"), [("anna", False), ("bob", True), (None, True)])
def test_what_one_user_had_forgotten_of_themselves_hides_no_answer_to_another(
    memory: Memory, asker: str | None, *, is_hidden: bool
) -> None:
    own, other = memory.conversation("own", project="acme"), memory.conversation("other", project="acme")
    memory.profile("bob").set("city", "Bern", sources=[own.append("user", "I live in Bern.", name="bob")])
    other.append("user", "Where do I live and when does the ferry leave?", name=asker)
    other.append("assistant", "You live in Bern. The ferry to Thun leaves from pier 4.")
    memory.profile("bob").delete("city", sources=[own.append("user", "Forget that I live in Bern.", name="bob")])
    now = memory.conversation("now", project="acme")
    assert ("pier 4" in memory.context(now, query="From which pier does the ferry leave?").text) is not is_hidden


@pytest.mark.parametrize(
    ("answer", "is_hidden"),
    [
        ("Anna, the dentist opens at 9:30. Anything else, Anna?", False),
        ("Hi Anna! The dentist opens at 9:30.", False),
        ("The dentist opens at 9:30. Good night, Anna.", False),
        ("You are Anna. The dentist opens at 9:30.", True),
        ("Your name is Anna; the dentist opens at 9:30.", True),
    ],
)
def test_an_answer_that_calls_the_user_by_a_forgotten_name_says_no_forgotten_fact(
    memory: Memory, answer: str, *, is_hidden: bool
) -> None:
    chat = memory.conversation("then", project="acme")
    memory.profile().set("name", "Anna", sources=[chat.append("user", "My name is Anna.")])
    chat.append("user", "When does the dentist open?")
    chat.append("assistant", answer)
    memory.profile().delete("name", sources=[chat.append("user", "Forget that my name is Anna.")])
    now = memory.conversation("now", project="acme")
    assert ("9:30" in memory.context(now, query="When does the dentist open?").text) is not is_hidden


def test_thousands_of_cleared_facts_slow_no_context(memory: Memory) -> None:
    chat, project, count = memory.conversation("then", project="acme"), memory.project("acme"), 1_500
    with memory.batch():
        asked = [chat.append("user", f"The server rack{each} runs job{each}.") for each in range(count)]
    with memory.batch():
        for each in range(count):
            project.add(f"The server rack{each} runs job{each}", sources=[asked[each]])
    for part in range(40):
        chat.append("user", f"Tell me about the server cluster part{part}?")
        chat.append(
            "assistant", " ".join(f"The server node{node} of part{part} has load {node}." for node in range(100))
        )
    before, seconds = memory.head, list[float]()
    project.clear()
    question = "What load has the server node of part3 in the cluster?"
    for at in (memory.at(before), memory):
        now = at.conversation("now", project="acme")
        at.context(now, query=question)
        begin = time.process_time()
        at.context(now, query=question)
        seconds.append(time.process_time() - begin)
    assert seconds[1] < 4 * seconds[0] + 0.2, seconds


def test_what_is_said_again_after_it_was_forgotten_or_in_another_project_stays(memory: Memory) -> None:
    def talk(project: str, name: str) -> None:
        chat = memory.conversation(name, project=project)
        chat.append("user", "What do I like to drink?")
        chat.append("assistant", "You like green tea most.")

    remember = memory.conversation("s1", project="acme").append("user", "Remember that I like green tea.")
    entry = memory.project("acme").add("I like green tea", sources=[remember])
    talk("other", "elsewhere")
    talk("acme", "before")
    memory.project("acme").delete(entry, sources=[remember])
    for project, shown in (("other", True), ("acme", False)):
        text = memory.context(memory.conversation(f"in {project}", project=project), query="What do I drink?").text
        assert ("green tea" in text) is shown, project
    talk("acme", "after")
    assert "green tea" in memory.context(memory.conversation("now", project="acme"), query="What do I drink?").text


def test_a_message_stays_while_something_that_it_told_is_known(memory: Memory) -> None:
    chat, profile = memory.conversation("then", project="acme"), memory.profile("default")
    told = chat.append("user", "The staging database listens on port 6432 and Ada runs it.")
    profile.set("port", "6432", sources=[told])
    profile.set("operator", "Ada", sources=[told])
    profile.delete("port")
    assert "6432" in part_of(ask(memory, "half"))
    profile.delete("operator")
    assert part_of(ask(memory, "whole")) == ""
    memory.conversation("then").append("user", LETTER)
    assert part_of(ask(memory, "again")).count("6432") == 1


def test_a_fact_read_from_a_page_is_one_of_the_message_that_it_quotes(memory: Memory) -> None:
    chat, project = memory.conversation("then", project="acme"), memory.project("acme")
    page = [chat.append("user", text) for text in (LETTER, "The staging database has a replica in Bern.")]
    for number, message in enumerate(page):
        project.add(f"Staging: {number}", sources=page, source_context=f"user: {message.content}")
    project.delete(project.search("Staging: 0").hits[0].entry.id)
    shown = part_of(ask(memory, "one", asked="Which port and which replica does the staging database have?"))
    assert "6432" not in shown
    assert "replica in Bern" in shown
    project.clear()
    assert "replica in Bern" not in part_of(ask(memory, "none", asked="Which replica does the staging database have?"))


def test_what_was_shown_is_recorded_built_again_and_erased(memory: Memory) -> None:
    first, second = told(memory), told(memory, "second", text=f"{LETTER} Or was it 7432?")
    context = ask(memory)
    assert context.seqs == (first, second)
    shown = memory.show(context)
    event = next(event for event, stamp in memory.events(after=shown - 1) if isinstance(event, ContextShown))
    assert event.sources[-2:] == (first, second)
    told(memory, "third")
    rebuilt = memory.rebuild(shown)
    assert (rebuilt.matches, rebuilt.context.seqs) == (True, (first, second))
    assert rebuilt.context.messages() == context.messages()
    receipt = memory.erase([second])
    assert receipt.derived == (shown, shown + 1)
    with pytest.raises(NotFound):
        memory.rebuild(shown)
    assert "7432" not in ask(memory, "after").text
    memory.conversation("then").erase()
    memory.conversation("third").erase()
    assert part_of(ask(memory, "at last")) == ""
    assert_sound(memory)


def test_a_part_of_which_a_message_was_erased_differs(memory: Memory) -> None:
    seq = told(memory)
    told(memory, "second", text=f"{LETTER} Or was it 7432?")
    shown = memory.show(ask(memory))
    memory.erase([seq], derived="keep")
    rebuilt = memory.rebuild(shown)
    assert (rebuilt.matches, rebuilt.differing) == (False, ("messages",))


def test_a_context_of_the_past_knows_nothing_of_what_came_later(memory: Memory) -> None:
    told(memory)
    chat = memory.conversation("now", project="acme")
    chat.append("user", ASKED)
    head = memory.head
    before = memory.context(chat, query=ASKED)
    told(memory, "later", text=f"{LETTER} Said later.")
    assert memory.context(chat.at(head), query=ASKED).parts == before.parts
    assert "Said later." in part_of(memory.context(chat, query=ASKED))


def test_only_the_newest_events_are_looked_at_and_no_earlier_search_shows(tmp_path: Path) -> None:
    with lowered(EARLIER_EVENTS_COUNT=12), remembering(tmp_path / "store") as memory:
        warm = list[Context]()
        for number in range(20):
            told(memory, f"then {number % 3}", text=f"{LETTER} Number {number}.")
            asking = memory.conversation(f"asked {number}", project="acme")
            asking.append("user", ASKED)
            warm.append(memory.context(asking, query=ASKED))
        heads = [context.seq for context in warm]
        for context, seq in zip(warm, heads, strict=True):
            assert all(seq - 12 < each <= seq for each in context.seqs)
            assert context.seqs
        with Memory(tmp_path / "copy") as copy:
            memory.export(tmp_path / "export.jsonl")
            copy.load(tmp_path / "export.jsonl")
            for number in (19, 7, 13):
                again = copy.context(copy.conversation(f"asked {number}").at(heads[number]), query=ASKED)
                assert again.parts == warm[number].parts, "a cold search finds what a warm one does"


def test_what_others_write_makes_nothing_of_a_project_forgotten(tmp_path: Path) -> None:
    with lowered(EARLIER_MESSAGES_COUNT=5), remembering(tmp_path / "store") as memory:
        seq = told(memory)
        for number in range(30):
            memory.conversation("others", project="umbrella").append("user", f"Parcel {number} left the depot.")
            memory.table("metrics").put(f"k{number}", number)
            memory.project("umbrella").add(f"Parcel {number} left the depot of Mainz.")
        assert ask(memory).seqs == (seq,)
    with lowered(EARLIER_MESSAGES_COUNT=5), Memory(tmp_path / "store") as memory:
        assert ask(memory, "after opening").seqs == (seq,)


def test_the_newest_messages_of_a_project_are_searched_whatever_was_searched_before(tmp_path: Path) -> None:
    with lowered(EARLIER_MESSAGES_COUNT=6), Memory(tmp_path / "store") as memory:
        warm: list[tuple[str, int, Context]] = []
        chats = [memory.conversation(name, project="acme") for name in ("a", "b")]
        for number in range(20):
            message = chats[number % 2].append("user", f"{LETTER} Number {number}.")
            memory.conversation("others", project="umbrella").append("user", LETTER)
            if number == 12:
                chats[0].replace(message, f"{LETTER} Number twelve.")
            chat = memory.conversation(f"asks {number}", project="umbrella")
            context = memory.context(chat, query=ASKED, project="acme")
            newest = sorted(each.seq for chat in chats for each in chat.history())[-6:]
            assert context.seqs, number
            assert all(seq >= newest[0] for seq in context.seqs)
            warm.append((chat.id, memory.head, context))
    for name, head, context in (warm[19], warm[7], warm[13]):
        with lowered(EARLIER_MESSAGES_COUNT=6), Memory(tmp_path / "store") as memory:
            again = memory.context(memory.conversation(name).at(head), query=ASKED, project="acme")
            assert again.parts == context.parts, "a cold search finds what a warm one does"


def test_a_first_search_decodes_what_it_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Memory(tmp_path / "store") as memory:
        seq = told(memory)
        for _ in range(10):
            with memory.batch():
                for number in range(200):
                    memory.conversation("others", project="umbrella").append("user", f"Parcel {number} left.")
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("now", project="acme")
        decoded, found = list[int](), Loader.recorded_events

        def counting(loader: Loader, seqs: Sequence[int]) -> list[Recorded]:
            decoded.extend(seqs)
            return found(loader, seqs)

        monkeypatch.setattr(Loader, "recorded_events", counting)
        assert memory.context(chat, query=ASKED).seqs == (seq,)
        assert len(decoded) < 100, "of 2,000 events"


def test_a_conversation_that_began_long_ago_stays_in_its_project(memory: Memory) -> None:
    with lowered(EARLIER_EVENTS_COUNT=8):
        for name, project in (("a", "acme"), ("b", "umbrella"), ("c", None)):
            memory.conversation(name, project=project).append("user", "Good morning.")
        fork = memory.conversation("a").fork("f")
        for number in range(10):
            memory.profile().set("k", str(number))
        for name in "abc":
            memory.conversation(name).append("user", f"{LETTER} Says {name}.")
        fork.append("user", f"{LETTER} Says f.")
        shown = part_of(ask(memory))
        assert [name for name in "abcf" if f"Says {name}." in shown] == ["a", "f"]


def test_days_are_those_of_the_time_zone_in_which_it_was_said_wherever_it_is_read(tmp_path: Path) -> None:
    clock = Clock(1_764_000_000_000_000_000)
    with Memory(tmp_path / "store", clock_ns=clock, timezone="Asia/Tokyo") as memory:
        told(memory, "a")
        clock.advance(86_400)
        told(memory, "b", text=f"{LETTER} Still.")
        context = ask(memory)
        shown = memory.show(context)
    assert [line for line in part_of(context).splitlines() if line[4:].startswith("2025-")] == [
        "Tue 2025-11-25:",
        "Wed 2025-11-26:",
    ]
    with Memory(tmp_path / "store", timezone="America/New_York") as memory:
        assert memory.rebuild(shown).matches


class Synonyms:
    """An embedder that knows which words mean the same."""

    id, dim = "synonyms", 8

    def embed(self, texts: Sequence[str]) -> list[list[float]]:
        axes = (("car", "vehicle", "corolla"), ("weather", "walk"), ("bought", "purchase"))
        return [
            [0.05 + any(word in text.lower() for word in axis) for axis in axes] + [0.05] * (self.dim - len(axes))
            for text in texts
        ]


def test_an_embedded_message_is_found_by_its_meaning() -> None:
    with Memory(embedder=Synonyms()) as memory:
        chat = memory.conversation("then", project="acme", embed=True)
        said = chat.append("user", "Yesterday we bought a Corolla from Mr. Tanaka.")
        for number in range(60):
            chat.append("user", f"We went for a long walk in fine weather, number {number}.")
        question = "Which vehicle did I purchase?"
        while chat.search(question).pending:
            time.sleep(0.01)
        context = memory.context(memory.conversation("now", project="acme", embed=True), query=question)
        assert "Corolla" in part_of(context)
        assert part_of(memory.context(memory.conversation("plain", project="acme"), query=question)) == ""
        shown = memory.show(context)
        assert memory.rebuild(shown).matches
        assert "shows" in str(memory.why(said, missing_from=shown)).splitlines()[-1]


def test_a_chain_of_forks_is_walked_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked = list[int]()

    def counted(link: Link) -> int:
        looked.append(link.seq)
        return link.seq

    monkeypatch.setattr("refold.memory.lineage._seq_of", counted)
    counts = list[int]()
    for depth in (100, 200):
        with Memory() as memory:
            chat = memory.conversation("first", project="acme")
            chat.append("user", LETTER)
            for number in range(depth):
                chat = chat.fork(f"fork {number}")
                chat.append("user", f"Note {number}.")
            assert "6432" in part_of(ask(memory))
            looked.clear()
            assert "6432" in part_of(ask(memory))
            counts.append(len(looked))
    assert 0 < counts[1] < 3 * counts[0]
