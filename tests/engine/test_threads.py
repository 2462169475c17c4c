"""Threads through one memory: every event once, no read of a half-folded state, conflicts only for those who read."""

import json
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from refold import NO_STREAM, Conversation, InvalidInput, Memory, RefoldError, StoreFull, WrongVersion
from refold.log.protocol import LogTurn
from refold.views.window import WINDOW
from tests.support.memories import assert_sound, in_batch, remembering
from tests.support.seams import engine_of

THREADS = 8
ROUNDS = 40


def together(*calls: Callable[[], object]) -> list[object]:
    """Run the calls at the same time, each on a thread of its own, and return their results."""
    barrier = threading.Barrier(len(calls))

    def run(call: Callable[[], object]) -> object:
        barrier.wait()
        return call()

    with ThreadPoolExecutor(len(calls)) as pool:
        return list(pool.map(run, calls))


@pytest.mark.parametrize("kept", [False, True])
@pytest.mark.parametrize("conversations", [1, 3, THREADS])
def test_appends_of_many_threads_are_all_there_once(tmp_path: Path, kept: bool, conversations: int) -> None:
    def work(number: int) -> Callable[[], object]:
        def append() -> None:
            chat = memory.conversation(f"chat-{number % conversations}")
            for place in range(ROUNDS):
                message = chat.append("user", f"{number}/{place}", tokens=1)
                assert message.seq <= memory.head

        return append

    with remembering(tmp_path / "store" if kept else None) as memory:
        together(*map(work, range(THREADS)))
        assert memory.head == THREADS * ROUNDS + conversations
        said: list[str] = []
        for conversation_id in memory.conversations():
            chat = memory.conversation(conversation_id)
            versions = [stamp.version for _, stamp in chat.events()]
            assert versions == list(range(1, len(versions) + 1))
            said += [str(message.content) for message in chat.window()]
        assert sorted(said) == sorted(f"{number}/{place}" for number in range(THREADS) for place in range(ROUNDS))
        for number in range(THREADS):
            mine = [text for text in said if text.startswith(f"{number}/")]
            assert mine == [f"{number}/{place}" for place in range(ROUNDS)]


def consistent(chat: Conversation) -> None:
    """Assert, in one read, that the window's sum is that of its messages and within its budget."""

    def query(state: object) -> tuple[int, int, int]:
        window = state.part(WINDOW)  # type: ignore[attr-defined]
        return window.tokens, sum(message.tokens for message in window.live()), window.window_tokens

    held, summed, budget = chat._core.read(f"conversation/{chat.id}", query, None)
    assert held == summed <= budget


def test_no_read_sees_a_half_folded_window() -> None:
    with remembering(window_tokens=50) as memory:
        chat = memory.conversation("chat")
        chat.append("user", "first", tokens=1)
        done = threading.Event()

        def write() -> None:
            call = {"id": "x", "function": {"name": "look", "arguments": "{}"}}
            try:
                for place in range(300):
                    with memory.batch():
                        chat.append("assistant", None, tokens=7, tool_calls=[call])
                        chat.append("tool", "found", tokens=11, tool_call_id="x")
                    chat.append("user", str(place), tokens=place % 13)
            finally:
                done.set()

        def read() -> int:
            reads = 0
            while not done.is_set():
                consistent(chat)
                assert sum(message.tokens for message in chat.window()) <= 50
                assert chat.token_count() <= 50
                roles = [message.role for message in chat.window()]
                assert roles.count("assistant") == roles.count("tool")
                reads += 1
            return reads

        results = together(write, read, read)
        assert all(isinstance(count, int) and count > 0 for count in results[1:])


