"""Why keys are in a context, or missing from it: a key stands for the value that it had when the context was made."""

from typing import Any

import pytest

from refold import Memory


def reason(memory: Memory, key: str, seq: int, conversation: str | None = None) -> str:
    return memory.why(key, conversation=conversation, missing_from=seq).steps[-1].text


@pytest.mark.parametrize("kind", ["profile", "scratchpad", "state"])
def test_a_key_is_missing_from_contexts_before_it_was_set_and_after_it_was_deleted(memory: Memory, kind: str) -> None:
    chat = memory.conversation("c", project="home")
    chat.append("user", "What can I eat?")
    owners: dict[str, Any] = {"profile": memory.profile(), "scratchpad": chat.scratchpad, "state": chat.state}
    owner = owners[kind]
    before = memory.show(memory.context(chat))
    for value in ("nuts", "milk"):
        owner.set("allergy", value)
        shown = memory.show(memory.context(chat))
        assert "shows it in its part" in reason(memory, "allergy", shown)
    owner.delete("allergy")
    after = memory.show(memory.context(chat))
    for seq in (before, after):
        assert reason(memory, "allergy", seq).endswith(f"lacks it: it had no value at seq {seq - 1}")
    assert "shows it in its part" in reason(memory, "allergy", shown)


def test_a_key_of_another_owner_is_missing_from_a_context_that_shows_one_of_the_same_name(memory: Memory) -> None:
    one, other = (memory.conversation(name) for name in ("one", "other"))
    one.append("user", "Hello!")
    for name in ("ada", "bob"):
        memory.profile(name).set("phone", name)
    for chat in (one, other):
        chat.scratchpad.set("plan", "rest")
    seq = memory.show(memory.context(one, profile="ada"))
    reasons = {step.subject: step.text for key in ("phone", "plan") for step in memory.why(key, missing_from=seq).steps}
    assert "shows it in its part profile" in reasons["profile 'phone' in profile/ada"]
    assert reasons["profile 'phone' in profile/bob"].endswith("lacks it: it shows profile/ada")
    assert "shows it in its part scratchpad" in reasons["scratchpad 'plan' in conversation/one"]
    assert reasons["scratchpad 'plan' in conversation/other"].endswith("lacks it: it shows conversation/one")


def test_of_a_board_it_is_said_where_a_context_shows_it(memory: Memory) -> None:
    chat, board = memory.conversation("s"), memory.board(session="s")
    chat.append("user", "Where were we?")
    without = memory.show(memory.context(chat))
    board.set_working_history("The pier is done.")
    shown = memory.show(memory.context(chat))
    assert reason(memory, "working_history", without).endswith("lacks it: it has no part board")
    assert reason(memory, "working_history", shown) == (
        f"the context at seq {shown} has a part board; memory.rebuild({shown}) shows what it has of one"
    )


def test_a_fork_shows_the_keys_that_it_inherited(memory: Memory) -> None:
    chat = memory.conversation("c")
    chat.append("user", "Hello!")
    chat.scratchpad.set("plan", "rest")
    fork = chat.fork("fork")
    seq = memory.show(memory.context(fork))
    assert "shows it in its part scratchpad" in reason(memory, "plan", seq)
    assert "shows it in its part scratchpad" in reason(memory, "plan", seq, "fork")
