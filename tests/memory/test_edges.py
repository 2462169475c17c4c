"""Edges that were found by hand: handles that outlive a store, clocks that do not fit, claims that came too late."""

import asyncio
import pickle
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from refold import EXISTS, NO_STREAM, InvalidInput, Memory, Snapshot, WrongVersion, errors
from tests.support.memories import remembering


def test_a_snapshot_outlives_the_handle_through_which_it_was_taken(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("chat")
        chat.append("user", "before", tokens=1)
        before = chat.snapshot()
        chat.append("user", "after", tokens=1)
    with Memory(tmp_path / "store") as memory:
        chat = memory.conversation("chat")
        chat.restore(before)
        assert [message.content for message in chat.window()] == ["before"]
        assert memory.replay_hash() == memory.state_hash()


def test_a_clock_beyond_64_bits_is_refused_and_nothing_is_appended() -> None:
    memory = Memory(clock_ns=lambda: 2**63)
    with pytest.raises(InvalidInput, match=r"clock_ns returned 9223372036854775808, beyond the 64 bits"):
        memory.profile().set("key", "value")
    assert memory.head == 0


def test_the_project_is_the_recorded_one_whatever_a_handle_was_made_with() -> None:
    with remembering() as memory:
        claiming = memory.conversation("chat", project="claimed")
        memory.conversation("chat").append("user", "first", tokens=1)
        assert claiming.project is None
        with pytest.raises(InvalidInput, match="belongs to project None, not 'claimed'"):
            claiming.append("user", "second", tokens=1)


def test_a_handover_keeps_when_messages_happened() -> None:
    with remembering() as memory, remembering() as other:
        chat = memory.conversation("chat")
        chat.append("user", "long ago", tokens=1, occurred=5)
        other.conversation("taker").restore(Snapshot.from_bytes(chat.snapshot().to_bytes()))
        (message,) = other.conversation("taker").window()
        assert (message.occurred_ns, message.time_ns) == (5, chat.window()[0].time_ns)


def test_a_named_snapshot_takes_the_options_of_a_mutation() -> None:
    with remembering() as memory:
        chat = memory.conversation("chat")
        first = chat.append("user", "x", tokens=1)
        with pytest.raises(WrongVersion):
            chat.snapshot("name", expected=7)
        taken = chat.snapshot("name", expected=EXISTS, request_id="once", sources=[first])
        chat.append("user", "y", tokens=1)
        assert chat.snapshot("name", request_id="once").seq == taken.seq == first.seq
        with pytest.raises(InvalidInput, match="unnamed snapshot writes nothing"):
            chat.snapshot(request_id="again")


def test_a_task_that_outlives_the_batch_it_was_started_in_commits_for_itself() -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    chat.append("user", "0", tokens=1)

    async def run() -> tuple[int, list[object]]:
        over = asyncio.Event()

        async def late() -> int:
            await over.wait()
            return chat.append("user", "late", tokens=1).seq

        with memory.batch():
            task = asyncio.create_task(late())
            chat.append("user", "1", tokens=1)
        over.set()
        return await task, [message.content for message in chat.window()]

    seq, contents = asyncio.run(run())
    assert seq == memory.head
    assert contents == ["0", "1", "late"]


@pytest.mark.parametrize("verb", ["events", "replay", "all events"])
def test_writing_while_iterating_comes_to_an_end(verb: str) -> None:
    memory = Memory()
    chat = memory.conversation("chat")
    chat.append("user", "x", tokens=1)
    passes: dict[str, Callable[[], Iterator[object]]] = {
        "events": chat.events,
        "replay": chat.replay,
        "all events": memory.events,
    }
    seen = 0
    for _ in passes[verb]():
        chat.scratchpad.note("seen")
        seen += 1
    assert seen == 2


def test_the_version_inside_a_batch_is_the_one_that_expected_compares_with() -> None:
    with remembering() as memory, memory.batch():
        chat = memory.conversation("chat")
        chat.append("user", "x", tokens=1)
        chat.scratchpad.set("key", "value", expected=chat.version)
        assert chat.version == 3


def test_another_handed_over_state_is_another_request() -> None:
    taker = Memory().conversation("taker")
    states = []
    for content in ("A", "B"):
        giver = Memory(clock_ns=lambda: 1).conversation("giver")
        giver.append("user", content, tokens=1)
        states.append(Snapshot.from_bytes(giver.snapshot().to_bytes()))
    taker.restore(states[0], request_id="once")
    with pytest.raises(InvalidInput, match="used for another request"):
        taker.restore(states[1], request_id="once")


def test_a_fork_of_a_conversation_that_is_not_open_yet_is_in_its_project() -> None:
    with remembering() as memory:
        memory.conversation("chat", project="acme").fork("twin").append("user", "x", tokens=1)
        assert memory.conversation("twin").project == "acme"


@pytest.mark.parametrize("name", errors.__all__)
def test_an_error_comes_out_of_a_worker_process_as_it_was_raised(name: str) -> None:
    kind = getattr(errors, name)
    given = {"expected": NO_STREAM, "actual": 3} if kind is WrongVersion else {}
    raised = kind("what failed", **given)
    raised.add_note("seen in a test")
    carried = pickle.loads(pickle.dumps(raised))  # noqa: S301 - it was pickled on this line
    assert (type(carried), str(carried), carried.args) == (kind, "what failed", ("what failed",))
    assert {name: getattr(carried, name) for name in given} == given
    assert carried.__notes__ == ["seen in a test"]


def test_what_is_written_does_not_depend_on_assertions(tmp_path: Path) -> None:
    program = (
        "import sys; from refold import Memory; memory = Memory(sys.argv[1]); chat = memory.conversation('chat')\n"
        "for text in 'abc': chat.append('user', text, tokens=1)\n"
        "with memory.batch():\n    chat.append('user', 'd', tokens=1); chat.append('user', 'e', tokens=1)\n"
    )
    subprocess.run([sys.executable, "-O", "-c", program, str(tmp_path / "store")], check=True, timeout=60)
    with Memory(tmp_path / "store") as memory:
        assert [message.content for message in memory.conversation("chat").window()] == list("abcde")
        assert memory.verify().ok
