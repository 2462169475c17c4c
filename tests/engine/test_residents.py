"""Streams leave RAM under pressure and come back as they were; the process stays within its bound."""

import random
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from refold import InvalidInput, Memory
from refold.engine.loader import Loader
from refold.engine.streams import Stream
from refold.fold import State
from refold.limits import FROZEN_PARTS_COUNT, MEMORY_BYTES_MIN
from tests.support.memories import assert_sound, remembering
from tests.support.seams import reader_of

TEXT = "Some text that takes a little room in memory. " * 8


def in_ram(memory: Memory) -> int:
    """How many streams are in RAM."""
    return len(reader_of(memory).streams.queue)


def tight(path: Path) -> Memory:
    return Memory(path, memory_bytes=MEMORY_BYTES_MIN)


def said(memory: Memory, number: int) -> list[str]:
    return [str(message.content) for message in memory.conversation(f"chat-{number}").window()]


@pytest.mark.slow
def test_streams_leave_and_come_back_as_they_were(tmp_path: Path) -> None:
    draw = random.Random(7)
    expected: dict[int, list[str]] = {}
    with tight(tmp_path / "store") as memory:
        for place in range(3_000):
            number = draw.randrange(600)
            text = f"{place} {TEXT}"
            memory.conversation(f"chat-{number}").append("user", text, tokens=1)
            expected.setdefault(number, []).append(text)
            if place % 7 == 0:
                memory.conversation(f"chat-{number}").scratchpad.set("last", str(place))
            if place % 50 == 0:
                asked = draw.randrange(600)
                assert said(memory, asked) == expected.get(asked, [])
        assert in_ram(memory) < 500
        for number, texts in expected.items():
            assert said(memory, number) == texts
        assert in_ram(memory) < 500
        live = assert_sound(memory)
    with Memory(tmp_path / "store") as memory:
        assert assert_sound(memory) == live


def test_a_batch_over_many_cold_streams(tmp_path: Path) -> None:
    with remembering(tmp_path / "store", memory_bytes=MEMORY_BYTES_MIN) as memory:
        for turn in range(3):
            with memory.batch():
                for number in range(800):
                    chat = memory.conversation(f"chat-{number}")
                    chat.append("user", f"{turn} {TEXT}", tokens=1)
                    if number % 10 == turn:
                        chat.scratchpad.set("turn", str(turn))
        assert in_ram(memory) < 700
        assert all(len(said(memory, number)) == 3 for number in range(0, 800, 13))
        assert memory.conversation("chat-1").scratchpad.get("turn") == "1"


def test_forks_and_restores_of_cold_streams(tmp_path: Path) -> None:
    with remembering(tmp_path / "store", memory_bytes=MEMORY_BYTES_MIN) as memory:
        first = memory.conversation("chat-0")
        first.append("user", "the beginning", tokens=1)
        snapshot = first.snapshot("beginning")
        first.append("user", "more", tokens=1)
        forks = [first.fork(f"fork-{number}", at=2) for number in range(600)]
        for fork in forks[::3]:
            fork.append("user", f"mine {TEXT}", tokens=1)
        with memory.batch():
            for number in range(1, 900):
                memory.conversation(f"chat-{number}").append("user", TEXT, tokens=1)
        assert in_ram(memory) < 1_200
        for place, fork in enumerate(forks):
            assert [message.content for message in fork.window()][:1] == ["the beginning"]
            assert len(fork.window()) == (2 if place % 3 == 0 else 1)
        first.restore(snapshot)
        assert said(memory, 0) == ["the beginning"]


@pytest.mark.slow
def test_readers_and_writers_at_once_under_pressure(tmp_path: Path) -> None:
    with remembering(tmp_path / "store", memory_bytes=MEMORY_BYTES_MIN) as memory:
        failures: list[str] = []
        done = threading.Event()

        def write(begin: int) -> None:
            for place in range(400):
                memory.conversation(f"chat-{begin + place % 100}").append("user", f"{place} {TEXT}", tokens=1)

        def read() -> None:
            draw = random.Random(3)
            while not done.is_set():
                number = draw.randrange(400)
                places = [int(text.split()[0]) for text in said(memory, number)]
                if places != sorted(set(places)):
                    failures.append(f"chat-{number}: {places}")

        writers = [threading.Thread(target=write, args=(100 * place,)) for place in range(4)]
        reader = threading.Thread(target=read)
        for thread in [*writers, reader]:
            thread.start()
        for thread in writers:
            thread.join()
        done.set()
        reader.join()
        assert failures == []
        assert all(len(said(memory, number)) == 4 for number in range(400))


