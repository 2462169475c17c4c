"""Whatever a caller passes works, or is refused with a typed error that says why; nothing is half done."""

import datetime
import enum
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import Closed, Conversation, InvalidInput, Memory, RefoldError, Snapshot, limits
from tests.support.memories import assert_sound, cyclic, nested, remembering


class Word(str):
    __slots__ = ()


class Number(int):
    pass


class Decimal(float):
    pass


class Colour(enum.StrEnum):
    RED = "red"


class Level(enum.IntEnum):
    HIGH = 3


class Unshowable:
    def __repr__(self) -> str:
        raise RuntimeError


def cyclic_list() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


VALUES: dict[str, Any] = {
    "nothing": None,
    "a truth": True,
    "zero": 0,
    "a negative": -1,
    "an integer of 100 bits": 2**100,
    "an integer of 5,000 digits": 10**5_000,
    "a float": 1.5,
    "not a number": float("nan"),
    "an infinity": float("inf"),
    "an empty text": "",
    "a text": "text",
    "a NUL": "a\0b",
    "a lone surrogate": "\ud800",
    "a long text": "x" * 10_000,
    "bytes": b"bytes",
    "bytes that are no UTF-8": b"\xff",
    "a tuple": (1, 2),
    "a list": ["a", 1],
    "a list of dicts": [{"a": 1}],
    "a list of lists": [[1]],
    "a list of itself": cyclic_list(),
    "a dict": {"a": 1},
    "a dict without text as key": {1: 2},
    "a dict of itself": cyclic(),
    "a set": {1},
    "a nesting of 100,000": nested(100_000),
    "a nesting just too deep": nested(limits.JSON_DEPTH_MAX + 1),
    "a nesting just deep enough": nested(limits.JSON_DEPTH_MAX),
    "a subclass of str": Word("word"),
    "a subclass of int": Number(3),
    "a subclass of float": Decimal(1.5),
    "a text of an enum": Colour.RED,
    "a number of an enum": Level.HIGH,
    "an iterator": iter(()),
    "an object": ...,
    "an object that cannot be shown": Unshowable(),
    "a type": dict,
    "a function": print,
    "a date": datetime.date(2026, 11, 21),
    "a naive moment": datetime.datetime(2026, 11, 21),  # noqa: DTZ001 - refused because it is naive
    "the first moment": datetime.datetime(1, 1, 1, tzinfo=datetime.UTC),
    "the last moment": datetime.datetime(9999, 12, 31, 23, 59, 59, tzinfo=datetime.UTC),
    "a path": Path("absent"),
}

