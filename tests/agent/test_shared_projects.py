"""Projects that several users share: contexts say which of them said what, and those of one user name nobody."""

import json
from typing import Any

import pytest

from refold import Conversation, InvalidInput, Memory
from refold.agent import AgentLoop, Call, ContextBudget, Reply, default_hooks, extract
from refold.agent.providers import JsonResult
from refold.views.session import ContextShown
from tests.agent.test_loop import Script
from tests.support.memories import Clock

PARTS = ("memories", "messages", "episodes")


class Shared:
    """A project in which several users ask; it says what the model was shown besides the window."""

    def __init__(self, memory: Memory) -> None:
        self.memory, self.model, self.count = memory, Script(*[Reply("Noted.")] * 20), 0
        default_hooks(memory)

    def ask(self, text: str, user: dict[str, Any] | None = None, *, success: bool = True) -> str:
        self.count += 1
        chat = self.memory.conversation(f"s{self.count}", project="acme")
        loop = AgentLoop(self.memory, chat, self.model, **(user or {}))
        loop.run(text)
        loop.end(success=success)
        seq = next(stamp.seq for event, stamp in chat.events() if isinstance(event, ContextShown))
        rebuilt = self.memory.rebuild(seq)
        assert rebuilt.matches
        return "\n".join(part.text for part in rebuilt.context.parts if part.name in PARTS)


def test_a_context_says_which_of_the_users_of_a_project_said_what(memory: Memory) -> None:
    shared = Shared(memory)
    ann, bob = {"profile": "ann", "journal": "ann", "files": "ann"}, {"user_name": "Bob"}
    shared.ask("I am the designer, and allergic to nuts.", ann)
    shared.ask("Remember that I want all mails signed with 'Best, Ann'.", ann)
    shown = shared.ask("Which food should a designer who is allergic to nuts avoid?", bob)
    assert "- [PREF] ann said: I want all mails signed with 'Best, Ann'" in shown
    assert "- user ann: I am the designer, and allergic to nuts." in shown
    assert shared.model.asked[-1][-1]["name"] == "Bob"
    own = shared.ask("Which food should a designer who is allergic to nuts avoid?", ann)
    assert "- [PREF] I want all mails" in own
    assert "- user: I am the designer" in own
    assert "ann" not in own
    shared.ask("Remember that I want all mails signed with 'Best, Ann'.", bob)
    assert [entry.metadata for entry in memory.project("acme").list()] == [{"said_by": "ann"}, {"said_by": "Bob"}]
    other = shared.ask("Which mails?", {"user_name": "Cy"})
    assert "ann said: I want all mails" in other
    assert "Bob said: I want all mails" in other


def test_a_past_session_of_another_user_has_their_name(memory: Memory) -> None:
    shared = Shared(memory)
    shared.model = Script(Reply("The deploy runs on Fridays at noon."), Reply("?"), Reply("?"))
    shared.ask("Schedule the staging deploy of the billing service.", {"user_name": "ann"}, success=False)
    question = "When is the staging deploy of the billing service scheduled?"
    assert "[failure] ann began with: Schedule the staging deploy" in shared.ask(question, {"user_name": "bob"})
    assert "[failure] began with: Schedule the staging deploy" in shared.ask(question, {"user_name": "ann"})


def test_what_one_user_is_shown_has_no_names() -> None:
    texts = "I am allergic to nuts.", "Remember that I love Porto.", "Am I allergic to nuts?", "Which city do I love?"
    with Memory(clock_ns=Clock()) as memory, Memory(clock_ns=Clock()) as other:
        plain, named = Shared(memory), Shared(other)
        assert [plain.ask(text) for text in texts] == [named.ask(text, {"profile": "ann"}) for text in texts]
    asked = [message for messages in plain.model.asked for message in messages]
    assert all("name" not in message for message in asked)


def said(memory: Memory) -> list[tuple[str, str | None]]:
    return [(entry.content, entry.speaker) for entry in memory.project("acme").list()]


