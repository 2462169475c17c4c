"""Subscriptions: every event of every process, in order and once, and nobody waits for a slow or failing subscriber."""

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from refold import Closed, InvalidInput, Memory, ReadOnly, Recorded, StoreError, StoreFull
from refold.log.inspect import look
from refold.memory import Subscription
from tests.support.bounds import lowered
from tests.support.memories import Child, assert_sound, elsewhere, interrupt, refused, remembering
from tests.support.seams import engine_of, log_of, reader_of

PATIENCE_SECONDS = 60

WRITER = """
import sys
from refold import Memory
with Memory(sys.argv[1]) as memory:
    print("open", flush=True)
    for line in sys.stdin:
        for number in range(int(line)):
            memory.conversation(sys.argv[2]).append("user", str(number), tokens=1)
        print("done", flush=True)
"""


class Seen:
    """A subscriber that remembers, and tells when it has seen a seq."""

    def __init__(self) -> None:
        self.seqs: list[int] = []
        self.threads: set[str] = set()
        self._grew = threading.Condition()

    def __call__(self, recorded: Recorded) -> None:
        with self._grew:
            self.seqs.append(recorded.stamp.seq)
            self.threads.add(threading.current_thread().name)
            self._grew.notify_all()

    def until(self, seq: int) -> list[int]:
        """Wait until the seq was seen, and return all that were."""
        with self._grew:
            assert self._grew.wait_for(lambda: seq in self.seqs, PATIENCE_SECONDS), (seq, self.seqs[-5:])
            return list(self.seqs)


class Gate:
    """A subscriber that stays in its call until it is let go."""

    def __init__(self) -> None:
        self.entered, self.leave = threading.Event(), threading.Event()
        self.calls = 0

    def __call__(self, _: Recorded) -> None:
        self.calls += 1
        self.entered.set()
        assert self.leave.wait(PATIENCE_SECONDS)

    def wait_inside(self) -> None:
        assert self.entered.wait(PATIENCE_SECONDS)


def append(memory: Memory, count: int, name: str = "chat") -> None:
    for number in range(count):
        memory.conversation(name).append("user", str(number), tokens=1)


def serving() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "refold-subscriptions"]