VERBS: dict[str, Callable[[Memory, Conversation, Any], object]] = {
    "append role": lambda _, chat, value: chat.append(value, "x"),
    "append content": lambda _, chat, value: chat.append("user", value),
    "append part": lambda _, chat, value: chat.append("user", [{"type": "text", "text": value}]),
    "append block": lambda _, chat, value: chat.append("user", [{"type": "tool_result", "tool_use_id": value}]),
    "append tokens": lambda _, chat, value: chat.append("user", "x", tokens=value),
    "append name": lambda _, chat, value: chat.append("user", "x", name=value),
    "append tool_calls": lambda _, chat, value: chat.append("assistant", None, tool_calls=value),
    "append call": lambda _, chat, value: chat.append("assistant", None, tool_calls=[{"id": value, "function": value}]),
    "append arguments": lambda _, chat, value: chat.append(
        "assistant", None, tool_calls=[{"id": "x", "function": {"name": value, "arguments": value}}]
    ),
    "append tool_call_id": lambda _, chat, value: chat.append("tool", "x", tool_call_id=value),
    "append pinned": lambda _, chat, value: chat.append("user", "x", tokens=1, pinned=value),
    "append metadata": lambda _, chat, value: chat.append("user", "x", metadata=value),
    "append metadata value": lambda _, chat, value: chat.append("user", "x", metadata={"key": value}),
    "append metadata key": lambda _, chat, value: chat.append("user", "x", metadata={hashable(value): 1}),
    "append occurred": lambda _, chat, value: chat.append("user", "x", occurred=value),
    "append expected": lambda _, chat, value: chat.append("user", "x", expected=value),
    "append request_id": lambda _, chat, value: chat.append("user", "x", request_id=value),
    "append sources": lambda _, chat, value: chat.append("user", "x", sources=value),
    "append source": lambda _, chat, value: chat.append("user", "x", sources=[value]),
    "window last": lambda _, chat, value: chat.window(value),
    "messages format": lambda _, chat, value: chat.messages(format=value),
    "set_window_tokens": lambda _, chat, value: chat.set_window_tokens(value),
    "clear_window expected": lambda _, chat, value: chat.clear_window(expected=value),
    "set key": lambda _, chat, value: chat.scratchpad.set(value, "x"),
    "set value": lambda _, chat, value: chat.scratchpad.set("key", value),
    "get": lambda _, chat, value: chat.scratchpad.get(value),
    "delete": lambda _, chat, value: chat.scratchpad.delete(value),
    "note": lambda _, chat, value: chat.scratchpad.note(value),
    "clear request_id": lambda _, chat, value: chat.scratchpad.clear(request_id=value),
    "state key": lambda _, chat, value: chat.state.set(value, 1),
    "state value": lambda _, chat, value: chat.state.set("key", value),
    "state item": lambda _, chat, value: chat.state.__setitem__("project:key", value),
    "state get": lambda _, chat, value: chat.state.get(value),
    "state delete": lambda _, chat, value: chat.state.delete(value),
    "end expected": lambda _, chat, value: chat.end(expected=value),
    "end_round sources": lambda _, chat, value: chat.end_round(sources=value),
    "events": lambda _, chat, value: list(chat.events(value)),
    "at": lambda _, chat, value: chat.at(value),
    "snapshot": lambda _, chat, value: chat.snapshot(value),
    "restore": lambda _, chat, value: chat.restore(value),
    "fork": lambda _, chat, value: chat.fork(value),
    "fork at": lambda _, chat, value: chat.fork("new", at=value).close(drop=True),
    "close": lambda _, chat, value: chat.close(drop=value),
    "replay after": lambda _, chat, value: len(list(chat.replay(after=value))),
    "replay until": lambda _, chat, value: len(list(chat.replay(until=value))),
    "conversation": lambda memory, _, value: memory.conversation(value),
    "conversation project": lambda memory, _, value: memory.conversation("new", project=value),
    "conversation budget": lambda memory, _, value: memory.conversation("new", window_tokens=value),
    "profile": lambda memory, _, value: memory.profile(value),
    "profile key": lambda memory, _, value: memory.profile().set(value, "x"),
    "profile value": lambda memory, _, value: memory.profile().set("key", value),
    "profile get": lambda memory, _, value: memory.profile().get(value),
    "profile delete": lambda memory, _, value: memory.profile().delete(value),
    "journal": lambda memory, _, value: memory.journal(value),
    "journal text": lambda memory, _, value: memory.journal().append(value),
    "journal day": lambda memory, _, value: memory.journal().append("x", day=value),
    "journal occurred": lambda memory, _, value: memory.journal().append("x", occurred=value),
    "journal of day": lambda memory, _, value: memory.journal().day(value),
    "journal recent": lambda memory, _, value: memory.journal().recent(value),
    "files": lambda memory, _, value: memory.files(value),
    "files path": lambda memory, _, value: memory.files().create(value, "x"),
    "files text": lambda memory, _, value: memory.files().create("/memories/x", value),
    "files line": lambda memory, _, value: memory.files().insert("/memories/x", value, "x"),
    "files range": lambda memory, _, value: memory.files().view("/memories", value),
    "conversations after": lambda memory, _, value: memory.conversations(after=value),
    "conversations limit": lambda memory, _, value: memory.conversations(limit=value),
    "conversations prefix": lambda memory, _, value: memory.conversations(prefix=value),
    "projects after": lambda memory, _, value: memory.projects(after=value),
    "memory at": lambda memory, _, value: memory.at(value),
    "state_hash": lambda memory, _, value: memory.state_hash(value),
    "replay_hash": lambda memory, _, value: memory.replay_hash(value),
    "diff": lambda memory, _, value: memory.diff(value, 0),
    "diff to": lambda memory, _, value: memory.diff(0, value),
    "load": lambda memory, _, value: memory.load(value),
    "from_bytes": lambda _, __, value: Snapshot.from_bytes(value),
    "Memory durability": lambda _, __, value: Memory(durability=value),
    "Memory window_tokens": lambda _, __, value: Memory(window_tokens=value),
    "Memory memory_bytes": lambda _, __, value: Memory(memory_bytes=value),
    "Memory embedder": lambda _, __, value: Memory(embedder=value),
    "Memory token_counter": lambda _, __, value: Memory(token_counter=value),
    "Memory timezone": lambda _, __, value: Memory(timezone=value),
    "Memory clear": lambda _, __, value: Memory(clear_scratchpads_on_open=value),
    "Memory readonly": lambda _, __, value: Memory(readonly=value),
    "Memory witness": lambda _, __, value: Memory(witness=value),
    "Memory clock_ns": lambda _, __, value: Memory(clock_ns=unless_callable(value)),
    "Memory random_bytes": lambda _, __, value: Memory(random_bytes=unless_callable(value)),
}


