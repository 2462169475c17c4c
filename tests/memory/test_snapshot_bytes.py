"""Snapshot bytes: a whole state handed over to another conversation or store, and what may be wrong with it."""

from hashlib import sha256
from pathlib import Path
from typing import Any

import msgspec
import pytest

from refold import Conversation, InvalidInput, LimitExceeded, Memory, Snapshot, StoreVersion
from tests.support.memories import Child, Clock, refused, remembering


def filled(memory: Memory, conversation_id: str = "chat") -> Conversation:
    chat = memory.conversation(conversation_id, project="project")
    chat.append("system", "be kind", tokens=2, pinned=True)
    call = {"id": "x", "type": "function", "function": {"name": "look", "arguments": "{}"}}
    chat.append("assistant", None, tokens=3, tool_calls=[call])
    chat.append("tool", "found", tokens=4, tool_call_id="x", name="look")
    chat.append("user", [{"type": "text", "text": "\u4e16\0"}], tokens=5, metadata={"a": [1, None]})
    chat.scratchpad.set("k", "v")
    chat.scratchpad.set("large", "x" * 1_000)
    chat.scratchpad.note("one")
    chat.scratchpad.note("two")
    chat.state["plan"] = {"a": [1]}
    chat.state["temp:t"] = "now"
    chat.state["project:shared"] = True
    return chat


def shown(chat: Conversation) -> Any:
    messages = [
        (m.id, m.role, m.content, m.tokens, m.pinned, m.name, m.tool_calls, m.tool_call_id, m.metadata, m.erased)
        for m in chat.window()
    ]
    own = [(key, value) for key, value in chat.state.items() if not key.startswith("project:")]
    return messages, chat.token_count(), chat.window_tokens, chat.scratchpad.to_dict(), own


def payload_of(rendered: bytes) -> Any:
    return msgspec.msgpack.decode(rendered[41:])


def sealed(payload: Any, form: int = 1) -> bytes:
    packed = msgspec.msgpack.encode(payload)
    return b"REFOLDSN" + bytes([form]) + sha256(packed).digest() + packed


