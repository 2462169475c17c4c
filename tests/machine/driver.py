"""What the state machine draws, and how it drives a memory and the plain model with one call."""

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine

from refold import Conversation, InvalidInput, Memory, RefoldError, Snapshot
from refold.limits import MEMORY_BYTES_DEFAULT
from tests.machine.model import ANY, EXISTS, NO_STREAM, Model, Options
from tests.machine.model_states import Line, Opening
from tests.support.bounds import Clock, seeded_bytes
from tests.support.other_process import Elsewhere, LengthCounter, Remote, WordsEmbedder

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a store there costs no disk flush; a directory of its own is made inside
BUDGETS = (100, 40, 128_000)
CONFIGURED = {"a": (None, None), "b/\u00e9": ("p", None), "c": ("p", 60)}
"""Conversations with their project and budget; any other one is a fork."""

FORKS = ("f0", "f1", "f2", "f3")
DEPTH_MAX = 3
SMALL: tuple[dict[str, int], ...] = (
    {
        "CHECKPOINT_EVENTS": 4,
        "TAIL_EVENTS_MAX": 6,
        "INLINE_BYTES_MAX": 0,
        "PAGE_EVENTS": 2,
        "CHECKPOINT_ROWS_MAX": 1,
        "PACKED_COUNT_MIN": 1,
    },
    {
        "CHECKPOINT_EVENTS": 2,
        "TAIL_EVENTS_MAX": 50_000,
        "FROZEN_STATES_MAX": 1,
        "CHECKPOINT_ROWS_MAX": 2,
        "PACKED_COUNT_MIN": 1,
    },
    {"CHECKPOINT_EVENTS": 1, "TAIL_EVENTS_MAX": 2, "PAGE_EVENTS": 1, "PACKED_SLICE_COUNT": 1},
    {
        "CHECKPOINT_EVENTS": 3,
        "TAIL_EVENTS_MAX": 20,
        "MEMORY_BYTES_MIN": 1,
        "EVICTED_COUNT_MIN": 3,
        "PACKED_SLICE_COUNT": 1,
    },
    {},
)

names = st.sampled_from(["a", "a", "a", *CONFIGURED, *FORKS])
keys = st.sampled_from(["k", "\u00e9", "temp:k", "x" * 300])
texts = st.sampled_from(["", "one", "two \U0001f600", "long " * 60, "nul \0"])
values = st.sampled_from([None, True, 7, 1.5, -0.0, "text", [1, {"z": 1, "a": []}], "long " * 60])
calls = st.lists(st.sampled_from(["c1", "c2"]), min_size=1, max_size=2, unique=True)
tokens = st.sampled_from([10, 10, 20, 30, 0, 7, 101])
"""Mostly such that a sum meets a budget exactly."""

rarely = st.sampled_from([False] * 7 + [True])
moments = st.sampled_from([None, None, 5, -7_000])


class Drawn(NamedTuple):
    """The options of a mutation as drawn: a distance from the true version, a request id, and places in the log."""

    expected: str | int = ANY
    request_id: str | None = None
    sources: tuple[int, ...] = ()


drawn_options = st.one_of(
    st.just(Drawn()),
    st.just(Drawn()),
    st.builds(
        Drawn,
        st.sampled_from([ANY, ANY, ANY, 0, 0, 1, NO_STREAM, EXISTS]),
        st.sampled_from([None, None, None, "r1", "r2", "r3", "r4"]),
        st.lists(st.integers(0, 50), max_size=2).map(tuple),
    ),
)


@dataclass
class Kept:
    """A snapshot that a rule took; ``carried`` is what the model says its bytes hold, if it went through bytes."""

    snapshot: Snapshot
    stream: str
    seq: int
    carried: Any = None
    foreign: bool = False
    branch: int = 0


@st.composite
def messages(draw: st.DrawFn) -> dict[str, Any]:
    """What ``append`` takes: plain text, tool calls and answers in either form, and everything optional."""
    form = draw(st.sampled_from(["text", "calls", "answer", "answer", "blocks", "result"]))
    fields: dict[str, Any] = {"role": draw(st.sampled_from(["user", "assistant", "system"])), "content": draw(texts)}
    if form == "calls":
        made = [{"id": name, "function": {"name": "look", "arguments": "{}"}} for name in draw(calls)]
        fields = {"role": "assistant", "content": None, "tool_calls": made}
    elif form == "answer":
        role = draw(st.sampled_from(["tool", "function"]))
        fields |= {"role": role, "tool_call_id": draw(st.sampled_from(["c1", "c2", "c3", None]))}
    elif form == "blocks":
        fields = {"role": "assistant", "content": [{"type": "tool_use", "id": name} for name in draw(calls)]}
    elif form == "result":
        fields |= {"role": "user", "content": [{"type": "tool_result", "tool_use_id": draw(calls)[0], "content": "x"}]}
    is_counted = isinstance(fields["content"], str) and draw(st.sampled_from([False, False, False, True]))
    fields |= {"tokens": None if is_counted else draw(tokens), "pinned": draw(st.one_of(rarely, st.none()))}
    return fields | {"name": draw(st.sampled_from([None, "n"])), "metadata": draw(st.sampled_from([None, {"m": [1]}]))}


