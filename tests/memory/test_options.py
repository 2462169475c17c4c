"""The three options of every mutation: the version it expects, the id of its request, the sources it came from."""

import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from refold import ANY, EXISTS, NO_STREAM, InvalidInput, Memory, WrongVersion
from tests.support.memories import assert_sound, refused, remembering

Mutation = Callable[[Memory], Callable[..., Any]]

MUTATIONS: dict[str, tuple[str, Mutation, tuple[Any, ...]]] = {
    "append": ("conversation/chat", lambda memory: memory.conversation("chat").append, ("user", "x")),
    "set": ("conversation/chat", lambda memory: memory.conversation("chat").set, ("new", "v")),
    "delete": ("conversation/chat", lambda memory: memory.conversation("chat").delete, ("k",)),
    "note": ("conversation/chat", lambda memory: memory.conversation("chat").note, ("x",)),
    "clear": ("conversation/chat", lambda memory: memory.conversation("chat").clear, ()),
    "clear_window": ("conversation/chat", lambda memory: memory.conversation("chat").clear_window, ()),
    "set_window_tokens": ("conversation/chat", lambda memory: memory.conversation("chat").set_window_tokens, (5,)),
    "state.set": ("conversation/chat", lambda memory: memory.conversation("chat").state.set, ("x", 1)),
    "state.delete": ("conversation/chat", lambda memory: memory.conversation("chat").state.delete, ("s",)),
    "end_round": ("conversation/chat", lambda memory: memory.conversation("chat").end_round, ()),
    "end": ("conversation/chat", lambda memory: memory.conversation("chat").end, ()),
    "restore": ("conversation/chat", lambda memory: memory.conversation("chat").restore, ("named",)),
    "fork": ("conversation/new", lambda memory: memory.conversation("chat").fork, ("new",)),
    "close": ("conversation/fork", lambda memory: memory.conversation("fork").close, ()),
    "state.set project": ("project/p", lambda memory: memory.conversation("chat").state.set, ("project:x", 1)),
    "profile.set": ("profile/default", lambda memory: memory.profile().set, ("new", "v")),
    "profile.delete": ("profile/default", lambda memory: memory.profile().delete, ("k",)),
    "journal.append": ("journal/default", lambda memory: memory.journal().append, ("x",)),
}


def filled(path: Path | None = None) -> Memory:
    """Return a memory in which every mutation of the table changes something."""
    memory = Memory(path)
    chat = memory.conversation("chat", project="p")
    chat.append("user", "one", tokens=1)
    chat.snapshot("named")
    chat.set("k", "v")
    chat.state["s"] = 1
    chat.state["temp:t"] = 1
    chat.state["project:k"] = 1
    chat.fork("fork")
    memory.profile().set("k", "v")
    memory.journal().append("first")
    return memory


def call(memory: Memory, name: str, **options: Any) -> Any:
    _, mutation, arguments = MUTATIONS[name]
    if name == "close":
        options["drop"] = True
    return mutation(memory)(*arguments, **options)


def version_of(memory: Memory, name: str) -> int:
    engine = memory._door.engine
    return engine.version(MUTATIONS[name][0])