class TestHandedOver:
    def test_to_another_conversation_of_the_store_it_is_the_same_state(self) -> None:
        with remembering() as memory:
            chat = filled(memory)
            carried = Snapshot.from_bytes(chat.snapshot().to_bytes())
            other = memory.conversation("other", project="elsewhere")
            other.restore(carried)
            assert shown(other) == shown(chat)
            assert other.project == "elsewhere"

    def test_nothing_handed_to_a_conversation_of_a_project_that_has_nothing_appends_nothing(self) -> None:
        with remembering() as memory:
            nothing = Snapshot.from_bytes(Memory().conversation("chat").snapshot().to_bytes())
            memory.conversation("chat", project="acme").restore(nothing)
            assert memory.head == 0

    @pytest.mark.parametrize("kept", [False, True])
    def test_to_another_store_it_is_the_same_state_too(self, tmp_path: Path, kept: bool) -> None:
        with remembering() as source, remembering(tmp_path / "store" if kept else None, window_tokens=5) as target:
            chat = filled(source)
            other = target.conversation("other")
            other.append("user", "replaced", tokens=1)
            other.restore(Snapshot.from_bytes(chat.snapshot().to_bytes()))
            assert shown(other) == shown(chat)
            assert other.project is None
            assert target.projects() == []
            other.append("user", "more", tokens=1)
            assert other.token_count() == chat.token_count() + 1

    def test_survives_any_number_of_hands(self) -> None:
        with remembering() as source:
            chat = filled(source)
            expected, rendered = shown(chat), chat.snapshot().to_bytes()
        for _ in range(3):
            with remembering() as memory:
                chat = memory.conversation("chat")
                chat.restore(Snapshot.from_bytes(rendered))
                assert shown(chat) == expected
                rendered = chat.snapshot().to_bytes()

    def test_keeps_what_evicts_together(self) -> None:
        with remembering() as source, remembering() as target:
            filled(source)
            chat = target.conversation("chat")
            chat.restore(Snapshot.from_bytes(source.conversation("chat").snapshot().to_bytes()))
            chat.set_window_tokens(10)
            assert [message.role for message in chat.window()] == ["system", "user"]
            chat.append("tool", "too late", tokens=1, tool_call_id="x")
            assert [message.role for message in chat.window()] == ["system", "user"]
            with refused(target, LimitExceeded, "pinned"):
                chat.append("system", "x", tokens=9, pinned=True)

    def test_of_a_frozen_handle_is_the_state_then(self) -> None:
        with remembering() as source, remembering() as target:
            chat = filled(source)
            then = chat.at(4)
            carried = Snapshot.from_bytes(then.snapshot().to_bytes())
            chat.clear_window()
            target.conversation("chat").restore(carried)
            assert shown(target.conversation("chat")) == shown(then)

    def test_of_nothing_is_nothing(self) -> None:
        with remembering() as source, remembering() as target:
            empty = Snapshot.from_bytes(source.conversation("never").snapshot().to_bytes())
            target.conversation("chat").restore(empty)
            assert target.head == 0
            filled(target)
            target.conversation("chat").restore(empty)
            assert (target.conversation("chat").window(), target.conversation("chat").scratchpad.keys()) == ([], [])
            target.conversation("chat").append("user", "again", tokens=1)
            assert target.conversation("chat").token_count() == 1

    def test_the_same_state_again_appends_nothing(self) -> None:
        with remembering() as source, remembering() as target:
            carried = Snapshot.from_bytes(filled(source).snapshot().to_bytes())
            chat = target.conversation("chat")
            chat.restore(carried)
            head = target.head
            chat.restore(carried)
            assert target.head == head

    def test_to_its_own_store_is_a_pointer(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            rendered = filled(memory).snapshot().to_bytes()
            memory.conversation("chat").clear_window()
        with remembering(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            chat.restore(Snapshot.from_bytes(rendered))
            assert type(list(chat.events())[-1].event).__name__ == "Restored"
            assert chat.token_count() == 14

    def test_to_a_copy_that_went_another_way_is_the_state_and_not_the_place(self, tmp_path: Path) -> None:
        from shutil import copytree

        with Memory(tmp_path / "store") as memory:
            memory.conversation("chat").append("user", "common", tokens=1)
        copytree(tmp_path / "store", tmp_path / "copy")
        with Memory(tmp_path / "store") as memory:
            memory.conversation("chat").append("user", "here", tokens=1)
            rendered = memory.conversation("chat").snapshot().to_bytes()
        with remembering(tmp_path / "copy") as memory:
            chat = memory.conversation("chat")
            chat.append("user", "there", tokens=1)
            chat.restore(Snapshot.from_bytes(rendered))
            assert [message.content for message in chat.window()] == ["common", "here"]

    def test_goes_from_one_process_to_another(self, tmp_path: Path) -> None:
        program = """
import sys
from refold import Memory, Snapshot
chat = Memory().conversation("there")
chat.restore(Snapshot.from_bytes(bytes.fromhex(sys.stdin.readline())))
print(chat.token_count(), chat.scratchpad.get("k"), chat.scratchpad.notes(), flush=True)
"""
        with Memory(tmp_path / "store") as memory, Child(program) as child:
            child.write(filled(memory).snapshot().to_bytes().hex())
            assert child.read() == "14 v ['one', 'two']"

    def test_the_snapshot_of_a_live_other_memory_may_be_given_as_it_is(self) -> None:
        with remembering() as source, remembering() as target:
            chat = filled(source)
            target.conversation("chat").restore(chat.snapshot())
            assert shown(target.conversation("chat")) == shown(chat)


class TestTheBytes:
    def test_are_the_same_for_the_same_state(self) -> None:
        with Memory(clock_ns=Clock(), random_bytes=bytes) as one, Memory(clock_ns=Clock(), random_bytes=bytes) as other:
            assert filled(one).snapshot().to_bytes() == filled(other).snapshot().to_bytes()

    def test_come_back_as_the_same_pointer_and_the_same_bytes(self) -> None:
        with remembering() as memory:
            snapshot = filled(memory).snapshot()
            rendered = snapshot.to_bytes()
            again = Snapshot.from_bytes(rendered)
            assert again == snapshot
            assert hash(again) == hash(snapshot)
            assert again.to_bytes() == rendered
            assert Snapshot.from_bytes(bytearray(rendered)) == Snapshot.from_bytes(memoryview(rendered)) == snapshot

    def test_do_not_change_with_the_conversation(self) -> None:
        with remembering() as memory:
            chat = filled(memory)
            snapshot = chat.snapshot()
            rendered = snapshot.to_bytes()
            chat.clear_window()
            chat.scratchpad.clear()
            assert snapshot.to_bytes() == rendered


class TestDamage:
    @pytest.fixture
    def rendered(self) -> bytes:
        return filled(Memory()).snapshot().to_bytes()

    def test_of_any_byte_is_noticed(self, rendered: bytes) -> None:
        for place in range(len(rendered)):
            for bit in (0, 3, 7):
                changed = bytearray(rendered)
                changed[place] ^= 1 << bit
                with pytest.raises((InvalidInput, StoreVersion)):
                    Snapshot.from_bytes(bytes(changed))

    def test_of_any_cut_is_noticed(self, rendered: bytes) -> None:
        for size in [*range(60), len(rendered) // 2, len(rendered) - 1]:
            with pytest.raises(InvalidInput, match=r"not a refold snapshot|damaged"):
                Snapshot.from_bytes(rendered[:size])
        with pytest.raises(InvalidInput, match="damaged"):
            Snapshot.from_bytes(rendered + b"\0")

    def test_says_what_it_is(self, rendered: bytes) -> None:
        with pytest.raises(InvalidInput, match="damaged: their checksum does not match; hand them over again"):
            Snapshot.from_bytes(rendered[:-1] + b"\0")
        with pytest.raises(StoreVersion, match="of format 2, and this refold reads up to 1; upgrade refold"):
            Snapshot.from_bytes(sealed(payload_of(rendered), form=2))
        values: list[object] = ["text", None, 5, [], Snapshot("conversation/c", 1)]
        for value in values:
            with pytest.raises(InvalidInput, match="snapshot bytes must be bytes"):
                Snapshot.from_bytes(value)

    CHANGES: dict[str, tuple[tuple[int | str, ...], Any, str]] = {  # noqa: RUF012 - never changed
        "another total": ((3,), 15, "says 15 tokens, its messages have 14"),
        "a negative message": ((4, 5, 1, 2), -3, ""),
        "a role that is none": ((4, 5, 0, 1), "robot", "unknown roles: robot"),
        "a policy of the future": ((4, 4), 99, "policy 99 is unknown here; upgrade refold"),
        "a budget that is too small": ((4, 2), 13, "over its own budget of 13"),
        "a negative budget": ((4, 2), -1, "budget"),
        "bodies that are missing": ((4, 6), [], "4 messages and 0 bodies"),
        "a body without sense": ((4, 6, 3, 1), b"\xc1", ""),
        "metadata without sense": ((4, 6, 3, 4), b"\xc1", ""),
        "state without sense": ((4, 9, 0, 1), b"\xc1", ""),
        "another type": ((4, 8), "notes", "hold no state"),
        "another event": ((4, 0), 2, "hold no state"),
        "no stream": ((1,), 5, "hold no state"),
        "a negative seq": ((2,), -1, ""),
        "an empty key": ((4, 7, 0, 0), "", ""),
    }

    @pytest.mark.parametrize("what", CHANGES)
    def test_under_a_checksum_that_fits_is_noticed_too(self, rendered: bytes, what: str) -> None:
        place, value, words = self.CHANGES[what]
        payload = payload_of(rendered)
        *way, last = place
        inner = payload
        for step in way:
            inner = inner[step]
        inner[last] = value
        memory = Memory()
        with refused(memory, (InvalidInput, StoreVersion), words):  # type: ignore[arg-type]
            memory.conversation("chat").restore(Snapshot.from_bytes(sealed(payload)))