def hashable(value: Any) -> Any:
    try:
        hash(value)
    except TypeError:
        return "key"
    return value


def unless_callable(value: Any) -> Any:
    return None if callable(value) else value


@pytest.fixture
def memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Memory]:
    monkeypatch.chdir(tmp_path)
    with remembering(tmp_path / "store") as memory:
        chat = memory.conversation("chat", project="project")
        chat.append("user", "hello", tokens=1)
        chat.scratchpad.set("kept", "value")
        yield memory


@pytest.mark.parametrize("verb", VERBS)
def test_any_value_works_or_is_refused_whole(memory: Memory, verb: str) -> None:
    chat = memory.conversation("chat")
    for what, value in VALUES.items():
        head = memory.head
        try:
            VERBS[verb](memory, chat, value)
        except RefoldError as error:
            said = str(error)
            assert memory.head == head, f"{what} was refused and appended"
            assert len(said) > 10, f"{what}: {said}"
        except Exception as error:
            raise AssertionError(f"{verb} of {what} raises {type(error).__name__}: {error}") from error
    assert_sound(memory)
    assert chat.at(3).scratchpad.get("kept") == "value"


@pytest.mark.parametrize("content", [3, b"x", {"type": "text"}, ("x",)], ids=repr)
def test_content_of_another_type_is_told_all_types_that_it_may_be(memory: Memory, content: Any) -> None:
    chat = memory.conversation("chat")
    with pytest.raises(InvalidInput, match="content must be a str, a list of dicts or None, not"):
        chat.append("user", content)
    with pytest.raises(InvalidInput, match="content must be a str, a list of dicts or None, not"):
        chat.replace(chat.window()[0], content)
    with pytest.raises(InvalidInput, match="tool_calls must be a list of dicts, not int"):
        chat.append("assistant", None, tool_calls=3)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]


@pytest.mark.parametrize("verb", VERBS)
def test_a_refusal_inside_a_batch_leaves_the_batch_as_it_was(verb: str) -> None:
    memory = Memory()
    memory.conversation("chat", project="project").append("user", "hello", tokens=1)
    with memory.batch() as batch:
        chat = memory.conversation("chat")
        chat.append("user", "before", tokens=1)
        for what, value in VALUES.items():
            length = len(batch)
            try:
                VERBS[verb](memory, chat, value)
            except RefoldError:
                assert len(batch) == length, what
        chat.append("user", "after", tokens=1)
    assert_sound(memory)
    contents = [message.content for message in memory.conversation("chat").window()]
    assert contents[-1] == "after"


