"""What an erasure looks for: every string of the erased bodies, however deep, and nothing that the events keep."""

import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import Conversation, Memory, Snapshot
from refold.engine.markers import markers_of, searchable_markers
from refold.event import Recorded, StateImported
from refold.limits import MARKER_BYTES_MIN
from refold.message import message_event
from refold.views.state import StateSet
from tests.engine.test_erasure import occurrences
from tests.views.fold import stamp_of

INNER = "the innermost secret of them all"
CALL_ID = "call_0123456789abcdefghij"

WAYS: dict[str, Callable[[Conversation], Any]] = {
    "the text of a part": lambda chat: chat.append("user", [{"type": "text", "text": "hello"}, {"text": INNER}]),
    "a part of a part": lambda chat: chat.append("user", [{"type": "result", "content": [[{"text": INNER}]]}]),
    "an argument of a call": lambda chat: chat.append(
        "assistant", None, tool_calls=[{"id": CALL_ID, "input": {"queries": ["none", INNER]}}]
    ),
    "a value of the metadata": lambda chat: chat.append("user", "hello", metadata={"deep": {"er": [1, INNER]}}),
    "a key of the metadata": lambda chat: chat.append("user", "hello", metadata={INNER: None}),
    "a value of the state": lambda chat: chat.state.set("k", {"a": [{"b": INNER}]}),
    "a text": lambda chat: chat.append("user", INNER),
    "a name": lambda chat: chat.append("user", "hello", name=INNER),
    "a key of the scratchpad": lambda chat: chat.scratchpad.set(INNER, "value"),
    "a note": lambda chat: chat.scratchpad.note(INNER),
}


@pytest.mark.parametrize("way", WAYS)
def test_what_stands_inside_of_a_value_is_looked_for(tmp_path: Path, way: str) -> None:
    """Somebody else says the same and is not erased: the receipt has to tell, as it cannot if it does not look."""
    store = tmp_path / "store"
    with Memory(store) as memory:
        chat = memory.conversation("chat")
        WAYS[way](chat)
        seq = memory.head
        memory.conversation("other").append("user", f"and so {INNER}, they say")
        other = memory.head
        receipt = memory.erase([seq])
        assert receipt.occurrences == occurrences(store, INNER) == 1
        receipt = memory.erase([other])
        assert receipt.occurrences == occurrences(store, INNER) == 0


def test_a_zero_means_zero(tmp_path: Path) -> None:
    """All of it in two conversations, one of them imported, with checkpoints; then the files are scanned."""
    store = tmp_path / "store"
    with Memory() as elsewhere, Memory(store) as memory:
        for chat in (elsewhere.conversation("chat"), memory.conversation("chat")):
            for _ in range(40):
                for way in WAYS.values():
                    way(chat)
                memory.conversation("other").append("user", "harmless")
        snapshot = Snapshot.from_bytes(elsewhere.conversation("chat").snapshot().to_bytes())
        memory.conversation("imported").restore(snapshot)
        memory.flush()
        assert memory.conversation("chat").erase().occurrences > 0, "the other one says it still"
        assert occurrences(store, INNER) > 0
        assert memory.conversation("imported").erase().occurrences == occurrences(store, INNER) == 0
        assert len(memory.conversation("other").window()) == 80


def test_what_a_context_says_of_itself_is_not_looked_for(tmp_path: Path) -> None:
    """Budgets, names and digests of parts: other contexts have them, and nobody said them."""
    store = tmp_path / "store"
    with Memory(store) as memory:
        chat = memory.conversation("chat", project="shop")
        for text in (f"It is {INNER}.", "Where is my parcel?", "Book a table."):
            chat.append("user", text)
            memory.show(memory.context(chat, query=text))
            chat.append("assistant", "Good.")
        receipt = memory.erase(text=INNER)
        assert (receipt.markers, receipt.occurrences, occurrences(store, INNER)) == (1, 0, 0)
        entry = memory.project("shop").add(f"Remember {INNER}.")
        memory.project("shop").add("Another fact, from the same embedder.")
        receipt = memory.erase([entry.seq])
        assert (receipt.occurrences, occurrences(store, INNER)) == (0, 0)