def begun() -> threading.Thread:
    """Wait for the one thread, which begins a moment after who asked for it goes on."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (serving() and serving()[0].is_alive()):
        assert time.monotonic() < deadline, f"{serving()} serve the subscribers, not one thread"
        time.sleep(0.001)
    (thread,) = serving()
    return thread


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    assert serving() == []
    yield
    for thread in serving():
        thread.join(PATIENCE_SECONDS)
    assert serving() == []


@pytest.fixture(params=["ram", "disk"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    with remembering(tmp_path / "store" if request.param == "disk" else None) as memory:
        yield memory


class TestEachEventOnce:
    @pytest.mark.parametrize("page", [1, 2, 256])
    @pytest.mark.parametrize("after", [0, 1, 7, 10, None])
    def test_from_the_past_into_the_present(self, memory: Memory, after: int | None, page: int) -> None:
        append(memory, 9)
        seen = Seen()
        with lowered(PAGE_EVENTS=page), memory.subscribe(seen, after) as subscription:
            append(memory, 5)
            first = memory.head - 5 if after is None else after
            assert seen.until(15) == list(range(first + 1, 16))
        assert (subscription.position, subscription.error, subscription.is_alive) == (15, None, False)

    def test_beside_many_writers(self, memory: Memory) -> None:
        writers, seens = 4, [Seen() for _ in range(4)]
        subscribed = [memory.subscribe(seen, 0) for seen in seens[:2]]
        barrier = threading.Barrier(writers)

        def write(number: int) -> None:
            barrier.wait()
            append(memory, 40, f"chat-{number}")

        threads = [threading.Thread(target=write, args=(number,)) for number in range(writers)]
        for thread in threads:
            thread.start()
        subscribed += [memory.subscribe(seen, 0) for seen in seens[2:]]
        for thread in threads:
            thread.join()
        assert memory.head == writers * 41
        for seen in seens:
            assert seen.until(memory.head) == list(range(1, memory.head + 1))
            assert seen.threads == {"refold-subscriptions"}
        assert len(serving()) == 1
        for subscription in subscribed:
            subscription.close()

    def test_with_the_event_and_the_stamp_that_the_log_has(self, memory: Memory) -> None:
        append(memory, 3)
        taken: list[Recorded] = []
        seen = Seen()
        with memory.subscribe(taken.append, 0), memory.subscribe(seen, 0):
            seen.until(4)
        assert taken == list(memory.events())

    def test_that_reads_already_show(self, memory: Memory) -> None:
        lengths: list[tuple[int, int]] = []
        seen = Seen()

        def look(recorded: Recorded) -> None:
            lengths.append((recorded.stamp.version, len(memory.conversation("chat").window()) + 1))
            seen(recorded)

        with memory.subscribe(look):
            append(memory, 50)
            seen.until(51)
        assert all(shown >= version for version, shown in lengths)

    def test_and_none_that_could_be_lost(self, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
        durable = 3
        monkeypatch.setattr(log_of(memory).durability, "durable_until", lambda seq: min(durable, seq))
        seen = Seen()
        with memory.subscribe(seen, 0) as subscription:
            append(memory, 5)
            assert seen.until(3) == [1, 2, 3]
            durable = 5
            assert seen.until(5) == [1, 2, 3, 4, 5]
        assert subscription.position == 5

    def test_and_none_before_it_is_on_the_disk(self, tmp_path: Path) -> None:
        seen = Seen()
        early: list[Recorded] = []
        with remembering(tmp_path / "store", durability="delayed") as memory:
            log = log_of(memory)

            def look(recorded: Recorded) -> None:
                early.extend(
                    [recorded] if recorded.stamp.seq > log.durability.durable_until(recorded.stamp.seq) else []
                )
                seen(recorded)

            with memory.subscribe(look, 0):
                append(memory, 300)
                memory.flush()
                append(memory, 300)
                # Nobody flushes: the log does, moments later.
                assert seen.until(601) == list(range(1, 602))
        assert early == []

    def test_of_a_batch_only_when_it_is_written(self, memory: Memory) -> None:
        seen = Seen()
        with memory.batch():
            subscription = memory.subscribe(seen, 0)
            append(memory, 3)
            assert memory.head == 0
        assert seen.until(4) == [1, 2, 3, 4]
        subscription.close()


class TestASubscriberMay:
    def test_write(self, memory: Memory) -> None:
        seen = Seen()

        def react(recorded: Recorded) -> None:
            if recorded.stamp.stream == "conversation/chat":
                memory.journal().append(f"saw {recorded.stamp.seq}", day="2026-01-01")
            seen(recorded)

        with memory.batch() as batch, memory.subscribe(react):
            # What the subscriber writes is no part of this context's batch.
            elsewhere(lambda: append(memory, 4))
            assert seen.until(10) == list(range(1, 11))
            assert len(batch) == 0
        assert len(memory.journal().day("2026-01-01")) == 5

    def test_close_its_own_subscription(self, memory: Memory) -> None:
        own: list[Subscription] = []
        subscribed = threading.Event()

        def once(_: Recorded) -> None:
            assert subscribed.wait(PATIENCE_SECONDS)
            own[0].close()

        append(memory, 5)
        own.append(memory.subscribe(once, 0))
        subscribed.set()
        assert own[0].wait(PATIENCE_SECONDS)
        with own[0]:
            pass
        assert (own[0].position, own[0].error) == (1, None)

    def test_close_another_one_and_subscribe_more(self, memory: Memory) -> None:
        seen, later = Seen(), Seen()
        other = memory.subscribe(seen)
        more: list[Subscription] = []

        def take_over(_: Recorded) -> None:
            other.close()
            if not more:
                more.append(memory.subscribe(later, 0))

        with memory.subscribe(take_over, 0):
            append(memory, 1)
            assert later.until(2) == [1, 2]
            append(memory, 1)
            assert later.until(3) == [1, 2, 3]
        more[0].close()
        assert not other.is_alive
        assert set(seen.seqs) <= {1, 2}

    def test_close_the_memory(self, tmp_path: Path) -> None:
        memory = Memory(tmp_path / "store")
        subscription = memory.subscribe(lambda _: memory.close())
        append(memory, 1)
        assert subscription.wait(PATIENCE_SECONDS)
        assert subscription.error is None
        for thread in serving():
            thread.join(PATIENCE_SECONDS)
        with pytest.raises(Closed):
            append(memory, 1)
        with Memory(tmp_path / "store") as again:
            assert_sound(again)

    def test_be_slow_and_hold_nobody_up(self, tmp_path: Path) -> None:
        gate = Gate()
        with remembering(tmp_path / "store") as memory:
            subscription = memory.subscribe(gate)
            append(memory, 1)
            gate.wait_inside()
            append(memory, 600)
            assert {reader.transaction for reader in look(str(tmp_path / "store"), ()).readers} <= {None}
            assert (memory.head, subscription.position) == (602, 0)
            gate.leave.set()
            with memory.subscribe(Seen()):
                pass
            subscription.close()


class TestAFailure:
    def fail(self, recorded: Recorded) -> None:
        if recorded.stamp.seq == 3:
            raise SystemExit(recorded.stamp.stream)

    def test_ends_one_subscription_and_is_reported(self, memory: Memory, caplog: pytest.LogCaptureFixture) -> None:
        seen = Seen()
        with caplog.at_level(logging.ERROR, "refold"), memory.subscribe(seen), memory.subscribe(self.fail) as failing:
            append(memory, 9)
            assert seen.until(10) == list(range(1, 11))
            assert failing.wait(PATIENCE_SECONDS)
        assert (failing.position, failing.is_alive, repr(failing.error)) == (
            2,
            False,
            "SystemExit('conversation/chat')",
        )
        assert [record.getMessage() for record in caplog.records] == [
            "a subscriber failed at seq 3; it gets no further events"
        ]
        assert caplog.records[0].exc_info is not None
        assert caplog.records[0].exc_info[1] is failing.error
        assert repr(failing) == "Subscription(position=2, failed: SystemExit('conversation/chat'))"
        again = Seen()
        with memory.subscribe(again, failing.position):
            assert again.until(10) == list(range(3, 11))

    def test_of_reading_ends_them_all(self, caplog: pytest.LogCaptureFixture) -> None:
        error = StoreError("the disk is gone")
        with Memory() as memory:
            append(memory, 3)
            engine = engine_of(memory)
            page, engine.reader.page = engine.reader.page, lambda *_: (_ for _ in ()).throw(error)  # type: ignore[method-assign]
            seens = [Seen(), Seen()]
            both = [memory.subscribe(seen, 0) for seen in seens]
            for subscription in both:
                assert subscription.wait(PATIENCE_SECONDS)
                assert subscription.error is error
            engine.reader.page = page  # type: ignore[method-assign]
            assert "reading for the subscribers failed" in caplog.text
            with memory.subscribe(seens[0], both[0].position):
                assert seens[0].until(4) == [1, 2, 3, 4]


class TestTheEnd:
    def test_close_waits_for_a_call_that_runs(self, memory: Memory) -> None:
        gate = Gate()
        subscription = memory.subscribe(gate)
        append(memory, 3)
        gate.wait_inside()
        closer = threading.Thread(target=subscription.close)
        closer.start()
        assert subscription.wait(PATIENCE_SECONDS)
        assert closer.is_alive()
        gate.leave.set()
        closer.join(PATIENCE_SECONDS)
        assert (gate.calls, subscription.position) == (1, 1)
        subscription.close()

    def test_a_memory_that_closes_waits_for_a_call_that_writes(self, tmp_path: Path) -> None:
        gate = Gate()
        memory = Memory(tmp_path / "store")

        def write(recorded: Recorded) -> None:
            gate(recorded)
            memory.profile().set("last", str(recorded.stamp.seq))

        subscriptions = [memory.subscribe(write), memory.subscribe(Seen())]
        append(memory, 1)
        gate.wait_inside()
        closer = threading.Thread(target=memory.close)
        closer.start()
        assert subscriptions[0].wait(PATIENCE_SECONDS)
        gate.leave.set()
        closer.join(PATIENCE_SECONDS)
        assert serving() == []
        assert [subscription.error for subscription in subscriptions] == [None, None]
        assert not any(subscription.is_alive for subscription in subscriptions)
        with Memory(tmp_path / "store") as again:
            assert again.profile().get("last") == "1"

    def test_the_last_one_takes_the_thread_with_it(self, memory: Memory) -> None:
        for _ in range(3):
            first, second = memory.subscribe(Seen()), memory.subscribe(Seen())
            thread = begun()
            assert thread.daemon
            first.close()
            assert thread.is_alive()
            second.close()
            thread.join(PATIENCE_SECONDS)
            assert not thread.is_alive()
            assert reader_of(memory).ring is None

    def test_a_memory_that_closes_takes_no_more(self) -> None:
        gate, memory = Gate(), Memory()
        refusals: list[Closed] = []

        def subscribe_more(recorded: Recorded) -> None:
            gate(recorded)
            with pytest.raises(Closed, match="is being closed") as raised:
                memory.subscribe(subscribe_more)
            refusals.append(raised.value)

        subscription = memory.subscribe(subscribe_more)
        append(memory, 1)
        gate.wait_inside()
        closer = threading.Thread(target=memory.close)
        closer.start()
        assert subscription.wait(PATIENCE_SECONDS)
        gate.leave.set()
        closer.join(PATIENCE_SECONDS)
        assert (len(refusals), subscription.error) == (1, None)

    def test_a_memory_that_could_not_close_takes_more(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        seen = Seen()
        memory = Memory(tmp_path / "store", durability="delayed")
        log: Any = log_of(memory)
        with monkeypatch.context() as patched:
            patched.setattr(log._inner, "in_turn", lambda *_: interrupt(StoreFull))
            append(memory, 1)
            first = memory.subscribe(seen, 0)
            with pytest.raises(StoreFull):
                memory.close()
            assert (first.is_alive, first.error) == (False, None)
        with memory.subscribe(seen, first.position):
            memory.flush()
            assert seen.until(2) == [1, 2]
        memory.close()

    def test_a_closed_memory_takes_no_subscribers(self) -> None:
        memory = Memory()
        memory.close()
        with pytest.raises(Closed):
            memory.subscribe(Seen())

    def test_a_child_that_forked_has_none(self, tmp_path: Path) -> None:
        memory = Memory(tmp_path / "store")
        gate = Gate()
        subscription = memory.subscribe(gate)
        append(memory, 1)
        gate.wait_inside()
        child = os.fork()
        if not child:  # pragma: no cover - another process
            status = 1
            try:
                subscription.close()
                with pytest.raises(Closed):
                    memory.subscribe(gate)
                status = 0 if isinstance(subscription.error, Closed) and not subscription.is_alive else 2
            finally:
                os._exit(status)
        assert os.waitpid(child, 0)[1] == 0
        assert subscription.is_alive
        gate.leave.set()
        memory.close()


class TestRefusals:
    @pytest.mark.parametrize("fn", [None, 5, "print"])
    def test_what_is_no_function(self, memory: Memory, fn: Any) -> None:
        with refused(memory, InvalidInput, "fn must be a function"):
            memory.subscribe(fn)

    def test_what_nobody_would_await(self, memory: Memory) -> None:
        async def wait(_: Recorded) -> None: ...

        with refused(memory, InvalidInput, "fn is a coroutine function"):
            memory.subscribe(wait)

    @pytest.mark.parametrize(("after", "words"), [(-1, "give 0 or more"), (True, "must be an int"), (1, "has seq 0")])
    def test_what_is_no_seq(self, memory: Memory, after: Any, words: str) -> None:
        with refused(memory, InvalidInput, "after", words):
            memory.subscribe(Seen(), after)

    @pytest.mark.parametrize(
        ("timeout", "words"), [("x", "must be a number"), (float("nan"), "give 0 or more"), (-1, "give 0 or more")]
    )
    def test_what_is_no_time_to_wait(self, memory: Memory, timeout: Any, words: str) -> None:
        with memory.subscribe(Seen()) as subscription, refused(memory, InvalidInput, "timeout_seconds", words):
            subscription.wait(timeout)

    def test_a_frozen_memory(self, memory: Memory) -> None:
        with refused(memory, ReadOnly, "frozen at seq 0; subscribe to the live one"):
            memory.at(0).subscribe(Seen())


class TestManyProcesses:
    @pytest.mark.parametrize("readonly", [True, False])
    def test_are_heard_of_by_those_who_do_nothing_else(self, tmp_path: Path, readonly: bool) -> None:
        Memory(tmp_path / "store").close()
        seen = Seen()
        with (
            Child(WRITER, str(tmp_path / "store"), "there") as writer,
            Memory(tmp_path / "store", readonly=readonly) as memory,
            memory.subscribe(seen),
        ):
            assert writer.read() == "open"
            writer.write("30")
            assert seen.until(31) == list(range(1, 32))
            assert writer.read() == "done"
            writer.write("1")
            assert seen.until(32) == list(range(1, 33))

    def test_and_this_one_write_together(self, tmp_path: Path) -> None:
        seen = Seen()
        with remembering(tmp_path / "store") as memory, Child(WRITER, str(tmp_path / "store"), "there") as writer:
            assert writer.read() == "open"
            with memory.subscribe(seen, 0):
                writer.write("60")
                append(memory, 60)
                assert writer.read() == "done"
                assert memory.head == 122
                assert seen.until(122) == list(range(1, 123))

    def test_a_killed_writer_leaves_only_whole_commits(self, tmp_path: Path) -> None:
        seen = Seen()
        with (
            remembering(tmp_path / "store") as memory,
            Child(WRITER, str(tmp_path / "store"), "there") as writer,
            memory.subscribe(seen),
        ):
            assert writer.read() == "open"
            writer.write("100000")
            seen.until(20)
            writer.kill()
            append(memory, 1)
            assert seen.until(memory.head) == list(range(1, memory.head + 1))


def test_an_event_that_nobody_hears_costs_one_look(monkeypatch: pytest.MonkeyPatch) -> None:
    rings: list[int] = []
    called: Callable[[], None] = lambda: rings.append(1)  # noqa: E731
    with Memory() as memory:
        append(memory, 1)
        assert reader_of(memory).ring is None
        monkeypatch.setattr(reader_of(memory), "ring", called)
        append(memory, 1)
        with memory.batch():
            append(memory, 2)
        assert rings == [1, 1]
