"""What a snapshot shows by itself, and restores that keep the window's budget, or other views."""

import asyncio
import json
from itertools import combinations
from typing import Any

import pytest

from refold import Conversation, InvalidInput, LimitExceeded, Memory, ReadOnly, Snapshot, WrongVersion
from tests.support.memories import refused, remembering


def filled(memory: Memory) -> Conversation:
    chat = memory.conversation("chat", project="acme", window_tokens=10)
    for number in range(4):
        chat.append("user", f"message {number}", tokens=3)
    chat.scratchpad.set("b", "2")
    chat.scratchpad.set("a", "1")
    chat.scratchpad.note("noted")
    chat.state["plan"] = {"steps": [1, None]}
    return chat


class TestASnapshotShows:
    def test_its_messages_and_their_tokens(self) -> None:
        with remembering() as memory:
            chat = filled(memory)
            snapshot, window = chat.snapshot(), chat.window()
            chat.append("user", "later", tokens=1)
            assert snapshot.messages == window
            assert (snapshot.tokens, len(snapshot.messages)) == (9, 3)
            assert chat.at(2).snapshot().tokens == 3
            carried = Snapshot.from_bytes(snapshot.to_bytes())
            assert carried.tokens == 9
            assert [message.content for message in carried.messages] == [message.content for message in window]
            assert {message.seq for message in carried.messages} == {snapshot.seq}
            snapshot.messages.clear()
            assert snapshot.messages == window

    def test_all_of_it_as_json(self) -> None:
        with remembering() as memory:
            chat = filled(memory)
            shown = json.loads(chat.snapshot("named").to_json())
            messages = shown.pop("messages")
            assert shown == {
                "stream": "conversation/chat",
                "seq": memory.head - 1,
                "project": "acme",
                "window_tokens": 10,
                "tokens": 9,
                "scratchpad": {"entries": {"a": "1", "b": "2"}, "notes": ["noted"]},
                "state": {"plan": {"steps": [1, None]}},
            }
            assert list(shown["scratchpad"]["entries"]) == ["a", "b"]
            assert [message["content"] for message in messages] == ["message 1", "message 2", "message 3"]
            fork = memory.fork("fork")
            fork.conversation("chat").append("user", "only there", tokens=10)
            assert json.loads(fork.conversation("chat").snapshot().to_json())["tokens"] == 10

    @pytest.mark.parametrize("look", [lambda s: s.messages, lambda s: s.tokens, lambda s: s.to_json()])
    def test_nothing_where_it_is_of_a_whole_memory_or_made_by_hand(self, look: Any) -> None:
        memory = Memory()
        filled(memory)
        with refused(memory, InvalidInput, "of a whole memory"):
            look(memory.snapshot())
        with refused(memory, InvalidInput, "made by hand"):
            look(Snapshot("conversation/chat", 3))


