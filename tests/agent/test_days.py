"""The days of a context: today's date, and the days between the messages of a long conversation."""

from typing import Any

import pytest

from refold import Memory
from tests.support.memories import Clock

DAY_S = 86_400
SUNDAY, MONDAY = "[Sun 2025-11-23]\n", "[Mon 2025-11-24]\n"
TUESDAY, THURSDAY = "[Tue 2025-11-25]\n", "[Thu 2025-12-04]\n"


def turn(chat: Any, asked: Any, answer: str = "OK.") -> None:
    chat.append("user", asked)
    chat.append("assistant", answer)


def contents(memory: Memory, chat: Any, **options: Any) -> list[Any]:
    """Return what each message after the system prompt says, from a context that can be built again."""
    context = memory.context(chat, tools=(), **options)
    assert memory.rebuild(memory.show(context)).matches
    return [message["content"] for message in context.messages() if message["role"] != "system"]


def test_a_context_always_says_which_day_it_is() -> None:
    with Memory(clock_ns=Clock()) as memory:
        chat = memory.conversation("c", project="acme")
        assert memory.context(chat, tools=()).system == "Today is Monday, 2025-11-24."
        chat.append("user", "I am away next week.")
        today = memory.context(chat, tools=()).part("today")
        assert today is not None
        assert today.tier == "semi-stable"


def test_a_conversation_of_one_day_has_no_days_between_its_messages() -> None:
    with Memory(clock_ns=Clock()) as memory:
        chat = memory.conversation("c", project="acme")
        turn(chat, "My exam is tomorrow.")
        chat.append("user", "Wish me luck!")
        assert contents(memory, chat) == ["My exam is tomorrow.", "OK.", "Wish me luck!"]


def test_a_long_conversation_says_when_each_day_began() -> None:
    clock = Clock()
    with Memory(clock_ns=clock) as memory:
        chat = memory.conversation("c", project="acme")
        turn(chat, "My exam is tomorrow.")
        turn(chat, "Wish me luck!")
        clock.advance(10 * DAY_S)
        chat.append("user", "Is my exam over?")
        window = chat.messages()
        shown = [f"{MONDAY}My exam is tomorrow.", "OK.", "Wish me luck!", "OK.", f"{THURSDAY}Is my exam over?"]
        assert contents(memory, chat) == shown
        turn(chat, "And is Leo here?")
        assert contents(memory, chat)[: len(shown)] == shown, "the bytes of a prompt cache"
        assert chat.messages()[: len(window)] == window
        assert memory.context(chat).window == tuple(chat.window()), "only the rendered messages have marks"
        clock.advance(DAY_S)
        assert contents(memory, chat)[: len(shown)] == shown, "without a word of the new day, too"


def test_the_day_of_a_message_is_that_on_which_it_happened_where_the_user_is() -> None:
    with Memory(clock_ns=Clock(1_764_000_000_000_000_000), timezone="Asia/Tokyo") as memory:  # 2025-11-25 01:00 there
        chat = memory.conversation("c", project="acme")
        chat.append("user", "On the train.", occurred=1_763_900_000_000_000_000)
        chat.append("user", [{"type": "text", "text": "At home."}])
        assert contents(memory, chat) == [
            f"{SUNDAY}On the train.",
            [{"type": "text", "text": TUESDAY.strip()}, {"type": "text", "text": "At home."}],
        ]
        assert memory.context(chat, tools=()).messages("anthropic")[0]["content"][0]["text"] == f"{SUNDAY}On the train."


def test_an_erased_message_and_the_output_of_a_tool_have_no_day() -> None:
    clock = Clock()
    with Memory(clock_ns=clock) as memory:
        chat = memory.conversation("c", project="acme")
        erased = chat.append("user", "My PIN is 4821.")
        chat.append("assistant", None, tool_calls=[{"id": "x", "function": {"name": "f", "arguments": "{}"}}])
        clock.advance(DAY_S)
        chat.append("tool", "17", tool_call_id="x")
        chat.append("assistant", "It is 17.")
        memory.erase([erased])
        clock.advance(9 * DAY_S)
        chat.append("user", "And now?")
        assert contents(memory, chat)[-3:] == ["17", "It is 17.", "And now?"], "all that the user says is of today"


def test_what_changes_often_comes_before_the_day_of_the_message() -> None:
    clock = Clock()
    with Memory(clock_ns=clock) as memory:
        chat = memory.conversation("c", project="acme")
        turn(chat, "Hello!")
        clock.advance(10 * DAY_S)
        chat.session.describe_task("Fix the login.")
        chat.append("user", "Go on.")
        assert contents(memory, chat)[-1].endswith(f"Fix the login.\n\n[Message]\n{THURSDAY}Go on.")


@pytest.mark.parametrize("budget", range(11, 200, 3))
def test_days_count_towards_the_budget_and_leave_first(budget: int) -> None:
    clock = Clock()
    with Memory(clock_ns=clock) as memory:
        chat = memory.conversation("c", project="acme")
        for number in range(6):
            turn(chat, f"message number {number}")
            clock.advance(DAY_S)
        chat.append("user", "Hello!")
        context = memory.context(chat, tools=(), budget=budget)
        assert context.tokens <= budget
        assert context.window[-1].content == "Hello!"
        assert context.tokens >= min(budget - 30, 100), "days take no more room than they need"
        assert memory.rebuild(memory.show(context)).matches
