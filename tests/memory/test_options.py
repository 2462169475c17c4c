"""The three options of every mutation: the version it expects, the id of its request, the sources it came from."""

from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest

from refold import ANY, NO_STREAM, InvalidInput, Memory
from tests.support.memories import refused, remembering


class TestRequests:
    def test_the_first_result_is_rebuilt_from_its_event(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            message = chat.append("user", "hello", tokens=1, metadata={"a": 1}, request_id="r")
            for number in range(20):
                chat.append("user", str(number), tokens=1)
        with Memory(tmp_path / "store") as memory:
            again = memory.conversation("chat").append("user", "hello", tokens=1, metadata={"a": 1}, request_id="r")
            assert again == message
            assert (again.id, again.seq, again.metadata) == (message.id, message.seq, {"a": 1})

    @pytest.mark.parametrize(
        "changed",
        [
            {"role": "assistant"},
            {"content": "other"},
            {"tokens": 2},
            {"tokens": None},
            {"name": "Ann"},
            {"pinned": True},
            {"metadata": {"a": 1}},
            {"occurred": 5},
        ],
        ids=str,
    )
    def test_a_request_that_differs_in_anything_is_another_one(self, changed: dict[str, Any]) -> None:
        memory = Memory()
        chat = memory.conversation("chat")
        asked: dict[str, Any] = {"role": "user", "content": "x", "tokens": 1}
        chat.append(**asked, request_id="r")
        with refused(memory, InvalidInput, "another request"):
            chat.append(**{**asked, **changed}, request_id="r")

    def test_the_same_request_of_another_stream_is_another_one(self) -> None:
        memory = Memory()
        memory.conversation("a").scratchpad.set("k", "v", request_id="r")
        with refused(memory, InvalidInput, "another request"):
            memory.conversation("b").scratchpad.set("k", "v", request_id="r")

    def test_the_expected_version_is_no_part_of_what_was_asked(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            first = chat.append("user", "x", tokens=1, request_id="r", expected=NO_STREAM)
            assert chat.append("user", "x", tokens=1, request_id="r", expected=NO_STREAM) == first

    def test_one_that_changed_nothing_is_answered_so_for_ever(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            assert chat.scratchpad.delete("k", request_id="r") is False
            chat.scratchpad.set("k", "v")
            assert chat.scratchpad.delete("k", request_id="r") is False
            assert chat.scratchpad.get("k") == "v"

    @pytest.mark.parametrize("is_batch", [False, True])
    def test_one_that_changed_nothing_is_answered_as_it_was_then(self, is_batch: bool) -> None:
        memory = Memory()
        project, chat = memory.project(), memory.conversation("chat")

        def ask() -> list[Any]:
            return [
                project.add("The port is 5432.", request_id="add"),
                project.update(entry, importance=0.5, request_id="update"),
                project.review(entry, "active", request_id="review"),
                project.upsert("The port is 5432", importance=0.2, keywords=[], request_id="upsert"),
                chat.replace(message, "Hello!", request_id="replace"),
            ]

        with memory.batch() if is_batch else nullcontext():
            entry, message = project.add("The port is 5432."), chat.append("user", "Hello!")
            count, first = memory.stats().events, ask()
            assert memory.stats().events == count
            project.update(entry, importance=0.9)
            project.archive(entry)
            chat.replace(message, "Goodbye!")
            assert ask()[:3] + ask()[4:] == first[:3] + first[4:]
            project.delete(entry)
            chat.clear_window()
            again = ask()
            assert again[:3] + again[4:] == first[:3] + first[4:]
        if not is_batch:
            assert again[3] == first[3]
            assert (first[3].outcome, first[3].entry.id) == ("skipped", entry.id)
            assert first[3].cosine > 0.85
            memory.erase([entry])
            assert project.add("The port is 5432.", request_id="add").erased
            assert project.update(entry, importance=0.5, request_id="update").erased

    @pytest.mark.parametrize("request_id", ["r", "\u4e16\0", " ", "x" * 1_024], ids=["r", "nul", "space", "long"])
    def test_ids_of_any_text(self, request_id: str, tmp_path: Path) -> None:
        with remembering(tmp_path / "store") as memory:
            for _ in range(3):
                memory.conversation("chat").scratchpad.note("x", request_id=request_id)
            assert memory.conversation("chat").scratchpad.notes() == ["x"]

    def test_neither_id_nor_content_stands_in_the_clear(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            memory.conversation("chat").scratchpad.delete("forgotten-key", request_id="the-request-id")
        content = (tmp_path / "store" / "data.mdb").read_bytes()
        assert b"the-request-id" not in content
        assert b"forgotten-key" not in content


class TestSources:
    def test_are_seqs_or_results(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            message = chat.append("user", "x", tokens=1)
            recorded = next(iter(chat.events()))
            chat.scratchpad.note("derived", sources=[message, recorded, 1, message])
            chat.scratchpad.note("derived", sources=(2,))
            events = [event.sources for event, _ in chat.events()]
            assert events == [(), (), (2, 1, 1, 2), (2,)]

    @pytest.mark.parametrize("count", [0, 1, 4_096])
    def test_up_to_their_bound(self, count: int) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", "x", tokens=1)
            chat.scratchpad.note("derived", sources=[1] * count)
            assert len(list(chat.events())[-1].event.sources) == count

    @pytest.mark.parametrize("source", ["1", 1.0, True, None, ..., b"1", [1]], ids=repr)
    def test_of_no_kind_we_know_are_refused(self, source: Any) -> None:
        memory = Memory()
        memory.conversation("chat").append("user", "x", tokens=1)
        with refused(memory, InvalidInput, "source"):
            memory.conversation("chat").scratchpad.note("derived", sources=[source])


@pytest.mark.parametrize("expected", [ANY, b"any".decode(), NO_STREAM, 0])
def test_what_an_empty_stream_may_be_expected_to_be(expected: Any) -> None:
    """The second equals ``ANY`` and is another object, as it comes out of a file."""
    with remembering() as memory:
        assert memory.conversation("chat").append("user", "x", expected=expected).seq == 2