class TestARestoreThatKeepsTheBudget:
    def test_evicts_what_does_not_fit_in_one_commit(self) -> None:
        with remembering() as memory:
            chat = filled(memory)
            snapshot = chat.snapshot()
            chat.clear_window()
            chat.set_window_tokens(6)
            head = memory.head
            chat.restore(snapshot, keep_budget=True)
            assert (chat.window_tokens, chat.token_count()) == (6, 6)
            assert [message.content for message in chat.window()] == ["message 2", "message 3"]
            assert len({recorded.stamp.time_ns for recorded in chat.events(after=head)}) == 1
            chat.restore(snapshot)
            assert (chat.window_tokens, chat.token_count()) == (10, 9)

    def test_from_bytes_into_another_store(self) -> None:
        with Memory() as other:
            rendered = filled(other).snapshot().to_bytes()
        with remembering() as memory:
            chat = memory.conversation("taker", window_tokens=100)
            chat.restore(Snapshot.from_bytes(rendered), keep_budget=True)
            assert (chat.window_tokens, chat.token_count()) == (100, 9)

    def test_answers_a_request_once(self) -> None:
        with remembering() as memory:
            chat = filled(memory)
            snapshot = chat.snapshot()
            chat.set_window_tokens(6)
            chat.restore(snapshot, keep_budget=True, request_id="once")
            head = memory.head
            chat.restore(snapshot, keep_budget=True, request_id="once")
            assert memory.head == head
            with refused(memory, InvalidInput, "request_id"):
                chat.restore(snapshot, request_id="once")

    def test_changes_nothing_where_pinned_messages_do_not_fit(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat", window_tokens=10)
        chat.append("user", "pinned", tokens=8, pinned=True)
        snapshot = chat.snapshot()
        chat.clear_window()
        chat.set_window_tokens(5)
        with refused(memory, LimitExceeded, "pinned messages hold 8 tokens"):
            chat.restore(snapshot, keep_budget=True)

    def test_is_part_of_an_open_batch_and_awaited(self) -> None:
        with remembering() as memory:
            chat = filled(memory)
            snapshot = chat.snapshot()
            chat.set_window_tokens(6)
            with memory.batch():
                chat.restore(snapshot, keep_budget=True)
                chat.append("user", "and on", tokens=1)
            assert (chat.window_tokens, chat.token_count()) == (6, 4)

            async def work() -> None:
                twin = memory.aio.conversation("chat")
                await twin.restore(snapshot)
                await twin.set_window_tokens(7)
                await twin.restore(snapshot, keep_budget=True)
                async with memory.aio.batch():
                    await twin.restore(snapshot, keep_budget=True)

            asyncio.run(work())
            assert (chat.window_tokens, chat.token_count()) == (7, 6)


def worked(memory: Memory) -> tuple[Conversation, Snapshot]:
    """Return a conversation that went on in all of its views since its snapshot."""
    chat = memory.conversation("chat")
    chat.append("user", "one")
    chat.scratchpad.set("kept", "1")
    chat.scratchpad.set("changed", "before")
    chat.scratchpad.note("first")
    chat.state["step"] = 1
    snapshot = chat.snapshot("then")
    chat.append("user", "two")
    chat.scratchpad.set("changed", "after")
    chat.scratchpad.set("new", "2")
    chat.scratchpad.note("second")
    chat.state["step"] = 2
    chat.state["temp:draft"] = [1]
    return chat, snapshot


def held(chat: Conversation) -> dict[str, Any]:
    return {
        "window": [message.content for message in chat.window()],
        "scratchpad": chat.scratchpad.to_dict(),
        "state": dict(chat.state.items()),
    }


SUBSETS = [views for count in (1, 2, 3) for views in combinations(("window", "scratchpad", "state"), count)]


class TestARestoreOfSomeViews:
    @pytest.mark.parametrize("views", SUBSETS, ids="-".join)
    @pytest.mark.parametrize("form", ["a pointer", "a name", "bytes"])
    def test_leaves_the_others_as_they_are(self, views: tuple[str, ...], form: str) -> None:
        with remembering() as memory:
            chat, snapshot = worked(memory)
            before, then, head = held(chat), held(chat.at(snapshot.seq)), memory.head
            forms: dict[str, Snapshot | str] = {
                "a pointer": snapshot,
                "a name": "then",
                "bytes": Snapshot.from_bytes(snapshot.to_bytes()),
            }
            chat.restore(forms[form], views=views)
            assert held(chat) == before | {view: then[view] for view in views}
            assert len({recorded.stamp.time_ns for recorded in chat.events(after=head)}) == 1
            head = memory.head
            chat.restore(forms[form], views=views)
            assert memory.head == head, "nothing changed"

    @pytest.mark.parametrize("views", SUBSETS, ids="-".join)
    def test_from_bytes_into_another_store(self, views: tuple[str, ...]) -> None:
        with Memory() as other:
            chat, snapshot = worked(other)
            then, rendered = held(chat.at(snapshot.seq)), snapshot.to_bytes()
        with remembering() as memory:
            taker = memory.conversation("taker")
            taker.append("user", "own")
            taker.scratchpad.note("own note")
            taker.state["own"] = True
            before = held(taker)
            for _ in range(2):
                taker.restore(Snapshot.from_bytes(rendered), views=views)
                head = memory.head
                assert held(taker) == before | {view: then[view] for view in views}
            assert memory.head == head, "the second one changed nothing"

    def test_an_erasure_reaches_what_was_kept(self) -> None:
        with remembering() as memory:
            chat, snapshot = worked(memory)
            (secret,) = [each.stamp.seq for each in chat.events() if getattr(each.event, "value", "") == "after"]
            chat.restore(snapshot, views=["window"])
            assert chat.scratchpad.get("changed") == "after"
            memory.erase([secret])
            assert "after" not in str(held(chat))

    def test_answers_a_request_once(self) -> None:
        with remembering() as memory:
            chat, snapshot = worked(memory)
            chat.restore(snapshot, views=["scratchpad"], request_id="once")
            chat.scratchpad.set("changed", "later")
            chat.restore(snapshot, views=["scratchpad"], request_id="once")
            assert chat.scratchpad.get("changed") == "later"
            with refused(memory, InvalidInput, "request_id"):
                chat.restore(snapshot, views=["state"], request_id="once")

    def test_is_decided_at_the_expected_version(self) -> None:
        memory = Memory()
        chat, snapshot = worked(memory)
        with refused(memory, WrongVersion):
            chat.restore(snapshot, views=["window"], expected=chat.version - 1)
        chat.restore(snapshot, views=["window"], expected=chat.version)
        assert held(chat)["window"] == ["one"]

    def test_keeps_the_budget_where_it_is_asked_to(self) -> None:
        with remembering() as memory:
            chat = filled(memory)
            snapshot = chat.snapshot()
            chat.scratchpad.set("key", "value")
            chat.set_window_tokens(6)
            chat.restore(snapshot, views=["window"], keep_budget=True)
            assert (chat.window_tokens, chat.token_count(), chat.scratchpad.get("key")) == (6, 6, "value")

    def test_is_part_of_an_open_batch_and_awaited(self) -> None:
        with remembering() as memory:
            chat, snapshot = worked(memory)
            with memory.batch():
                chat.scratchpad.set("in the batch", "3")
                chat.restore(snapshot, views=["window"])
            assert (held(chat)["window"], chat.scratchpad.get("in the batch")) == (["one"], "3")

            async def work() -> None:
                twin = memory.aio.conversation("chat")
                await twin.restore(snapshot, views=["state"])
                async with memory.aio.batch():
                    await twin.restore(snapshot, views=["scratchpad"])

            asyncio.run(work())
            assert held(chat) == held(chat.at(snapshot.seq))

    @pytest.mark.parametrize(
        ("views", "text"), [("window", "not str"), ([], "is empty"), (["board"], "'board'"), (7, "not int")], ids=repr
    )
    def test_is_refused_for_other_views(self, views: Any, text: str) -> None:
        memory = Memory()
        chat, snapshot = worked(memory)
        with refused(memory, InvalidInput, text):
            chat.restore(snapshot, views=views)

    def test_is_refused_of_the_past(self) -> None:
        memory = Memory()
        chat, snapshot = worked(memory)
        with refused(memory, ReadOnly):
            chat.at(memory.head).restore(snapshot, views=["state"])


def test_a_restore_takes_back_whether_messages_are_embedded(memory: Memory) -> None:
    chat = memory.conversation("chat")
    chat.append("user", "hello")
    snapshot = chat.snapshot()
    chat.set_embed(embed=True)
    chat.restore(snapshot)
    assert not chat.embed
    head = memory.head
    chat.restore(snapshot)
    assert memory.head == head, "nothing differs any more"


class TestAForkOfAStateBeforeTheConversationBegan:
    @pytest.fixture
    def late(self, memory: Memory) -> Conversation:
        memory.profile().set("theme", "dark")
        memory.profile().set("theme", "light")
        late = memory.conversation("late", project="p", window_tokens=60)
        late.append("user", "hello", tokens=5)
        return late

    @pytest.mark.parametrize("seq", [0, 1, 2])
    def test_is_refused_with_the_seq_at_which_it_began(self, memory: Memory, late: Conversation, seq: int) -> None:
        words = f"conversation/late began at seq 3, after seq {seq}; give a seq from 3 on"
        with refused(memory, InvalidInput, words):
            late.fork("early", at=seq)
        memory.board(session="late").set("working_history", "a board is forked with it")
        with refused(memory, InvalidInput, words):
            late.fork("early", at=seq)
        late.fork("early")
        with refused(memory, InvalidInput, words):
            late.fork("early", at=seq, replace=True)
        assert memory.at(seq).conversation("late").window() == late.at(seq).window() == []

    def test_is_refused_for_a_fork_too(self, memory: Memory, late: Conversation) -> None:
        fork = late.fork("fork")
        began = memory.head
        with refused(memory, InvalidInput, f"conversation/fork began at seq {began}, after seq {began - 1}"):
            fork.fork("deeper", at=began - 1)
        assert [message.content for message in fork.fork("deeper", at=began).window()] == ["hello"]

    def test_is_refused_for_what_has_not_begun(self, memory: Memory, late: Conversation) -> None:
        assert late.fork("early", at=3).window_tokens == 60
        with refused(memory, InvalidInput, "conversation/never has no events; append something first, or leave out at"):
            memory.conversation("never").fork("empty", at=3)
        assert memory.conversation("never").fork("empty").window() == []

    def test_goes_by_what_a_fork_of_the_memory_inherited(self, memory: Memory, late: Conversation) -> None:
        branch = memory.fork("branch", at=4)
        inherited = branch.conversation(late.id)
        with refused(memory, InvalidInput, "conversation/late began at seq 3, after seq 2"):
            inherited.fork("early", at=2)
        assert [message.content for message in inherited.fork("whole", at=4).window()] == ["hello"]
