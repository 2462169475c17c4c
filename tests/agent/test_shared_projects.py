"""Projects that several users share: contexts say which of them said what, and those of one user name nobody."""

from typing import Any

from refold import Memory
from refold.agent import AgentLoop, Reply, default_hooks
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
        (seq,) = [stamp.seq for event, stamp in chat.events() if isinstance(event, ContextShown)]
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
    assert [entry.metadata for entry in memory.project("acme").list()] == [{"said_by": ["ann", "Bob"]}]
    assert "ann and Bob said: I want all mails" in shared.ask("Which mails?", {"user_name": "Cy"})


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
