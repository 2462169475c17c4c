"""A message that asks to forget something: what else it says stays, and the request is shown nowhere else."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from refold import Memory, Message
from refold.agent import AgentLoop, Call, Reply, default_hooks
from refold.memory.retractions import names_removed


class _Model:
    def __init__(self, *replies: Reply) -> None:
        self._replies = list(replies)

    def reply(self, *_: Any) -> Reply:
        return self._replies.pop(0) if self._replies else Reply("OK.")


def _say(memory: Memory, conversation: str, text: str, *replies: Reply) -> None:
    AgentLoop(memory, memory.conversation(conversation, project="p"), _Model(*replies)).run(text)


def _shown(memory: Memory, query: str) -> list[str]:
    """Return the lines of earlier messages that a new conversation gets, after a check that they can be rebuilt."""
    context = memory.context(memory.conversation("now", project="p"), query=query)
    assert memory.rebuild(memory.show(context)).matches
    part = context.part("messages")
    return [] if part is None else [line for line in part.text.splitlines() if line.startswith("- ")]


@pytest.mark.parametrize(
    ("fact", "text", "rest"),
    [
        ("my manager is Priya", "Forget that my manager is Priya. My manager is Tom now.", "My manager is Tom now."),
        ("my manager is Priya", "My manager is Tom now! Forget that my manager is Priya.", "My manager is Tom now!"),
        ("my manager is Priya", "Forget that my manager is Priya. Thanks a lot!", ""),
        ("my manager is Priya", "Please forget that my manager is Priya.", ""),
        ("Dr. Smith is my manager", "Forget that Dr. Smith is my manager.", ""),
        ("my manager is Priya", "Forget that my manager is Priya. It is Tom now.", None),
        ("my manager is Priya", "Please forget that my manager is Priya, it is Tom now.", None),
        ("my manager is Priya", "Forget that my manager is Priya and my manager is Tom now.", None),
        ("my manager is Priya", "Hi! Forget that my manager is Priya. Where is Bern?", "Hi! Where is Bern?"),
        ("Priya", "I have a new manager now. Forget my manager Priya.", "I have a new manager now."),
        ("my manager eats nuts, eggs and milk", "Forget that my manager eats nuts, eggs and milk.", ""),
        ("\u6211\u7684\u7ecf\u7406\u662fPriya", "\u5fd8\u6389\u6211\u7684\u7ecf\u7406\u662fPriya\u3002", ""),
    ],
)
def test_what_a_message_says_besides_its_request_to_forget_is_shown(
    memory: Memory, fact: str, text: str, rest: str | None
) -> None:
    default_hooks(memory)
    memory.project("p").add(fact)
    _say(memory, "then", text)
    assert memory.project("p").count() == 0
    expected = text if rest is None else rest
    assert _shown(memory, "Who is my manager?") == ([f"- user: {expected}"] if expected else [])


@pytest.mark.parametrize(("answer", "is_shown"), [("Tom it is.", True), ("Priya is forgotten, Tom it is.", False)])
def test_an_answer_that_names_what_it_was_asked_to_forget_is_not_shown(
    memory: Memory, answer: str, *, is_shown: bool
) -> None:
    default_hooks(memory)
    memory.project("p").add("my manager is Priya")
    _say(memory, "then", "Forget that my manager is Priya. My manager is Tom now.", Reply(answer))
    assert (f"- assistant: {answer}" in _shown(memory, "Who is my manager? Tom?")) is is_shown
    assert names_removed(answer, "Forget Priya. Tom now.", "Tom now.") is not is_shown


def test_what_a_models_tool_removes_hides_no_message_that_said_something_else(memory: Memory) -> None:
    _say(memory, "then", "My address is Elm Street 5 in Oslo.", _calling("memory_set", key="address", value="Elm 5"))
    moved = "My Oslo address is no longer valid, I have a flat at Spree 7 now."
    _say(memory, "then", moved, _calling("memory_delete", key="address"))
    assert memory.profile().items() == []
    assert _shown(memory, "What is my address?") == [f"- user: {moved}"]


def _calling(name: str, **arguments: str) -> Reply:
    return Reply(None, (Call("call", name, json.dumps(arguments)),))


def test_a_summary_is_made_of_what_is_left_beside_a_request_to_forget(memory: Memory) -> None:
    default_hooks(memory)
    chat = memory.conversation("then", project="p", window_tokens=30, eviction="summary")
    for text in (
        "Remember that my cat is Mia.",
        "Forget that my cat is Mia. My cat is Tom.",
        "I have a dog called Rex and he is very big.",
        "I also like tea and rain and snow and fog and hail.",
    ):
        AgentLoop(memory, chat, _Model()).run(text)
    read = list[object]()

    def summarize(_: str, messages: Sequence[Message]) -> str:
        read.extend(message.content for message in messages)
        return "short"

    chat.summarize(summarize)
    assert "My cat is Tom." in read
    assert "Mia" not in str(read)
