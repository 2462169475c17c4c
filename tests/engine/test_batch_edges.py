"""The edges of a batch: what it refuses, restores inside it, and the contexts that it belongs to."""

import asyncio
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, overload

import pytest

from refold import (
    Closed,
    InvalidInput,
    Memory,
    NotFound,
    ReadOnly,
    Snapshot,
    WrongVersion,
)
from refold.engine import transaction
from refold.memory.files import EDITS_COUNT_MAX
from tests.support.memories import assert_sound, elsewhere, in_batch, remembering


def test_a_conversation_that_the_batch_itself_emptied_may_be_opened_with_another_budget() -> None:
    with remembering() as memory:
        nothing = memory.conversation("chat").snapshot()
        memory.conversation("chat", window_tokens=100).append("user", "x", tokens=1)
        with memory.batch():
            memory.conversation("chat").restore(nothing)
            memory.conversation("chat", window_tokens=60).append("user", "y", tokens=1)
        assert memory.conversation("chat").window_tokens == 60
        with memory.batch(), pytest.raises(InvalidInput, match="has a budget of 60 tokens"):
            memory.conversation("chat", window_tokens=100)


@pytest.mark.parametrize("copied", ["text", "file", "count"])
def test_what_is_erased_while_a_batch_is_open_is_not_brought_back_by_what_it_has_read(
    tmp_path: Path, copied: str
) -> None:
    with remembering(tmp_path / "store") as memory:
        chat, files, profile = memory.conversation("chat"), memory.files(), memory.profile()
        chat.append("user", "a secret word", tokens=1)
        files.create("/memories/plan.md", "a secret word\n" * 100)
        for number in range(EDITS_COUNT_MAX):
            files.insert("/memories/plan.md", number, "x")
        calls: dict[str, Callable[[], object]] = {
            "text": lambda: profile.set("said", str(chat.window()[0].content)),
            "file": lambda: files.insert("/memories/plan.md", 0, "written whole"),
            "count": lambda: profile.set("count", str(chat.token_count())),
        }
        head = memory.head
        with pytest.raises(WrongVersion, match="erased while a batch was open"):
            in_batch(memory, calls[copied], lambda: elsewhere(lambda: memory.erase([2, 3])))
        assert (memory.head, profile.items(), files.list()) == (head + 1, [], [])
        in_batch(memory, lambda: profile.set("said", str(chat.window()[0].content)))
        assert profile.get("said") == "None"
    assert b"a secret word" not in (tmp_path / "store" / "data.mdb").read_bytes()


def test_an_erasure_is_no_business_of_a_batch_that_read_nothing(memory: Memory) -> None:
    chat = memory.conversation("chat")
    chat.append("user", "a secret word", tokens=1)
    in_batch(memory, lambda: chat.append("user", "x", tokens=1), lambda: elsewhere(lambda: memory.erase([2])))
    assert [message.content for message in chat.window()] == [None, "x"]