def line_of(fields: dict[str, Any], message_id: str) -> Line:
    """The message that the model adds for what ``append`` was given."""
    content, made = fields["content"], fields.get("tool_calls") or ()
    blocks = content if isinstance(content, list) else []
    answers = [fields.get("tool_call_id"), *(block.get("tool_use_id") for block in blocks)]
    counted = len(content) if isinstance(content, str) else 0
    wanted = ("role", "content", "pinned", "name", "tool_calls", "tool_call_id", "metadata")
    given: dict[str, Any] = {field: fields.get(field) for field in wanted}
    return Line(
        id=message_id,
        tokens=counted if fields["tokens"] is None else fields["tokens"],
        calls=tuple(call["id"] for call in [*made, *blocks] if "id" in call),
        answers=next((call_id for call_id in answers if call_id is not None), None),
        **given,
    )


class Driver(RuleBasedStateMachine):
    """One memory on disk and one model, with what every rule needs to drive both."""

    worker: Elsewhere
    """The other process, one for all examples."""

    def __init__(self) -> None:
        super().__init__()
        self.open_things = ExitStack()
        place = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self.root = Path(self.open_things.enter_context(tempfile.TemporaryDirectory(prefix="refold-", dir=place)))
        self.path = self.root / "store"
        self.clock, self.model, self.stores = Clock(), Model(), 0
        self.budget, self.kept, self.hashes = BUDGETS[0], list[Kept](), dict[tuple[int, int], str]()
        self.memory_bytes, self.bounds = MEMORY_BYTES_DEFAULT, dict[str, int]()
        self.other: Remote | None = None
        self.steps, self.memory, self.batch = 0, Memory(), ExitStack()
        self.asked: Any = None

    # What the rules share.

    def opened(self, path: Path | None, **options: Any) -> Memory:
        """A memory whose clock and random source are known."""
        self.stores += 1
        given: dict[str, Any] = {
            "token_counter": LengthCounter(),
            "embedder": WordsEmbedder(),
            "clock_ns": self.clock,
            "random_bytes": seeded_bytes(self.stores),
            "memory_bytes": self.memory_bytes,
        }
        return Memory(path, **(given | {"window_tokens": self.budget} | options))

    def opened_elsewhere(self) -> Any:
        """The same store in another process, where it stays open until it is left."""
        if self.other is None:
            self.stores += 1
            self.worker.clock = self.clock
            options = {"memory_bytes": self.memory_bytes, "window_tokens": self.budget}
            self.other = self.worker.opened(self.path, self.bounds, self.stores, **options)
        return self.other

    def leave_elsewhere(self) -> None:
        """Close it there; nothing that was asked there can be asked again."""
        if self.other is not None:
            self.worker.shut()
            self.other = self.asked = None

    def copied(self) -> Path:
        """The path of a copy of the store as it lies on disk now: what a killed process would leave."""
        self.stores += 1
        copy = self.root / f"copy-{self.stores}"
        copy.mkdir()
        shutil.copyfile(self.path / "data.mdb", copy / "data.mdb")
        return copy

    def opening(self, name: str) -> Opening:
        """What a conversation records at its first mutation."""
        project, budget = CONFIGURED.get(name, (None, None))
        return Opening(budget or self.budget, project)

    def chat(self, name: str) -> Conversation:
        """A fresh handle, with the configuration of a conversation that is not open yet."""
        if self.model.state(f"conversation/{name}").opened or name not in CONFIGURED:
            return self.memory.conversation(name)
        project, budget = CONFIGURED[name]
        return self.memory.conversation(name, project=project, window_tokens=budget)

    def options(self, drawn: Drawn, stream: str) -> Options:
        """The options as they are given: a version instead of a distance, seqs instead of places."""
        expected = drawn.expected
        if isinstance(expected, int):
            expected = max(len(self.model.entries(stream)) + expected, 0)
        head = self.model.committed
        return Options(expected, drawn.request_id, tuple(1 + place % head for place in drawn.sources if head))

    def drive(self, stream: str, drawn: Drawn, call: Callable[..., Any], plan: Callable[[Options, Any], Any]) -> Any:
        """Calls a verb and lets the model follow: both succeed, or both refuse with the same error."""
        if drawn.request_id is not None:
            self.asked = (stream, drawn, call, plan)
        options = self.options(drawn, stream)
        head = self.memory.head
        try:
            result = call(expected=options.expected, request_id=options.request_id, sources=options.sources)
        except RefoldError as error:
            with pytest.raises(type(error)):
                plan(options, None)
            assert self.memory.head == head
            return None
        planned = plan(options, result)
        assert self.memory.head == self.model.committed
        return result, planned

    def mutate(self, name: str, drawn: Drawn, verb: str, args: tuple[Any, ...], decide: Callable[[Any], Any]) -> Any:
        """Drives a verb of a conversation that appends one event or nothing."""
        stream, chat, opening = f"conversation/{name}", self.chat(name), self.opening(name)
        return self.drive(
            stream,
            drawn,
            lambda **options: attrgetter(verb)(chat)(*args, **options),
            lambda options, _: self.model.note(stream, (verb, *args), decide, options, opening=opening),
        )

    def refuse_in_batch(self) -> None:
        """What cannot be part of a batch is refused in one."""
        if self.model.batch is not None:
            raise InvalidInput("a batch")