def test_hashing_everything_stays_within_the_bound(tmp_path: Path) -> None:
    with tight(tmp_path / "store") as memory:
        for begin in range(0, 2_000, 100):
            with memory.batch():
                for number in range(begin, begin + 100):
                    memory.conversation(f"chat-{number}").append("user", TEXT, tokens=1)
        live = memory.state_hash()
        assert in_ram(memory) < 700
        assert memory.replay_hash() == live
        assert memory.state_hash(at=memory.head // 2) != live
        assert in_ram(memory) < 700


def counted_loads(memory: Memory, patch: pytest.MonkeyPatch) -> list[str]:
    """Return a list to which every state that is built from the log adds the name of its stream."""
    loads = list[str]()
    state_at = Loader.state_at

    def counting(self: Loader, stream: Stream, seq: int) -> State:
        loads.append(stream.name)
        return state_at(self, stream, seq)

    patch.setattr(type(reader_of(memory).loader), "state_at", counting)
    return loads


@pytest.mark.parametrize("events", [1_100, 1_600, 6_000])
def test_a_stream_around_the_bound_is_not_loaded_anew_at_each_access(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, events: int
) -> None:
    """A message weighs about 900 bytes here: the streams grow over, are over and far over the bound of 1 MiB."""
    with tight(tmp_path / "store") as memory:
        chat, small = memory.conversation("large"), memory.conversation("small")
        with memory.batch():
            for place in range(events):
                chat.append("user", f"{place} {TEXT}", tokens=1)
        chat.token_count()
        loads = counted_loads(memory, monkeypatch)
        for turn in range(50):
            chat.append("user", f"{turn} {TEXT}", tokens=1)
            assert chat.token_count() == events + turn + 1
            small.append("user", "a short one", tokens=1)
            assert small.token_count() == turn + 1
        assert len(loads) < 5
        assert_sound(memory)


def test_a_large_stream_leaves_once_the_others_need_its_room(tmp_path: Path) -> None:
    with tight(tmp_path / "store") as memory:
        chat = memory.conversation("large")
        with memory.batch():
            for place in range(3_000):
                chat.append("user", f"{place} {TEXT}", tokens=1)
        for turn in range(4):
            for number in range(600):
                memory.conversation(f"chat-{number}").append("user", f"{turn} {TEXT}", tokens=1)
        assert reader_of(memory).streams.bytes <= MEMORY_BYTES_MIN
        assert chat.token_count() == 3_000


def test_states_at_earlier_seqs_count_too(tmp_path: Path) -> None:
    with tight(tmp_path / "store") as memory:
        chat = memory.conversation("chat")
        with memory.batch():
            for place in range(60):
                chat.append("user", f"{place} {TEXT}", tokens=1)
        for seq in range(31, 61):
            assert chat.at(seq).token_count() == seq - 1
            assert 0 < reader_of(memory).frozen.bytes <= MEMORY_BYTES_MIN // FROZEN_PARTS_COUNT


def test_a_state_at_an_earlier_seq_that_is_larger_than_the_bound_is_built_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with tight(tmp_path / "store") as memory:
        chat = memory.conversation("chat")
        with memory.batch():
            for place in range(3_000):
                chat.append("user", f"{place} {TEXT}", tokens=1)
        past = chat.at(2_900)
        loads = counted_loads(memory, monkeypatch)
        for _ in range(10):
            assert past.token_count() == 2_899
        assert len(loads) == 1


@pytest.mark.parametrize("value", [0, -1, 1.5, "many", None, True, MEMORY_BYTES_MIN - 1])
def test_a_bound_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(InvalidInput, match="MEMORY_BYTES_MIN"):
        Memory(memory_bytes=value)  # type: ignore[arg-type]


CHILD = """
import sys
from refold import Memory
conversations, messages, text = int(sys.argv[2]), 20, "Some text that a user said to a model. " * 5
with Memory(sys.argv[1], memory_bytes=32 << 20) as memory:
    for begin in range(0, conversations, 50):
        with memory.batch():
            for number in range(begin, begin + 50):
                chat = memory.conversation(f"chat-{number}")
                for place in range(messages):
                    chat.append("user", f"{place} {text}", tokens=50)
    for number in range(0, conversations, 7):
        assert len(memory.conversation(f"chat-{number}").window()) == messages
# Not ru_maxrss: that of a child begins at the peak of the process that started it.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def peak_kib(path: Path, conversations: int) -> int:
    """The peak of a child process that writes and reads so many conversations of 20 messages within 32 MiB."""
    arguments = [sys.executable, "-c", CHILD, str(path), str(conversations)]
    return int(subprocess.run(arguments, check=True, capture_output=True, text=True).stdout)


@pytest.mark.slow
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_a_process_with_many_conversations_stays_within_its_bound(tmp_path: Path) -> None:
    assert peak_kib(tmp_path / "store", 10_000) < (32 + 64) * 1024


@pytest.mark.soak
@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the peak is read from /proc")
def test_a_hundred_thousand_conversations_stay_within_the_bound(tmp_path: Path) -> None:
    assert peak_kib(tmp_path / "store", 100_000) < (32 + 64) * 1024