class TestRefused:
    def test_inside_a_batch(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat")
        chat.append("user", "x", tokens=1)
        snapshot = chat.snapshot()
        with memory.batch():
            for call in (
                memory.batch().__enter__,
                chat.snapshot,
                lambda: chat.snapshot("name"),
                lambda: chat.fork("fork"),
                lambda: memory.load("file"),
            ):
                with pytest.raises(InvalidInput, match="batch"):
                    call()
            chat.append("user", "y", tokens=1)
            chat.restore(snapshot)
            assert chat.token_count() == 1
        assert chat.token_count() == 1
        assert_sound(memory)

    def test_a_batch_that_was_used_before(self) -> None:
        memory = Memory()
        batch = memory.batch()
        with batch:
            memory.profile().set("k", "v")
        with pytest.raises(InvalidInput, match="was used before; take a new one"), batch:
            memory.profile().set("k", "w")
        assert (memory.head, memory.profile().get("k")) == (1, "v")

    def test_where_nothing_can_be_written(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            memory.profile().set("k", "v")
            with pytest.raises(ReadOnly):
                memory.at(1).batch()
        with Memory(tmp_path / "store", readonly=True) as memory, pytest.raises(ReadOnly), memory.batch():
            pass
        with pytest.raises(Closed), memory.batch():
            pass

    def test_one_that_is_closed_before_it_ends(self) -> None:
        memory = Memory()
        with pytest.raises(Closed):
            in_batch(memory, lambda: memory.profile().set("k", "v"), memory.close)

    def test_too_many_events(self, monkeypatch: pytest.MonkeyPatch) -> None:
        from refold.engine import transaction

        monkeypatch.setattr(transaction, "BATCH_EVENTS_MAX", 10)
        memory = Memory()
        with memory.batch():
            for number in range(9):
                memory.conversation("chat").append("user", str(number), tokens=1)
            with pytest.raises(Exception, match="BATCH_EVENTS_MAX = 10 events; commit in several batches"):
                memory.conversation("chat").append("user", "one more", tokens=1)
            with pytest.raises(Exception, match="BATCH_EVENTS_MAX"):
                memory.conversation("new").scratchpad.set("k", "v")
        assert memory.head == 10
        assert_sound(memory)


class TestRestoring:
    def test_inside_a_batch_goes_on_from_there(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", "one", tokens=1)
            snapshot = chat.snapshot()
            chat.clear_window()
            chat.scratchpad.set("k", "v")
            with memory.batch():
                chat.restore(snapshot)
                assert (chat.token_count(), chat.scratchpad.keys()) == (1, [])
                chat.append("user", "two", tokens=1)
                chat.scratchpad.set("a", "b")
            assert (chat.token_count(), chat.scratchpad.keys()) == (2, ["a"])

    def test_of_carried_bytes_inside_a_batch(self) -> None:
        other = Memory()
        other.conversation("o").append("user", "carried", tokens=2)
        carried = Snapshot.from_bytes(other.conversation("o").snapshot().to_bytes())
        with remembering() as memory:
            with memory.batch():
                memory.conversation("chat").restore(carried)
                memory.conversation("chat").append("user", "more", tokens=1)
                assert memory.conversation("chat").token_count() == 3
            assert memory.conversation("chat").token_count() == 3

    def test_a_name_that_is_not_is_not_found(self) -> None:
        memory = Memory()
        with memory.batch(), pytest.raises(NotFound):
            memory.conversation("chat").restore("absent")
        assert memory.head == 0


class TestContexts:
    def test_two_memories_have_batches_of_their_own(self) -> None:
        with remembering() as one, remembering() as other:
            with one.batch(), other.batch():
                one.profile().set("k", "one")
                other.profile().set("k", "other")
                assert (one.head, other.head) == (0, 0)
            assert (one.profile().get("k"), other.profile().get("k")) == ("one", "other")

    def test_tasks_have_batches_of_their_own(self) -> None:
        with remembering() as memory:

            async def work(name: str) -> None:
                with memory.batch():
                    memory.conversation(name).scratchpad.set("k", name)
                    await asyncio.sleep(0)
                    memory.conversation(name).append("user", name, tokens=1)
                    await asyncio.sleep(0)
                    assert memory.conversation(name).token_count() == 1

            async def everything() -> None:
                await asyncio.gather(*(work(f"chat-{number}") for number in range(10)))

            asyncio.run(everything())
            assert len(memory.conversations()) == 10

    def test_threads_do_not_inherit_it(self) -> None:
        with remembering() as memory:
            with memory.batch():
                memory.conversation("inside").scratchpad.set("k", "v")
                elsewhere(lambda: memory.conversation("outside").scratchpad.set("k", "v"))
                assert elsewhere(lambda: memory.head) == 2
            assert memory.head == 4


class CountedPlaces(Sequence[int]):
    """The places of a batch, which count how often one of them is looked at."""

    looked = 0

    def __init__(self, places: Sequence[int]) -> None:
        self._places = places

    @overload
    def __getitem__(self, index: int) -> int: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[int]: ...
    def __getitem__(self, index: int | slice) -> int | Sequence[int]:
        CountedPlaces.looked += 1
        return self._places[index]

    def __iter__(self) -> Iterator[int]:
        for place in self._places:
            CountedPlaces.looked += 1
            yield place

    def __len__(self) -> int:
        return len(self._places)


def test_a_batch_of_many_requests_does_not_look_at_every_event_for_each(monkeypatch: pytest.MonkeyPatch) -> None:
    places_of: Callable[..., Sequence[int]] = transaction._places

    def counted(*given: Any) -> CountedPlaces:
        return CountedPlaces(places_of(*given))

    monkeypatch.setattr(transaction, "_places", counted)
    monkeypatch.setattr(CountedPlaces, "looked", 0)
    memory = Memory()
    chat = memory.conversation("chat")
    with memory.batch():
        for number in range(1_000):
            chat.append("user", str(number), tokens=1, request_id=str(number))
    # Twice the depth of a binary search for each, and a few rounds over all of them.
    assert CountedPlaces.looked < 1_000 * (2 * 11 + 10)
    assert [chat.append("user", str(number), tokens=1, request_id=str(number)).seq for number in (0, 999)] == [2, 1_001]
    assert_sound(memory)
