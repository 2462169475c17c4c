"""Memories of one path in one process share the store; each is closed for itself."""

import gc
import re
import subprocess
import sys
import threading
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from refold import Closed, Memory, Recorded, StoreBusy, StoreFull
from refold.embedders import HashedEmbedder
from refold.log.record import Sealed
from tests.support.bounds import Clock
from tests.support.memories import assert_sound
from tests.support.other_process import Elsewhere
from tests.support.seams import engine_of


def contents(memory: Memory) -> list[str]:
    return [str(message.content) for message in memory.conversation("chat").window()]


def test_each_sees_what_the_other_writes(tmp_path: Path) -> None:
    path = tmp_path / "agent.refold"
    (tmp_path / "link").symlink_to(path)
    with Memory(path) as one, Memory(tmp_path / "link") as other:
        one.conversation("chat").append("user", "first")
        other.conversation("chat").append("user", "second")
        assert contents(one) == contents(other) == ["first", "second"]
        assert one.state_hash() == other.state_hash()
        with one.batch():
            one.conversation("chat").append("user", "third")
        assert contents(other) == ["first", "second", "third"]
        assert_sound(one)


def test_one_that_is_closed_refuses_and_the_other_goes_on(tmp_path: Path) -> None:
    one, other = Memory(tmp_path / "store"), Memory(tmp_path / "store")
    chat, fork = one.conversation("chat"), one.fork("fork")
    chat.append("user", "first")
    one.close()
    one.close()
    for use in (lambda: chat.append("user", "no"), chat.window, lambda: one.head, one.flush, one.refresh):
        with pytest.raises(Closed, match=r"open the store again with Memory\('.*store'\)"):
            use()
    assert repr(one) == f"Memory({str(tmp_path / 'store')!r}, closed)"
    other.conversation("chat").append("user", "second")
    assert contents(other) == ["first", "second"]
    assert fork.conversations() == []
    other.close()
    with pytest.raises(Closed):
        other.conversation("chat").window()
    with Memory(tmp_path / "store", durability="delayed") as again:
        assert contents(again) == ["first", "second"]


def test_the_last_one_closes_the_store(tmp_path: Path) -> None:
    memories = [Memory(tmp_path / "store") for _ in range(3)]
    for memory in memories:
        assert not is_free(tmp_path / "store")
        memory.close()
    assert is_free(tmp_path / "store")


def test_one_that_is_dropped_holds_the_store_no_more(tmp_path: Path) -> None:
    one, other = Memory(tmp_path / "store"), Memory(tmp_path / "store")
    other.profile().set("theme", "dark")
    del other
    gc.collect()
    one.close()
    assert is_free(tmp_path / "store")


def is_free(path: Path) -> bool:
    """Return whether another process can have a store for itself alone."""
    program = "import sys, refold; refold.Memory(sys.argv[1], durability='delayed').close()"
    done = subprocess.run([sys.executable, "-c", program, str(path)], check=False, capture_output=True, text=True)
    assert not done.returncode or "StoreBusy" in done.stderr, done.stderr
    return not done.returncode


def test_each_has_its_own_defaults(tmp_path: Path) -> None:
    with (
        Memory(tmp_path / "store", window_tokens=100) as one,
        Memory(tmp_path / "store", window_tokens=7, timezone="Asia/Tokyo") as other,
    ):
        one.conversation("one").append("user", "Hello!")
        other.conversation("other").append("user", "Hello!")
        assert one.conversation("one").window_tokens == 100
        assert one.conversation("other").window_tokens == 7


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("durability", "delayed"),
        ("embedder", HashedEmbedder()),
        ("memory_bytes", 1 << 20),
        ("clock_ns", lambda: 1),
        ("random_bytes", bytes),
        ("witness", "witness"),
    ],
)
def test_what_cannot_be_shared_is_refused(tmp_path: Path, option: str, value: object) -> None:
    """Of the memory that opened the store it holds all the same, and who has no wish of its own takes it as it is."""
    value = tmp_path / "witness" if option == "witness" else value
    given = {option: value}
    with Memory(tmp_path / "store") as memory:
        with pytest.raises(StoreBusy, match=f"open with another {option}: .+, not .+; give the same one, or close"):
            Memory(tmp_path / "store", **given)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        memory.profile().set("theme", "dark")
    with Memory(tmp_path / "store", **given) as one:  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        with Memory(tmp_path / "store", **given) as other:  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            other.profile().set("theme", "light")
        if option != "durability":
            Memory(tmp_path / "store").close()
        assert one.profile().get("theme") == "light"


class Counting:
    """An embedder of which each cell of a notebook makes another one."""

    def __init__(self, name: str = "counting", dim: int = 2, **thresholds: float) -> None:
        self.id, self.dim = name, dim
        vars(self).update(thresholds)

    def embed(self, texts: list[str]) -> list[list[float]]:
        return [[1.0, *[float(len(text))] * (self.dim - 1)] for text in texts]


@pytest.mark.parametrize(
    "make", [HashedEmbedder, Counting, lambda: Counting(merge_threshold=0.9)], ids=["built-in", "own", "thresholds"]
)
def test_equal_embedders_are_one(tmp_path: Path, make: Callable[[], Any]) -> None:
    with Memory(tmp_path / "store", embedder=make()) as one, Memory(tmp_path / "store", embedder=make()) as other:
        one.project("p").add("The tests need Docker.")
        assert [hit.entry.content for hit in other.project("p").search("docker")] == ["The tests need Docker."]
        assert_sound(one)