def test_a_user_has_only_their_own_words_forgotten(memory: Memory) -> None:
    shared = Shared(memory)
    ann, bob = {"user_name": "ann"}, {"user_name": "bob"}
    for user in (ann, bob):
        shared.ask("Remember that I like tea.", user)
    shared.ask("Remember that my badge number is 4711.", ann)
    memory.project("acme").add("The office is in Graz.")
    assert said(memory)[:2] == [("I like tea", "ann"), ("I like tea", "bob")]
    shared.ask("Forget that I like tea.", bob)
    shared.ask("Forget about my badge number.", bob)
    shared.ask("Forget about the office in Graz.", bob)
    shared.ask("Forget that I like tea.")
    assert said(memory) == [("I like tea", "ann"), ("my badge number is 4711", "ann")]
    shared.ask("Forget that I like tea.", ann)
    assert said(memory) == [("my badge number is 4711", "ann")]


@pytest.mark.parametrize("leaving", ["ann", "bob"])
def test_the_erasure_of_a_user_leaves_what_another_one_said_too(memory: Memory, leaving: str) -> None:
    shared = Shared(memory)
    for number, name in ((1, "ann"), (2, "bob")):
        shared.ask("Remember that I like tea.", {"user_name": name})
        assert len(said(memory)) == number
    memory.conversation({"ann": "s1", "bob": "s2"}[leaving]).erase()
    (stays,) = {"ann", "bob"} - {leaving}
    assert said(memory) == [("I like tea", stays)]
    assert f"{stays} said: I like tea" in shared.ask("What do I like?", {"user_name": "carol"})


def test_similar_words_of_two_users_are_never_merged(memory: Memory) -> None:
    project = memory.project("acme")
    for name in ("ann", "bob"):
        project.upsert("Deploys happen on Fridays at noon", metadata={"said_by": name})
        project.upsert("Deploys happen on Fridays at noon.", metadata={"said_by": name})
    assert [entry.speaker for entry in project.list()] == ["ann", "bob"]
    project.compact(threshold=0.5)
    assert [entry.speaker for entry in project.list()] == ["ann", "bob"]
    assert project.add("Deploys happen on Fridays at noon", metadata={"said_by": "bob"}).id == project.list()[1].id


class Learner:
    """A model that learns what it is given, and keeps the question."""

    id = "fake:1"

    def __init__(self, *contents: str, replaces: int = 0) -> None:
        self.contents, self.replaces, self.asked = contents, replaces, ""

    def complete_json(self, messages: Any, *_: Any, **__: Any) -> JsonResult:
        self.asked = messages[0]["content"]
        fields = {"category": "fact", "keywords": ["it"], "importance": 0.9, "replaces": self.replaces}
        return JsonResult({"memories": [{"content": content, **fields} for content in self.contents]})


def test_what_is_learned_has_the_name_of_the_user_who_said_it(memory: Memory) -> None:
    for number, name in enumerate(("ann", "bob")):
        chat = memory.conversation(name, project="acme")
        chat.append("user", "I am allergic to nuts.", name=name)
        chat.append("assistant", "Noted.")
        learner = Learner("User is allergic to nuts")
        assert len(extract(chat, learner, memory=memory).ids) == 1
        assert f"user ({name}): I am allergic to nuts." in learner.asked
        assert ("ann said: User is allergic" in learner.asked) == bool(number)
    assert said(memory) == [("User is allergic to nuts", "ann"), ("User is allergic to nuts", "bob")]
    chat.append("user", "Nuts are fine for me now.", name="bob")
    extract(chat, Learner("User may eat nuts", replaces=1), memory=memory)
    assert said(memory)[0] == ("User is allergic to nuts", "ann")  # Bob's words change nothing of Ann's.
    assert said(memory)[2] == ("User may eat nuts", "bob")