def test_reads_of_every_kind_beside_a_writer() -> None:
    with remembering(window_tokens=30) as memory:
        chat = memory.conversation("chat", project="project")
        chat.scratchpad.set("k", "v")
        done = threading.Event()

        def write() -> None:
            try:
                for place in range(250):
                    chat.scratchpad.set(f"k{place % 20}", str(place))
                    chat.scratchpad.delete(f"k{(place + 7) % 20}")
                    chat.scratchpad.note(str(place))
                    chat.state[f"s{place % 9}"] = place
                    chat.state[f"project:s{place % 9}"] = place
                    chat.append("user", str(place), tokens=3)
                    memory.profile().set(f"p{place % 5}", str(place))
                    memory.journal().append(str(place), day=f"2026-01-{place % 28 + 1:02}")
            finally:
                done.set()

        reads: tuple[Callable[[], object], ...] = (
            chat.scratchpad.to_dict,
            chat.scratchpad.keys,
            chat.scratchpad.notes,
            chat.messages,
            lambda: [chat.state.get(key) for key in chat.state],
            lambda: memory.profile().items(),
            lambda: memory.journal().recent(30),
            lambda: repr(memory) + repr(chat) + repr(chat.state),
            lambda: list(chat.events(after=max(memory.head - 20, 0))),
            lambda: json.loads(chat.at(memory.head).scratchpad.to_json()),
            lambda: memory.at(memory.head // 2).state_hash(),
            memory.state_hash,
            memory.conversations,
            memory.stats,
        )

        def read(place: int) -> Callable[[], object]:
            def run() -> None:
                while not done.is_set():
                    for read in reads[place::3]:
                        read()

            return run

        together(write, read(0), read(1), read(2))


def test_reads_inside_a_batch_beside_a_writer() -> None:
    with remembering() as memory:
        chat = memory.conversation("chat")
        chat.scratchpad.set("k", "v")
        done = threading.Event()

        def write() -> None:
            try:
                for place in range(400):
                    chat.scratchpad.set(f"k{place % 20}", str(place))
                    chat.scratchpad.delete(f"k{(place + 7) % 20}")
                    chat.append("user", str(place), tokens=1)
            finally:
                done.set()

        def read() -> None:
            while not done.is_set():
                with suppress(WrongVersion), memory.batch():
                    for _ in range(50):
                        chat.scratchpad.to_dict()
                        chat.window()
                        consistent(chat)

        together(write, read, read)


class TestBatches:
    def test_of_two_threads_that_only_append_both_go_through(self) -> None:
        def work(name: str) -> Callable[[], object]:
            def run() -> None:
                for place in range(ROUNDS):
                    with memory.batch():
                        chat.append("user", f"{name}{place}a", tokens=1)
                        chat.append("user", f"{name}{place}b", tokens=1)

            return run

        with remembering() as memory:
            chat = memory.conversation("chat")
            together(*map(work, "xyz"))
            said = [str(message.content) for message in chat.window()]
            assert len(said) == 3 * 2 * ROUNDS
            assert all(first[:-1] == second[:-1] for first, second in zip(said[::2], said[1::2], strict=True))

    def test_of_two_threads_on_one_stream_fail_only_for_the_one_that_read(self) -> None:
        memory = Memory()
        chat = memory.conversation("chat")
        chat.scratchpad.set("count", "0")
        reader_has_read, writer_has_written = threading.Event(), threading.Event()

        def read_and_write() -> None:
            with pytest.raises(WrongVersion):
                in_batch(
                    memory,
                    chat.scratchpad.items,
                    wait,
                    lambda: chat.scratchpad.note("decided on what was read"),
                )

        def wait() -> None:
            reader_has_read.set()
            assert writer_has_written.wait(timeout=60)

        def append() -> None:
            assert reader_has_read.wait(timeout=60)
            in_batch(memory, lambda: chat.append("user", "blind", tokens=1), lambda: chat.scratchpad.note("blind"))
            writer_has_written.set()

        together(read_and_write, append)
        assert chat.scratchpad.notes() == ["blind"]
        assert_sound(memory)

    def test_tried_again_after_each_conflict_count_right(self) -> None:
        def work() -> None:
            for _ in range(10):
                while not counted():
                    pass

        def counted() -> bool:
            try:
                with memory.batch():
                    chat.scratchpad.set("count", str(int(chat.scratchpad.get("count")) + 1))
            except WrongVersion:
                return False
            return True

        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.scratchpad.set("count", "0")
            together(*[work] * 4)
            assert chat.scratchpad.get("count") == "40"


class TestOptions:
    def test_one_of_many_creates_the_stream(self) -> None:
        def create(number: int) -> Callable[[], object]:
            def run() -> bool:
                try:
                    memory.conversation("chat").append("user", str(number), tokens=1, expected=NO_STREAM)
                except WrongVersion:
                    return False
                return True

            return run

        with remembering() as memory:
            assert sum(bool(won) for won in together(*map(create, range(THREADS)))) == 1
            assert len(memory.conversation("chat").window()) == 1

    def test_one_request_of_many_is_done_once(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            messages = together(*[lambda: chat.append("user", "once", tokens=1, request_id="r")] * THREADS)
            assert len(chat.window()) == 1
            assert all(message == chat.window()[0] for message in messages)

    def test_expected_versions_are_won_by_one_each(self) -> None:
        def work() -> int:
            won = 0
            while chat.version < 60:
                try:
                    chat.append("user", "x", tokens=1, expected=chat.version)
                except WrongVersion:
                    continue
                won += 1
            return won

        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", "first", tokens=1)
            wins = together(*[work] * 4)
            assert sum(int(str(won)) for won in wins) == len(chat.window()) - 1

    def test_one_of_many_forks_to_a_name(self) -> None:
        def fork() -> bool:
            try:
                memory.conversation("chat").fork("fork")
            except InvalidInput:
                return False
            return True

        with remembering() as memory:
            memory.conversation("chat").append("user", "x", tokens=1)
            assert sum(map(bool, together(*[fork] * THREADS))) == 1

    def test_ids_are_never_given_twice(self) -> None:
        def work() -> list[str]:
            with memory.batch():
                return [memory.conversation("chat").append("user", "x", tokens=0).id for _ in range(300)]

        with remembering() as memory:
            ids = [str(one) for each in together(*[work] * THREADS) for one in list(each)]  # type: ignore[call-overload]
            assert len(set(ids)) == THREADS * 300


def test_closing_beside_writers_leaves_an_acknowledged_store(tmp_path: Path) -> None:
    from refold import Closed

    memory = Memory(tmp_path / "store")
    acknowledged: list[str] = []

    def write() -> None:
        try:
            for place in range(10_000):
                memory.conversation("chat").append("user", str(place), tokens=1)
                acknowledged.append(str(place))
        except Closed:
            return

    def close() -> None:
        while len(acknowledged) < 5:
            pass
        memory.close()

    together(write, close)
    with remembering(tmp_path / "store") as again:
        assert [message.content for message in again.conversation("chat").window()] == acknowledged


def test_a_caller_that_waits_for_another_commit_sleeps(tmp_path: Path) -> None:
    """What it takes of the processor is measured, which a busy machine does not change."""
    spent: list[float] = []

    def append(chat: Conversation) -> None:
        begin = time.thread_time()
        chat.append("user", "waits", tokens=1)
        spent.append(time.thread_time() - begin)

    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("chat")
        chat.append("user", "open", tokens=1)
        with engine_of(memory).writer.exclusive():
            waiting = [threading.Thread(target=append, args=(chat,)) for _ in range(3)]
            for thread in waiting:
                thread.start()
            time.sleep(1)
        for thread in waiting:
            thread.join()
    assert len(spent) == 3
    assert max(spent) < 0.1


@pytest.mark.parametrize("is_written", [True, False])
def test_a_refusal_waits_for_the_commit_that_it_is_because_of(
    memory: Memory, monkeypatch: pytest.MonkeyPatch, is_written: bool
) -> None:
    """Two callers of one commit: the second is refused for what the first one writes, if that is written at all."""
    chat, outcomes = memory.conversation("chat"), dict[str, object]()
    chat.append("user", "open")
    version = chat.version
    log = engine_of(memory).reader.log
    in_turn, is_ready, may_go_on = log.in_turn, threading.Event(), threading.Event()

    class Turn:
        def __init__(self, turn: LogTurn) -> None:
            self._turn = turn

        def __getattr__(self, name: str) -> Any:
            return getattr(self._turn, name)

        def write(self, *given: Any) -> int:
            is_ready.set()
            assert may_go_on.wait(20)
            if not is_written:
                raise StoreFull("there is no room")
            return self._turn.write(*given)

    def append(name: str, expected: int) -> None:
        try:
            chat.append("user", name, expected=expected)
            outcomes[name] = "written"
        except RefoldError as error:
            outcomes[name] = type(error)

    threads = [threading.Thread(target=append, args=(name, version)) for name in ("first", "second")]
    with monkeypatch.context() as patched:
        patched.setattr(log, "in_turn", lambda use: in_turn(lambda turn: use(Turn(turn))))
        with engine_of(memory).writer.exclusive():
            for place, thread in enumerate(threads, 1):
                thread.start()
                while len(engine_of(memory).writer._queue) < place:
                    time.sleep(0.001)
        assert is_ready.wait(20)
        time.sleep(0.2)  # Callers that wait look now and then whether they are done.
        assert outcomes == {}
        may_go_on.set()
        for thread in threads:
            thread.join(20)
    expected: set[object] = {"written", WrongVersion} if is_written else {StoreFull}
    assert set(outcomes.values()) == expected