@pytest.mark.parametrize("name", MUTATIONS)
class TestEveryMutation:
    def test_takes_all_three_by_keyword_only(self, name: str) -> None:
        parameters = inspect.signature(MUTATIONS[name][1](Memory())).parameters if "state" not in name else None
        if parameters is None:
            parameters = inspect.signature(Memory().conversation("c").state.set).parameters
        for option in ("expected", "request_id", "sources"):
            assert parameters[option].kind is inspect.Parameter.KEYWORD_ONLY

    def test_goes_through_at_the_version_it_expects(self, name: str) -> None:
        memory = filled()
        version = version_of(memory, name)
        call(memory, name, expected=version)
        assert version_of(memory, name) == version + 1
        assert_sound(memory)

    @pytest.mark.parametrize("off", [1, -1, 1_000_000])
    def test_fails_at_any_other_and_says_both(self, name: str, off: int) -> None:
        memory = filled()
        version = version_of(memory, name)
        expected = abs(version + off)
        with refused(memory, WrongVersion, f"at version {version}, not at {expected}", "read it again"):
            call(memory, name, expected=expected)
        with pytest.raises(WrongVersion) as raised:
            call(memory, name, expected=expected)
        assert (raised.value.expected, raised.value.actual) == (expected, version)

    def test_knows_whether_its_stream_exists(self, name: str) -> None:
        exists = version_of(filled(), name) > 0
        decoded = b"any".decode()  # Equal to ANY and another object, as it comes out of a file.
        for expected, fits in ((ANY, True), (decoded, True), (EXISTS, exists), (NO_STREAM, not exists)):
            memory = filled()
            if fits:
                call(memory, name, expected=expected)
            else:
                with refused(memory, WrongVersion):
                    call(memory, name, expected=expected)

    def test_is_done_once_for_one_request(self, name: str, tmp_path: Path) -> None:
        with filled(tmp_path / "store") as memory:
            first = call(memory, name, request_id="request")
            head, hashed = memory.head, memory.state_hash()
            assert same(call(memory, name, request_id="request"), first)
            assert (memory.head, memory.state_hash()) == (head, hashed)
        with remembering(tmp_path / "store") as memory:
            assert same(call(memory, name, request_id="request"), first)
            assert (memory.head, memory.state_hash()) == (head, hashed)

    def test_refuses_the_id_of_another_request(self, name: str) -> None:
        memory = filled()
        memory.profile("elsewhere").set("k", "v", request_id="request")
        with refused(memory, InvalidInput, "used for another request", "an id of its own"):
            call(memory, name, request_id="request")

    def test_of_a_failed_request_may_be_tried_again(self, name: str) -> None:
        memory = filled()
        with refused(memory, WrongVersion):
            call(memory, name, request_id="request", expected=99)
        call(memory, name, request_id="request")
        assert_sound(memory)

    def test_keeps_its_sources(self, name: str) -> None:
        memory = filled()
        call(memory, name, sources=[1, 3])
        stream = MUTATIONS[name][0]
        recorded = list(memory._door.engine.events(stream, 0))[-1]
        assert recorded.event.sources == (1, 3)
        assert_sound(memory)


def same(one: Any, other: Any) -> bool:
    """Return whether two results say the same; handles have no equality of their own."""
    return bool(one.id == other.id if hasattr(one, "window") else one == other)


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
        memory.conversation("a").set("k", "v", request_id="r")
        with refused(memory, InvalidInput, "another request"):
            memory.conversation("b").set("k", "v", request_id="r")

    def test_the_expected_version_is_no_part_of_what_was_asked(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            first = chat.append("user", "x", tokens=1, request_id="r", expected=NO_STREAM)
            assert chat.append("user", "x", tokens=1, request_id="r", expected=NO_STREAM) == first

    def test_one_that_changed_nothing_is_answered_so_for_ever(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            assert chat.delete("k", request_id="r") is False
            chat.set("k", "v")
            assert chat.delete("k", request_id="r") is False
            assert chat.get("k") == "v"

    @pytest.mark.parametrize("request_id", ["r", "\u4e16\0", " ", "x" * 1_024], ids=["r", "nul", "space", "long"])
    def test_ids_of_any_text(self, request_id: str, tmp_path: Path) -> None:
        with remembering(tmp_path / "store") as memory:
            for _ in range(3):
                memory.conversation("chat").note("x", request_id=request_id)
            assert memory.conversation("chat").notes() == ["x"]

    def test_neither_id_nor_content_stands_in_the_clear(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            memory.conversation("chat").delete("forgotten-key", request_id="the-request-id")
        content = (tmp_path / "store" / "data.mdb").read_bytes()
        assert b"the-request-id" not in content
        assert b"forgotten-key" not in content


class TestSources:
    def test_are_seqs_or_results(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            message = chat.append("user", "x", tokens=1)
            recorded = next(iter(chat.events()))
            chat.note("derived", sources=[message, recorded, 1, message])
            chat.note("derived", sources=(2,))
            events = [event.sources for event, _ in chat.events()]
            assert events == [(), (), (2, 1, 1, 2), (2,)]

    @pytest.mark.parametrize("count", [0, 1, 4_096])
    def test_up_to_their_bound(self, count: int) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", "x", tokens=1)
            chat.note("derived", sources=[1] * count)
            assert len(list(chat.events())[-1].event.sources) == count

    @pytest.mark.parametrize("source", ["1", 1.0, True, None, ..., b"1", [1]], ids=repr)
    def test_of_no_kind_we_know_are_refused(self, source: Any) -> None:
        memory = Memory()
        memory.conversation("chat").append("user", "x", tokens=1)
        with refused(memory, InvalidInput, "source"):
            memory.conversation("chat").note("derived", sources=[source])