def test_an_id_that_stays_is_not_looked_for(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("chat")
        chat.append("assistant", None, tool_calls=[{"id": CALL_ID, "function": {"name": "f", "arguments": INNER}}])
        chat.append("tool", [{"type": "text", "text": INNER}], tool_call_id=CALL_ID)
        receipt = memory.erase(text=INNER)
        assert (receipt.occurrences, receipt.markers) == (0, 3), "the text, and two values that hold it"
        assert chat.erase().markers == 1, "the id, which goes with the conversation"


KEY = "branch:to:the:next:node"


def noted(memory: Memory, secret: str) -> None:
    """Rows as an adapter writes them: its own names, and in one of them what somebody said."""
    for place, text in enumerate((secret, "nothing that matters")):
        value = {"kind": "a-prompt-of-the-user", KEY: None, "task": "~__pull, __start__ and so on", "content": text}
        memory.table("rows").put((str(place),), value)


def test_a_name_that_others_hold_too_is_no_trace_of_a_text(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Memory(store) as memory:
        noted(memory, f"It is {INNER}.")
        receipt = memory.erase(text=INNER)
        assert (len(receipt.seqs), receipt.occurrences, occurrences(store, INNER)) == (1, 0, 0)
        assert receipt.markers == 2, "what was said, and the value that held it"
        assert occurrences(store, KEY) > 0
        noted(memory, f"It is {INNER}.")
        assert memory.erase([memory.head - 1]).occurrences > 0, "whoever gives seqs is told that others say the same"


def test_what_stands_within_longer_texts_of_others_is_no_trace_of_a_text(tmp_path: Path) -> None:
    store = tmp_path / "store"
    channels = [f"whatsapp-channel-{number}-of-berlin" for number in range(40)]
    with Memory(store) as memory:
        chat = memory.conversation("chat")
        for channel in channels:
            chat.append("user", f"I am {INNER}.", metadata={"channel": channel})
            chat.append("assistant", f"You wrote to {channel}, right?")
        receipt = memory.erase(text=INNER)
        assert (len(receipt.seqs), receipt.occurrences, occurrences(store, INNER)) == (40, 0, 0)
        assert receipt.markers == 41, "the text, and the packed values"
        memory.conversation("other").append("user", f"I am {INNER}.", metadata={"channel": "telegram-of-nobody-else"})
        (store / "copy").write_text("telegram-of-nobody-else")
        assert memory.erase(text=INNER).occurrences == 1


@pytest.mark.parametrize("left", [f"It is {INNER}.", "a-name-of-this-row-alone"])
def test_what_is_left_of_an_erased_event_counts(tmp_path: Path, left: str) -> None:
    """A copy beside the log stands for a page that was not cleaned."""
    store = tmp_path / "store"
    with Memory(store) as memory:
        noted(memory, f"It is {INNER}.")
        memory.table("rows").put(("own",), {"a-name-of-this-row-alone": INNER})
        (store / "copy").write_text(f"xx{left}xx")
        assert memory.erase(text=INNER).occurrences > 0


def test_what_others_say_too_explains_what_is_found_and_a_copy_beside_the_log_does_not(tmp_path: Path) -> None:
    store = tmp_path / "store"
    with Memory(store) as memory:
        for name in ("ann", "bob", "eve"):
            memory.conversation(name).append("user", f"Hello, {INNER}!")
        memory.conversation("ann").append("user", "I am the only one who says this.")
        receipt = memory.conversation("ann").erase()
        assert (receipt.occurrences, receipt.unexplained) == (2, 0)
        (store / "copy").write_text(f"Hello, {INNER}! This is one more thing that bob says.")
        memory.conversation("bob").append("user", "This is one more thing that bob says.")
        receipt = memory.conversation("bob").erase()
        assert (receipt.occurrences, receipt.unexplained) == (3, 1)
        receipt = memory.conversation("eve").erase()
        assert (receipt.occurrences, receipt.unexplained) == (1, 1)


def test_a_text_in_the_name_of_a_stream_counts_and_is_named(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        memory.conversation(INNER).append("user", "hello")
        memory.conversation("other").append("user", INNER)
        receipt = memory.erase(text=INNER)
        assert receipt.occurrences > 0
        assert receipt.unexplained == 0
        assert receipt.named == (f"conversation/{INNER}",)


def packed(value: Any) -> bytes:
    return msgspec.msgpack.encode(value)


def test_the_strings_of_every_kind_of_body() -> None:
    vector = struct.pack("<8f", *range(8))
    deep: Any = INNER
    for _ in range(200):
        deep = [deep]
    pinned = False
    events = [
        message_event((), "id", "user", [{"key": "in a part"}], 1, pinned, "name", None, None, None),
        StateSet((), 0, 0, "of the state", packed({"packed in": packed({"another": "value"})})),
        StateSet((), 0, 0, "a vector", vector),
        StateSet((), 0, 0, "deep", packed(deep)),
        StateSet((), 0, 0, "no msgpack", b"\xc1 and more"),
        StateImported((), 1, "counter", 1, (), entries=(("an", "entry"),), notes=("a note",), state=(("x", b"\xa1y"),)),
    ]
    recorded = [Recorded(event, stamp_of(seq, "conversation/x")) for seq, event in enumerate(events, 1)]
    found = {marker for marker in markers_of(recorded, {}) if len(marker) < 100}
    assert found >= {b"key", b"in a part", b"name", b"of the state", b"packed in", b"another", b"value", vector}
    assert found >= {INNER.encode(), b"an", b"entry", b"a note", b"x", b"y", b"\xc1 and more"}
    assert not found & {b"id", b"user", b"counter"}


def test_what_says_nothing_is_not_looked_for() -> None:
    long, short = b"x" * MARKER_BYTES_MIN, b"y" * (MARKER_BYTES_MIN - 1)
    assert searchable_markers({long, short, bytes(6_000), bytes(6_000) + long, bytes(6_000) + short}) == {
        long,
        bytes(6_000) + long,
    }