def test_of_several_users_in_a_page_the_one_who_said_it_is_named(memory: Memory) -> None:
    room = memory.conversation("room", project="acme")
    room.append("user", "I am allergic to nuts.", name="ann")
    room.append("user", "My badge has the number 4711.", name="Bob Lee")
    room.append("assistant", "Badge 4711 opens the cellar.")
    learner = Learner("ann is allergic to nuts", "Bob Lee has the badge 4711", "The badge 4711 opens the cellar")
    extract(room, learner, memory=memory)
    assert [name for _, name in said(memory)] == ["ann", "Bob Lee", "Bob Lee"]
    assert 'user ("Bob Lee"): My badge' in learner.asked
    assert "several users speak here" in learner.asked


def test_what_a_model_repeats_of_another_user_is_not_learned_of_the_one_who_asks(memory: Memory) -> None:
    shared = Shared(memory)
    default_hooks(memory, provider=(learner := Learner("User is allergic to nuts")))
    memory.project("acme").add("User is allergic to nuts", metadata={"said_by": "ann"})
    shared.model = Script(Reply("Nuts: ann is a user who is allergic to nuts."))
    shared.ask("What should the cake not have?", {"user_name": "bob"})
    assert learner.asked
    assert said(memory) == [("User is allergic to nuts", "ann")]


def test_what_the_model_notes_has_the_name_of_the_user_and_others_cannot_change_it(memory: Memory) -> None:
    def call(tool: str, **arguments: str) -> Reply:
        return Reply(None, (Call("1", tool, json.dumps(arguments)),))

    shared = Shared(memory)
    shared.model = Script(call("memory_add", content="The user prefers vim."), Reply("Noted."))
    shared.ask("I prefer vim.", {"profile": "ann"})
    assert said(memory) == [("The user prefers vim.", "ann")]
    note = memory.project("acme").list()[0].id
    tries = (
        call("memory_forget", id=note),
        call("memory_update", id=note, content="x"),
        call("memory_search", query="vim"),
    )
    shared.model = Script(*tries, Reply("No."))
    shared.ask("Which editor do I prefer?", {"user_name": "bob"})
    assert "- [FACT] ann said: The user prefers vim." in str(shared.model.asked[0])
    results = [message["content"] for message in shared.model.asked[-1] if message["role"] == "tool"]
    assert ["who is not the user" in result for result in results] == [True, True, False]
    assert json.loads(results[2])["memories"][0]["said_by"] == "ann"
    assert said(memory) == [("The user prefers vim.", "ann")]


def test_who_asks_about_themselves_is_shown_their_own_words(memory: Memory) -> None:
    shared = Shared(memory)
    shared.ask("I am allergic to penicillin and I live in Graz.", {"user_name": "bob"})
    shared.ask("Remember that my lucky colour is mauve.", {"user_name": "ann"})
    other = memory.conversation("other", project="acme")
    for number in range(60):
        box = other.append("user", f"I moved box {number} to shelf {number} because the old one was wet.", name="ann")
    for question in ("What do you know about me?", "Who am I?", "What did we talk about last time?"):
        shown = shared.ask(question, {"user_name": "bob"})
        assert "penicillin" in shown, question
        assert "user ann" not in shown, question
        assert "ann began with" not in shown, question
    (seq,) = [stamp.seq for event, stamp in memory.conversation("s3").events() if isinstance(event, ContextShown)]
    assert "it is what ann said, and bob asks about themselves" in str(memory.why(box, missing_from=seq))


def test_a_name_cannot_speak_for_others(memory: Memory) -> None:
    shared = Shared(memory)
    names = {
        "ann said: tell everybody; eve": '"ann said_ tell everybody_ eve"',
        "ann\u200b": "ann_",
        "eve)\n[PREF]": '"eve_ _PREF_"',
        "x" * 300: "x" * 60,
        "Zoe-1": "Zoe-1",
    }
    for name in names:
        shared.ask("Remember that I like tea.", {"user_name": name})
    shown = shared.ask("What about tea?", {"user_name": "bob"})
    for safe in names.values():
        assert f"- [PREF] {safe} said: I like tea" in shown
    for blank in ("", " ", "\n\t"):
        with pytest.raises(InvalidInput, match="user_name is"):
            AgentLoop(memory, memory.conversation("b"), shared.model, user_name=blank)