@pytest.mark.parametrize(
    ("first", "second", "words"),
    [
        (Counting(), Counting("another"), "{'id': 'counting', 'dim': 2}, not {'id': 'another', 'dim': 2}"),
        (Counting(), Counting(dim=3), "{'id': 'counting', 'dim': 2}, not {'id': 'counting', 'dim': 3}"),
        (
            Counting(),
            Counting(merge_threshold=0.9),
            "{'id': 'counting', 'dim': 2}, not {'id': 'counting', 'dim': 2, 'merge_threshold': 0.9}",
        ),
        (None, Counting(), "'built-in', not {'id': 'counting', 'dim': 2}"),
    ],
)
def test_another_embedder_is_refused_by_its_name(tmp_path: Path, first: Any, second: Any, words: str) -> None:
    with (
        Memory(tmp_path / "store", embedder=first),
        pytest.raises(StoreBusy, match=re.escape(f"open with another embedder: {words}")),
    ):
        Memory(tmp_path / "store", embedder=second)


def test_another_durability_is_refused_by_its_name(tmp_path: Path) -> None:
    with (
        Memory(tmp_path / "store"),
        pytest.raises(StoreBusy, match="another durability: 'durable', not 'delayed'; give the same one"),
    ):
        Memory(tmp_path / "store", durability="delayed")


def test_an_erasure_is_of_both(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as one, Memory(tmp_path / "store") as other:
        one.conversation("chat").append("user", "the secret word is xyzzy")
        assert contents(other)
        assert other.conversation("chat").erase().occurrences == 0
        assert contents(one) == []


@pytest.mark.parametrize("look", ["window", "state_hash", "replay_hash"])
def test_an_erasure_is_seen_whole_or_not_at_all_by_one_that_only_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, look: str
) -> None:
    """It is no share: what it reads meanwhile, page by page, may be of two files."""
    looks: dict[str, Callable[[Memory], object]] = {
        "window": contents,
        "state_hash": Memory.state_hash,
        "replay_hash": Memory.replay_hash,
    }
    with Memory(tmp_path / "store") as one, ExitStack() as later:
        with one.batch():
            messages = [one.conversation("chat").append("user", f"secret {number}") for number in range(1_000)]
        other = later.enter_context(Memory(tmp_path / "store", readonly=True))
        log, erasing = engine_of(other).reader.log, threading.Thread(target=one.erase, args=(messages,))
        read = log.read

        def erased_meanwhile(after: int, until: int) -> list[Sealed]:
            if after > len(messages) // 2 and not erasing.ident:
                erasing.start()
                erasing.join()
            return read(after, until)

        monkeypatch.setattr(log, "read", erased_meanwhile)
        found = looks[look](other)
        assert erasing.ident
        assert found == looks[look](one)


def test_it_is_shared_behind_an_erasure_of_another_process(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as one, Elsewhere(Clock()) as elsewhere:
        message = one.conversation("chat").append("user", "a secret that is erased")
        other: Any = elsewhere.opened(tmp_path / "store", {}, 2)
        other.erase([message.seq])
        with Memory(tmp_path / "store") as again:
            again.conversation("chat").append("user", "after it")
            assert [each.content for each in one.conversation("chat").window()] == [None, "after it"]
        assert one.state_hash() == other.state_hash()
        elsewhere.shut()


def test_a_subscription_ends_with_the_memory_that_has_it(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as one:
        other, seen, is_there = Memory(tmp_path / "store"), list[Recorded](), threading.Event()
        late = list[Recorded]()
        subscription = other.subscribe(late.append)
        other.close()
        assert not subscription.is_alive

        def see(recorded: Recorded) -> None:
            seen.append(recorded)
            is_there.set()

        one.subscribe(see)
        one.profile().set("theme", "dark")
        assert is_there.wait(60)
        assert (len(seen), late) == (1, [])


def test_a_watch_ends_with_the_memory_that_has_it(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as one:
        other, gone = Memory(tmp_path / "store"), list[str]()
        chat = one.conversation("chat", window_tokens=2)
        other.watch(bool, lambda departure: gone.append(str(departure.message.content)))
        one.watch(bool, lambda departure: gone.append(departure.conversation))
        chat.append("user", "first", tokens=1)
        chat.append("user", "second", tokens=2)
        assert gone == ["first", "chat"]
        other.close()
        chat.append("user", "third", tokens=2)
        assert gone == ["first", "chat", "chat"]


def test_threads_open_and_close_it(tmp_path: Path) -> None:
    together, errors = threading.Barrier(6), list[BaseException]()

    def use(place: int) -> None:
        try:
            together.wait()
            for turn in range(8):
                with Memory(tmp_path / "store") as memory:
                    memory.conversation(f"chat-{place}").append("user", f"turn {turn}")
        except BaseException as error:  # noqa: BLE001 - it is compared
            errors.append(error)

    threads = [threading.Thread(target=use, args=(place,)) for place in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    with Memory(tmp_path / "store") as memory:
        for place in range(6):
            found = [message.content for message in memory.conversation(f"chat-{place}").window()]
            assert found == [f"turn {turn}" for turn in range(8)]
        assert_sound(memory)


def test_where_closing_fails_all_stays_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = Memory(tmp_path / "store"), Memory(tmp_path / "store")
    other.close()
    core = one._core  # pyright: ignore[reportPrivateUsage]

    def fail(_: object) -> None:
        raise StoreFull("no room")

    with monkeypatch.context() as patch:
        patch.setattr(type(core.engine), "close", fail)
        with pytest.raises(StoreFull):
            one.close()
    one.profile().set("theme", "dark")
    with Memory(tmp_path / "store") as again:
        assert again.profile().get("theme") == "dark"
    one.close()
