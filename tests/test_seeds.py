"""The seeds' own test lists, in our words: the scratchpad of a conversation, and its token-bounded window."""

import json
from pathlib import Path

import pytest

from refold import InvalidInput, LimitExceeded, Memory, Snapshot
from tests.support.memories import Clock, refused, remembering


class TestScratchpad:
    """The seed of the working-memory skills, below the skills."""

    def test_a_key_that_was_set_is_read_back(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.scratchpad.set("name", "Alice")
            assert chat.scratchpad.get("name") == "Alice"

    def test_a_note_is_among_the_notes(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.scratchpad.note("User prefers dark mode")
            assert chat.scratchpad.notes() == ["User prefers dark mode"]
            assert chat.scratchpad.notes() == ["User prefers dark mode"]

    def test_a_deleted_key_is_not_found(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.scratchpad.set("name", "Alice")
            assert chat.scratchpad.delete("name") is True
            assert chat.scratchpad.get("name") is None
            assert chat.scratchpad.get("name", "not found") == "not found"

    def test_deleting_a_missing_key_says_so_and_appends_nothing(self) -> None:
        with remembering() as memory:
            assert memory.conversation("chat").scratchpad.delete("name") is False
            assert (memory.head, memory.conversations()) == (0, [])

    def test_clear_empties_everything(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.scratchpad.set("name", "Alice")
            chat.scratchpad.set("city", "Oslo")
            chat.scratchpad.note("likes trains")
            chat.scratchpad.clear()
            assert (chat.scratchpad.keys(), chat.scratchpad.notes()) == ([], [])
            assert json.loads(chat.scratchpad.to_json()) == {"entries": {}, "notes": []}

    def test_two_conversations_have_their_own(self) -> None:
        with remembering() as memory:
            memory.conversation("A").scratchpad.set("name", "Alice")
            memory.conversation("A").scratchpad.note("a note")
            other = memory.conversation("B")
            assert (other.scratchpad.keys(), other.scratchpad.notes(), other.scratchpad.get("name")) == ([], [], None)
            assert memory.conversations() == ["A"]

    def test_it_survives_neither_a_restart_in_ram_nor_one_that_clears(self, tmp_path: Path) -> None:
        with Memory() as memory:
            memory.conversation("chat").scratchpad.set("name", "Alice")
        with Memory() as memory:
            assert memory.conversation("chat").scratchpad.keys() == []
        with Memory(tmp_path / "store") as memory:
            memory.conversation("chat").scratchpad.set("name", "Alice")
            memory.conversation("chat").append("user", "hello", tokens=1)
        with Memory(tmp_path / "store") as memory:
            assert memory.conversation("chat").scratchpad.get("name") == "Alice"
        with remembering(tmp_path / "store", clear_scratchpads_on_open=True) as memory:
            chat = memory.conversation("chat")
            assert (chat.scratchpad.keys(), chat.token_count()) == ([], 1)

    def test_it_is_cleared_when_the_conversation_ends(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.scratchpad.set("name", "Alice")
            chat.scratchpad.note("a note")
            chat.state["temp:x"] = 1
            chat.state["y"] = 2
            chat.append("user", "hello", tokens=1)
            chat.end()
            assert (chat.scratchpad.keys(), chat.scratchpad.notes(), list(chat.state)) == ([], [], ["y"])
            assert chat.token_count() == 1

    def test_as_json_it_lists_keys_sorted_and_notes_in_order(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            for key in ("zebra", "apple", "mango"):
                chat.scratchpad.set(key, key.upper())
            chat.scratchpad.note("second thoughts")
            chat.scratchpad.note("afterthoughts")
            assert chat.scratchpad.keys() == ["apple", "mango", "zebra"]
            assert chat.scratchpad.to_json() == (
                '{"entries":{"apple":"APPLE","mango":"MANGO","zebra":"ZEBRA"},'
                '"notes":["second thoughts","afterthoughts"]}'
            )

    def test_setting_again_replaces(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.scratchpad.set("name", "Alice")
            chat.scratchpad.set("name", "Bob")
            assert (chat.scratchpad.get("name"), chat.scratchpad.keys()) == ("Bob", ["name"])

    @pytest.mark.parametrize("key", [None, 5, "", b"name", ["name"]], ids=repr)
    def test_a_set_without_a_proper_key_is_invalid_and_creates_nothing(self, key: object) -> None:
        memory = Memory()
        with refused(memory, InvalidInput, "key"):
            memory.conversation("chat").scratchpad.set(key, "value")  # type: ignore[arg-type]
        assert memory.conversations() == []

    @pytest.mark.parametrize("value", [None, 5, True, b"value", ["value"], {"a": 1}], ids=repr)
    def test_a_value_that_is_no_text_is_invalid(self, value: object) -> None:
        memory = Memory()
        with refused(memory, InvalidInput, "value must be a str"):
            memory.conversation("chat").scratchpad.set("key", value)  # type: ignore[arg-type]
        with refused(memory, InvalidInput, "text must be a str"):
            memory.conversation("chat").scratchpad.note(value)  # type: ignore[arg-type]
        assert memory.conversations() == []

    def test_what_changes_nothing_appends_nothing(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.scratchpad.clear()
            chat.end()
            chat.end_round()
            chat.clear_window()
            assert memory.head == 0
            chat.scratchpad.set("name", "Alice")
            head = memory.head
            chat.scratchpad.set("name", "Alice")
            chat.scratchpad.delete("other")
            chat.clear_window()
            assert memory.head == head

    def test_changing_what_was_handed_out_changes_nothing_inside(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.scratchpad.set("name", "Alice")
            chat.scratchpad.note("a note")
            chat.scratchpad.notes().append("injected")
            chat.scratchpad.keys().clear()
            chat.scratchpad.to_dict()["entries"]["name"] = "Mallory"
            chat.scratchpad.to_dict()["notes"].clear()
            assert (chat.scratchpad.get("name"), chat.scratchpad.notes()) == ("Alice", ["a note"])


class TestWindow:
    """The seed of the short-term memory."""

    def test_an_appended_entry_is_in_the_window(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            message = chat.append("user", "hello", tokens=2)
            assert chat.window() == [message]
            assert (message.role, message.content, message.tokens) == ("user", "hello", 2)

    def test_the_last_three_of_ten(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            for number in range(10):
                chat.append("user", str(number), tokens=1)
            assert [message.content for message in chat.window(3)] == ["7", "8", "9"]
            assert [message.content for message in chat.window(last=3)] == ["7", "8", "9"]

    @pytest.mark.parametrize(("last", "count"), [(None, 10), (0, 0), (1, 1), (9, 9), (10, 10), (11, 10), (10**30, 10)])
    def test_last_bounds_how_many_come(self, last: int | None, count: int) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            for number in range(10):
                chat.append("user", str(number), tokens=1)
            assert [message.content for message in chat.window(last)] == [str(n) for n in range(10 - count, 10)]

    @pytest.mark.parametrize("last", [-1, -(10**30), True, 1.0, "3"], ids=repr)
    def test_a_last_that_is_no_count_is_invalid(self, last: object) -> None:
        memory = Memory()
        with refused(memory, InvalidInput, "last"):
            memory.conversation("chat").window(last)  # type: ignore[arg-type]

    def test_the_token_count_is_the_sum(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            for tokens in (3, 0, 7, 11):
                chat.append("user", "x", tokens=tokens)
            assert chat.token_count() == 21 == sum(message.tokens for message in chat.window())

    def test_the_budget_is_128_000_by_default(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", "old", tokens=28_000)
            chat.append("user", "new", tokens=100_000)
            assert chat.token_count() == chat.window_tokens == 128_000
            chat.append("user", "one more", tokens=1)
            assert [message.content for message in chat.window()] == ["new", "one more"]

    def test_the_oldest_leave_until_the_rest_fits(self) -> None:
        with remembering(window_tokens=100) as memory:
            chat = memory.conversation("chat")
            for name, tokens in (("a", 40), ("b", 30), ("c", 30), ("d", 50)):
                chat.append("user", name, tokens=tokens)
            assert [message.content for message in chat.window()] == ["c", "d"]
            assert chat.token_count() == 80

    def test_an_entry_larger_than_the_budget_is_recorded_and_empties_the_window(self) -> None:
        with remembering(window_tokens=100) as memory:
            chat = memory.conversation("chat")
            chat.append("user", "small", tokens=40)
            large = chat.append("user", "large", tokens=101)
            assert (chat.window(), chat.token_count()) == ([], 0)
            assert large.seq == memory.head
            assert [getattr(recorded.event, "text", None) for recorded in chat.events()] == [None, "small", "large"]
            chat.append("user", "next", tokens=100)
            assert [message.content for message in chat.window()] == ["next"]

    def test_after_a_clear_nothing_is_left(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", "hello", tokens=5)
            chat.clear_window()
            assert (chat.window(), chat.token_count(), chat.window_tokens) == ([], 0, 128_000)

    def test_a_snapshot_brings_the_identical_state_back(self) -> None:
        with remembering(clock_ns=Clock()) as memory:
            chat = memory.conversation("chat")
            chat.append("user", "hello", tokens=5)
            chat.append("assistant", "hi", tokens=3, metadata={"a": [1]})
            snapshot, before, hashed = chat.snapshot(), chat.window(), memory.state_hash()
            chat.append("user", "more", tokens=7)
            chat.clear_window()
            chat.restore(snapshot)
            assert (chat.window(), chat.token_count(), memory.state_hash()) == (before, 8, hashed)

    def test_a_snapshot_is_handed_over_as_bytes(self) -> None:
        with remembering() as source, remembering() as target:
            chat = source.conversation("chat")
            chat.append("user", "hello", tokens=5)
            chat.scratchpad.set("name", "Alice")
            carried = Snapshot.from_bytes(chat.snapshot().to_bytes())
            other = target.conversation("other")
            other.restore(carried)
            assert [(m.role, m.content, m.tokens) for m in other.window()] == [("user", "hello", 5)]
            assert (other.token_count(), other.scratchpad.get("name")) == (5, "Alice")

    def test_a_snapshot_above_the_budget_here_brings_its_own_budget(self) -> None:
        with remembering() as source, remembering(window_tokens=10) as target:
            chat = source.conversation("chat")
            for _ in range(3):
                chat.append("user", "hello", tokens=50)
            other = target.conversation("other")
            other.append("user", "small", tokens=1)
            other.restore(Snapshot.from_bytes(chat.snapshot().to_bytes()))
            assert (other.token_count(), other.window_tokens) == (150, 128_000)

    def test_the_window_is_a_copy(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", [{"type": "text", "text": "hello"}], tokens=1, metadata={"tags": ["a"]})
            chat.window().clear()
            message = chat.window()[0]
            assert isinstance(message.content, list)
            message.content[0]["text"] = "changed"
            assert message.metadata is not None
            message.metadata["tags"].append("b")
            chat.messages()[0]["content"][0]["text"] = "changed"
            again = chat.window()[0]
            assert (again.content, again.metadata) == ([{"type": "text", "text": "hello"}], {"tags": ["a"]})

    def test_what_was_given_is_copied_too(self) -> None:
        with remembering() as memory:
            content, metadata = [{"type": "text", "text": "hello"}], {"tags": ["a"]}
            chat = memory.conversation("chat")
            chat.append("user", content, tokens=1, metadata=metadata)
            content[0]["text"] = "changed"
            metadata["tags"].append("b")
            message = chat.window()[0]
            assert (message.content, message.metadata) == ([{"type": "text", "text": "hello"}], {"tags": ["a"]})

    def test_a_message_cannot_be_changed(self) -> None:
        message = Memory().conversation("chat").append("user", "hello")
        for field in ("content", "tokens", "seq", "event"):
            with pytest.raises(AttributeError):
                setattr(message, field, None)

    def test_restoring_refuses_a_total_that_is_not_the_sum(self) -> None:
        from hashlib import sha256

        import msgspec

        chat = Memory().conversation("chat")
        chat.append("user", "hello", tokens=5)
        rendered = chat.snapshot().to_bytes()
        head, payload = rendered[:9], msgspec.msgpack.decode(rendered[41:])
        payload[3] = 6
        changed = msgspec.msgpack.encode(payload)
        with pytest.raises(InvalidInput, match="says 6 tokens, its messages have 5"):
            Snapshot.from_bytes(head + sha256(changed).digest() + changed)

    def test_pins_that_alone_exceed_the_budget_are_refused(self) -> None:
        memory = Memory(window_tokens=10)
        chat = memory.conversation("chat")
        chat.append("system", "be kind", tokens=6, pinned=True)
        with refused(memory, LimitExceeded, "11", "10", "set_window_tokens"):
            chat.append("system", "be brief", tokens=5, pinned=True)