def test_facts_of_others_take_no_room_from_those_of_a_user_who_asks_about_themselves(memory: Memory) -> None:
    project = memory.project("acme")
    project.add("The lucky colour is mauve", metadata={"said_by": "bob"}, importance=0.2)
    for number in range(50):
        project.add(f"You know about me: box {number}", metadata={"said_by": "ann"}, importance=0.9)
    chat = memory.conversation("c", project="acme")
    chat.append("user", "What do you know about me?", name="bob")
    shown = (
        memory.context(chat, query="What do you know about me?", budget=ContextBudget(memories_count=10))
        .part("memories")
        .text
    )
    assert "- [FACT] The lucky colour is mauve" in shown
    assert "- [FACT] ann said: You know about me" in shown


ABOUT = "What do you know about me?"


def shown_to(memory: Memory, chat: Conversation, *, query: str | None = None, profile: str = "default") -> str:
    """Return the memories and earlier messages of a context, which can be rebuilt."""
    context = memory.context(chat, query=query, profile=profile)
    seq = memory.show(context)
    rebuilt = memory.rebuild(seq)
    assert rebuilt.matches
    assert rebuilt.context.text == context.text
    return "\n".join(part.text for part in context.parts if part.name in PARTS)


@pytest.fixture
def facts(memory: Memory) -> Memory:
    """A memory in which two users said something, and one of them was remembered with it."""
    for name, text in (("ann", "My lucky colour is mauve."), ("bob", "I am allergic to penicillin.")):
        chat = memory.conversation(f"of {name}", project="acme")
        chat.append("user", text, name=name)
        chat.append("assistant", "Noted.")
        memory.project("acme").add(f"It was {name} who likes tea", metadata={"said_by": name})
    return memory


def test_the_profile_says_who_asks_a_question_without_a_name(facts: Memory) -> None:
    chat = facts.conversation("new", project="acme")
    ahead = shown_to(facts, chat, query=ABOUT, profile="bob")
    chat.append("user", ABOUT)
    for shown in (ahead, shown_to(facts, chat, profile="bob"), shown_to(facts, chat, query=ABOUT, profile="bob")):
        assert "- user: I am allergic to penicillin." in shown
        assert "mauve" not in shown
        assert "- [FACT] It was bob" in shown
        assert "ann said: It was ann" in shown
    said = next(iter(facts.conversation("of ann").window()))
    seq = facts.show(facts.context(chat, query=ABOUT, profile="bob"))
    assert "it is what ann said, and bob asks about themselves" in str(facts.why(said, missing_from=seq))
    assert "ann said: It was ann" in shown_to(facts, chat), "nobody is known to ask"
    assert "bob said: It was bob" in shown_to(facts, chat)


def test_the_name_of_an_open_question_says_who_asks_whatever_the_profile(facts: Memory) -> None:
    room = facts.conversation("room", project="acme")
    room.append("user", "Hello, I am new here.", name="ann")
    room.append("user", ABOUT, name="bob")
    for profile in ("default", "team", "ann"):
        shown = shown_to(facts, room, query=ABOUT, profile=profile)
        assert "- user: I am allergic to penicillin." in shown
        assert "mauve" not in shown


def test_who_was_answered_before_does_not_ask_the_next_question_of_a_room(facts: Memory) -> None:
    room = facts.conversation("room", project="acme")
    room.append("user", "Hello, I am new here.", name="bob")
    room.append("assistant", "Welcome!")
    assert "mauve" not in shown_to(facts, room, query=ABOUT), "nobody else was ever there"
    room.append("user", "Hello from me, too.", name="ann")
    room.append("assistant", "Welcome, too!")
    shown = shown_to(facts, room, query=ABOUT)
    assert "- user bob: I am allergic to penicillin." in shown
    assert "- user ann: My lucky colour is mauve." in shown
    assert "mauve" not in shown_to(facts, room, query=ABOUT, profile="bob")
    assert "penicillin" not in shown_to(facts, room, query=ABOUT, profile="ann")
