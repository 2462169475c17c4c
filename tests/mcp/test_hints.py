"""What the hints of the tools say is what the tools do."""

from typing import Any

import pytest

from refold import Memory
from refold.agent.builtin import BUILT_IN_NAMES
from refold.mcp import server
from refold.mcp.resources import Binding
from tests.support.memories import assert_sound

CALLS: dict[str, list[dict[str, Any]]] = {
    "memory_write": [
        {"action": "note", "value": "a note"},
        {"action": "set", "key": "key", "value": "new"},
        {"action": "delete", "key": "key"},
        {"action": "clear"},
    ],
    "memory_read": [{}, {"key": "key"}],
    "working_memory_read": [{}, {"part": "messages"}],
    "memory_set": [{"key": "key", "value": "new"}],
    "memory_delete": [{"key": "key"}],
    "memory_add": [{"content": "Something new"}],
    "memory_search": [{"query": "something old"}],
    "conversation_search": [{"query": "something old"}],
    "memory_update": [{"id": "ID", "content": "Something else"}],
    "memory_forget": [{"id": "ID"}],
    "journal_append": [{"text": "a line"}],
    "journal_read": [{}, {"first": "2026-01-01", "last": "2026-01-02"}],
}


def filled(memory: Memory) -> str:
    """Give a memory something of every kind; the id of what it remembers."""
    memory.conversation("chat").scratchpad.set("key", "old")
    memory.conversation("chat").scratchpad.note("an old note")
    memory.profile().set("key", "old")
    memory.journal().append("an old line")
    return memory.project().add("Something old").id


def texts(memory: Memory) -> set[str]:
    """All that is held: keys with their values, notes, lines, memories."""
    chat = memory.conversation("chat")
    return {
        *(f"{key} is {value} in the scratchpad" for key, value in chat.scratchpad.items()),
        *(f"{key} is {value} in the profile" for key, value in memory.profile().items()),
        *chat.scratchpad.notes(),
        *(note.text for note in memory.journal().recent()),
        *(entry.content for entry in memory.project().list()),
    }


@pytest.mark.parametrize("name", sorted(BUILT_IN_NAMES))
def test_hints_warn_of_what_a_call_does_and_of_nothing_else(name: str) -> None:
    warned: set[str] = set()
    for arguments in CALLS[name]:
        with Memory() as memory:
            number = filled(memory)
            given = arguments | ({"id": number} if "id" in arguments else {})
            context = memory.tools.context(memory.conversation("chat"))
            before, heads = texts(memory), [memory.head]
            for _ in range(2):
                memory.tools.execute(name, given, context)
                heads.append(memory.head)
            warned |= {"writes"} if heads[1] > heads[0] else set()
            warned |= {"destroys"} if not before <= texts(memory) else set()
            warned |= {"repeats"} if heads[2] > heads[1] else set()
            assert_sound(memory)
            tool = memory.tools.get(name)
    assert tool is not None
    (listed,) = [each for each in server.list_tools(Binding(memory), memory.tools) if each.name == name]
    assert listed.annotations is not None
    told = listed.annotations.model_dump(by_alias=True, exclude={"title"})
    assert tool.annotations == told
    assert told == {
        "readOnlyHint": "writes" not in warned,
        "destructiveHint": "destroys" in warned,
        "idempotentHint": "repeats" not in warned,
        "openWorldHint": False,
    }