class TestPlainValues:
    """Instances of subclasses are stored as what they are underneath, and come back as that."""

    def test_in_a_message(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            message = chat.append(
                Word("assistant"),
                Word("content"),
                name=Colour.RED,
                tokens=Number(3),
                occurred=Number(5),
                tool_calls=[{"id": Word("id"), "function": {"name": Colour.RED}}],
                metadata={"a": Number(1), "b": Decimal(0.5), "c": Level.HIGH, Word("d"): Word("e")},
            )
            values: list[Any] = [message.role, message.content, message.name, message.tokens, message.occurred_ns]
            assert values == ["assistant", "content", "red", 3, 5]
            assert [type(value) for value in values] == [str, str, str, int, int]
            assert message.metadata == {"a": 1, "b": 0.5, "c": 3, "d": "e"}

    def test_in_keyed_values(self) -> None:
        with remembering() as memory:
            chat = memory.conversation(Word("chat"))
            chat.scratchpad.set(Word("key"), Word("value"))
            chat.scratchpad.set(Colour.RED, Colour.RED)
            memory.profile(Word("default")).set(Colour.RED, Word("value"))
            chat.state[Word("key")] = Number(1)
            chat.set_window_tokens(Number(50))
            chat.scratchpad.note(Word("note"))
            found = [
                *chat.scratchpad.keys(),
                chat.scratchpad.get("key"),
                chat.scratchpad.get("red"),
                *memory.profile().items()[0],
                *chat.scratchpad.notes(),
            ]
            assert found == ["key", "red", "value", "red", "red", "value", "note"]
            assert {type(value) for value in found} == {str}
            assert type(chat.window_tokens) is int


class TestTokenCounters:
    @pytest.mark.parametrize("counted", [-1, 1.5, None, "3", 2**41], ids=repr)
    def test_one_that_counts_nonsense_is_told_so(self, counted: Any) -> None:
        class Counter:
            id = "nonsense"

            def count(self, text: str) -> int:
                assert text
                return counted  # type: ignore[no-any-return]

        memory = Memory(token_counter=Counter())
        with pytest.raises(RefoldError, match="tokens"):
            memory.conversation("chat").append("user", "hello")
        assert memory.head == 0

    def test_one_that_fails_leaves_everything_as_it_was(self) -> None:
        class Counter:
            id = "broken"

            def count(self, text: str) -> int:
                raise ZeroDivisionError(text)

        memory = Memory(token_counter=Counter())
        with pytest.raises(ZeroDivisionError):
            memory.conversation("chat").append("user", "hello")
        assert memory.head == 0
        memory.conversation("chat").append("user", "hello", tokens=1)
        assert_sound(memory)

    @pytest.mark.parametrize("counter", [..., len, 5, "bytes"], ids=repr)
    def test_what_is_none_is_refused(self, counter: Any) -> None:
        with pytest.raises(InvalidInput, match="id and count"):
            Memory(token_counter=counter)


class TestAfterClosing:
    CALLS: tuple[Callable[[Memory], object], ...] = (
        lambda memory: memory.conversation("chat").append("user", "x"),
        lambda memory: memory.conversation("chat").window(),
        lambda memory: memory.conversation("chat").scratchpad.set("k", "v"),
        lambda memory: memory.conversation("chat").state["k"],
        lambda memory: list(memory.conversation("chat").events()),
        lambda memory: memory.conversation("chat").snapshot(),
        lambda memory: memory.profile().items(),
        lambda memory: memory.journal().recent(),
        lambda memory: memory.head,
        lambda memory: memory.conversations(),
        lambda memory: memory.snapshots(),
        lambda memory: memory.state_hash(),
        lambda memory: memory.replay_hash(),
        lambda memory: memory.verify(),
        lambda memory: memory.stats(),
        lambda memory: memory.export("file"),
        lambda memory: memory.load("file"),
        lambda memory: memory.batch().__enter__(),
        lambda memory: memory.diff(0, 0),
        lambda memory: memory.at(0),
        lambda memory: memory.flush(),
    )

    @pytest.mark.parametrize("place", range(len(CALLS)))
    @pytest.mark.parametrize("kept", [False, True])
    def test_every_verb_says_closed(self, tmp_path: Path, place: int, kept: bool) -> None:
        memory = Memory(tmp_path / "store" if kept else None)
        memory.conversation("chat").state["k"] = 1
        memory.close()
        with pytest.raises(Closed, match="open"):
            self.CALLS[place](memory)

    def test_showing_a_handle_is_no_error(self) -> None:
        memory = Memory()
        handles = [memory, memory.conversation("c"), memory.profile(), memory.journal(), memory.conversation("c").state]
        memory.close()
        for handle in handles:
            assert repr(handle)
