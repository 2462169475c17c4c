"""Who wrote an event and what led to it: said by hosts, told from roles, kept by everything that moves a log."""

import asyncio
import subprocess
import sys
import threading
from collections.abc import Callable
from contextvars import copy_context
from pathlib import Path
from typing import Any

import pytest

from refold import Memory, recover
from refold.errors import InvalidInput, LimitExceeded, ReadOnly, WrongVersion
from refold.event import ACTORS, NAMED_ACTORS_FROM
from refold.limits import ACTOR_BYTES_MAX

Origin = tuple[int, str]


def origins(memory: Memory, *, naming: bool = False) -> list[Origin]:
    """Return cause and actor of every event, those that only name an actor left out unless asked for."""
    return [
        (stamp.cause, stamp.actor) for event, stamp in memory.events() if naming or type(event).__name__ != "ActorNamed"
    ]


def note(memory: Memory, text: str = "noted") -> Origin:
    """Write one event and return its origin."""
    memory.journal().append(text)
    return origins(memory)[-1]


class TestActing:
    def test_a_message_is_written_by_its_role(self) -> None:
        memory = Memory()
        chat = memory.conversation("a")
        for role in ("system", "developer", "user", "assistant", "tool", "function"):
            chat.append(role, "x")
        assert [actor for _, actor in origins(memory)[1:]] == ["host", "host", "user", "assistant", "tool", "tool"]
        assert note(memory) == (0, "host")

    def test_what_the_host_says_counts_for_all_that_is_written_inside(self) -> None:
        memory = Memory()
        asked = memory.conversation("a").append("user", "Which port?")
        with memory.acting("tool:search", cause=asked):
            memory.conversation("a").append("assistant", "5432")
            memory.profile().set("port", "5432")
            memory.add("The port is 5432.", occurred=7)
        assert origins(memory)[-3:] == [(asked.seq, "tool:search")] * 3
        assert note(memory) == (0, "host")

    def test_the_inner_one_counts_and_keeps_the_cause_unless_it_has_its_own(self) -> None:
        memory = Memory()
        note(memory)
        with memory.acting("outer", cause=1):
            with memory.acting("inner"):
                assert note(memory) == (1, "inner")
                with memory.acting("innermost", cause=0):
                    assert note(memory) == (0, "innermost")
            with pytest.raises(KeyError), memory.acting("raises"):
                raise KeyError
            assert note(memory) == (1, "outer")

    def test_another_memory_is_not_concerned_and_a_fork_is(self) -> None:
        memory, other = Memory(), Memory()
        with memory.acting("tool:search"), other.acting("cli"):
            assert note(memory) == (0, "tool:search")
            assert note(other) == (0, "cli")
            fork = memory.fork("what if")
            fork.journal("fork").append("x")
            assert list(fork.events())[-1].stamp.actor == "tool:search"
        assert note(memory.fork("what if"))[1] == "host"

    def test_it_is_taken_when_a_mutation_is_called_not_when_its_batch_ends(self) -> None:
        memory = Memory()
        with memory.batch():
            with memory.acting("one"):
                memory.journal().append("1")
            with memory.acting("two"):
                message = memory.conversation("a").append("user", "2")
                assert message.stamp.actor == "two"
            memory.journal().append("3")
        assert origins(memory) == [(0, "one"), (0, "two"), (0, "two"), (0, "host")]
        assert message.stamp.actor == "two"
        assert memory.verify().ok

    def test_a_name_is_given_one_number_and_no_event_where_nothing_is_written(self) -> None:
        memory = Memory()
        with memory.acting("tool:search"):
            memory.profile().delete("nothing")
            with pytest.raises(WrongVersion):
                memory.profile().set("a", "b", expected=9)
            assert memory.head == 0
            note(memory)
            note(memory)
        with memory.acting("cli"):
            note(memory)
        assert origins(memory, naming=True) == [(0, "host"), (0, "tool:search"), (0, "tool:search"), (0, "cli")]

    def test_a_repeated_request_gets_its_first_answer(self) -> None:
        memory = Memory()
        with memory.acting("one"):
            first = memory.conversation("a").append("user", "x", request_id="r")
        with memory.acting("two"):
            again = memory.conversation("a").append("user", "x", request_id="r")
        assert again == first
        assert memory.head == first.seq

    @pytest.mark.parametrize("actor", ["", "a\nb", "a\0", "erased-12", "unknown-3", 7, None, b"x", "\ud800"])
    def test_an_actor_that_cannot_be(self, actor: Any) -> None:
        with pytest.raises(InvalidInput, match="actor"):
            Memory().acting(actor)

    def test_an_actor_has_a_greatest_length(self) -> None:
        memory = Memory()
        with memory.acting("x" * ACTOR_BYTES_MAX):
            assert note(memory)[1] == "x" * ACTOR_BYTES_MAX
        with pytest.raises(LimitExceeded, match="ACTOR_BYTES_MAX"):
            memory.acting("x" * (ACTOR_BYTES_MAX + 1))

    @pytest.mark.parametrize("cause", [-1, 3, 2**70, True, 1.0, "1"])
    def test_a_cause_that_cannot_be(self, cause: Any) -> None:
        memory = Memory()
        note(memory)
        note(memory)
        with pytest.raises(InvalidInput, match="cause"):
            memory.acting("host", cause=cause)
        with pytest.raises(InvalidInput, match="runs from 1 to 1"):
            memory.at(1).acting("host", cause=2)

    def test_a_result_of_an_open_batch_is_no_cause_yet(self) -> None:
        memory = Memory()
        with memory.batch():
            message = memory.conversation("a").append("user", "x")
            with pytest.raises(InvalidInput, match="batch"):
                memory.acting("host", cause=message)

    def test_frozen_and_readonly_memories_take_it_and_refuse_to_write(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            note(memory)
            with memory.at(1).acting("tool:search", cause=1), pytest.raises(ReadOnly):
                memory.at(1).journal().append("x")
        with Memory(tmp_path / "store", readonly=True) as reader, reader.acting("tool:search"):
            with pytest.raises(ReadOnly):
                reader.journal().append("x")
            assert reader.head == 1


class TestContexts:
    def test_threads_have_their_own_and_take_a_copy_that_is_given_them(self) -> None:
        memory = Memory()
        both = threading.Barrier(2)

        def write(actor: str) -> None:
            with memory.acting(actor):
                both.wait()
                for _ in range(50):
                    memory.journal(actor).append("x")
                both.wait()

        threads = [threading.Thread(target=write, args=[name]) for name in ("one", "two")]
        with memory.acting("outer"):
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            bare = threading.Thread(target=memory.journal("bare").append, args=["x"])
            copied = threading.Thread(target=copy_context().run, args=[memory.journal("copied").append, "x"])
            for thread in (bare, copied):
                thread.start()
                thread.join()
        found = {(stamp.stream.partition("/")[2], stamp.actor) for _, stamp in memory.events()}
        known = {("one", "one"), ("two", "two"), ("bare", "host"), ("copied", "outer"), ("main", "host")}
        assert found == known
        assert memory.verify().ok

    def test_tasks_have_their_own_whoever_began_to_write(self) -> None:
        memory = Memory()

        async def write(actor: str | None) -> None:
            chat = memory.aio.conversation(str(actor))
            for _ in range(20):
                if actor is None:
                    await chat.append("user", "x")
                else:
                    with memory.aio.acting(actor):
                        await chat.append("user", "x")
            if actor is not None:
                with memory.acting(actor):
                    await memory.aio.project(actor).upsert("The port is 5432.")
                    await memory.aio.flush()

        async def main() -> None:
            with memory.acting("first"):
                await memory.aio.journal().append("x")
            await asyncio.gather(*(write(actor) for actor in ("one", None, "two", "three")))

        asyncio.run(main())
        for event, stamp in memory.events():
            kind, _, name = stamp.stream.partition("/")
            if kind != "store":
                wanted = {"None": "user", "default": "first"}.get(name, name)
                assert stamp.actor == wanted, event

    def test_a_task_goes_on_with_it(self) -> None:
        memory = Memory()

        async def main() -> None:
            with memory.acting("tool:search"):
                task = asyncio.create_task(memory.aio.journal().append("x"))
            await memory.aio.journal("b").append("y")
            await task

        asyncio.run(main())
        assert {(stamp.stream, stamp.actor) for _, stamp in memory.events()} == {
            ("store/main", "host"),
            ("journal/default", "tool:search"),
            ("journal/b", "host"),
        }


def written(memory: Memory) -> list[Origin]:
    """Write events of several origins, and return these."""
    chat = memory.conversation("a")
    asked = chat.append("user", "Which port?")
    with memory.acting("tool:search", cause=asked):
        chat.append("assistant", "5432")
    with memory.acting("mcp:editor"), memory.batch():
        memory.profile().set("port", "5432")
        memory.journal().append("The port is 5432.")
    return origins(memory, naming=True)


def again(path: Path) -> list[Origin]:
    with Memory(path) as memory:
        assert memory.verify().ok
        return origins(memory, naming=True)


class TestItIsKept:
    def test_by_a_store_that_is_opened_again_at_past_seqs_and_in_forks(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            known = written(memory)
            assert origins(memory.at(4), naming=True) == known[:4]
            assert origins(memory.fork("x"), naming=True) == known
            step = list(memory.conversation("a").replay())[-1]
            assert (step.stamp.cause, step.stamp.actor) == (2, "tool:search")
            assert memory.conversation("a").window()[-1].stamp.actor == "tool:search"
        assert again(tmp_path / "store")[: len(known)] == known

    def test_by_a_backup_and_a_recovered_store(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            known = written(memory)
            memory.backup(tmp_path / "backup")
        recover(tmp_path / "backup", tmp_path / "new")
        recover(tmp_path / "backup", tmp_path / "earlier", to=4)
        assert again(tmp_path / "backup") == again(tmp_path / "new") == known
        assert again(tmp_path / "earlier") == known[:4]

    def test_by_an_export_that_shows_names(self, tmp_path: Path) -> None:
        memory = Memory()
        known = written(memory)
        memory.export(tmp_path / "export")
        text = (tmp_path / "export").read_text(encoding="utf-8")
        assert '"cause":2,"actor":"tool:search"' in text
        assert '"actor":"host"' not in text
        loaded = Memory()
        loaded.load(tmp_path / "export")
        assert origins(loaded, naming=True) == known
        assert loaded.state_hash() == memory.state_hash()
        with loaded.acting("tool:search"):
            note(loaded)
        assert loaded.head == memory.head + 1, "the actor was named once more"

    def test_by_a_load_beside_other_events(self, tmp_path: Path) -> None:
        memory, target = Memory(), Memory()
        known = written(memory)
        memory.export(tmp_path / "export")
        with target.acting("mcp:editor"):
            note(target)
        begin = target.head
        target.load(tmp_path / "export", rename={"journal/default": "journal/loaded"})
        assert origins(target, naming=True)[begin:] == [(cause and cause + begin, actor) for cause, actor in known]
        assert target.verify().ok
        target.export(tmp_path / "again")
        Memory().load(tmp_path / "again")

    def test_by_another_process_of_the_store(self, tmp_path: Path) -> None:
        script = "import sys; from refold import Memory\nwith Memory(sys.argv[1]) as two, two.acting('tool:search'):\n"
        script += "    two.journal().append('theirs')\n    two.profile().set('a', 'b')\n"
        with Memory(tmp_path / "store") as one:
            subprocess.run([sys.executable, "-c", script, tmp_path / "store"], check=True)
            assert origins(one, naming=True) == [(0, "host"), (0, "tool:search"), (0, "tool:search")]
            with one.acting("tool:search"):
                assert note(one) == (0, "tool:search")
            assert one.head == 4
            assert one.verify().ok

    def test_by_a_delayed_log(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store", durability="delayed") as memory:
            known = written(memory)
        assert again(tmp_path / "store") == known


class TestErasure:
    def test_the_name_of_an_actor_can_be_erased(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            with memory.acting("mcp:ada@example.org"):
                note(memory)
            memory.erase([1])
            assert origins(memory) == [(0, "erased-1"), (0, "host")]
            memory.export(tmp_path / "export")
            with memory.acting("mcp:ada@example.org"):
                assert note(memory) == (0, "mcp:ada@example.org")
            assert memory.verify().ok
        loaded = Memory()
        loaded.load(tmp_path / "export")
        assert origins(loaded) == [(0, "erased-1"), (0, "host")]

    def test_no_byte_of_it_is_left(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store") as memory:
            with memory.acting("mcp:ada@example.org"):
                note(memory)
            memory.flush()
            memory.erase([1])
        assert b"ada@example" not in (tmp_path / "store" / "data.mdb").read_bytes()

    def test_an_erasure_has_an_actor_too(self) -> None:
        memory = Memory()
        note(memory)
        with memory.acting("tool:forget", cause=1):
            memory.erase([1])
        assert origins(memory, naming=True)[1:] == [(0, "host"), (1, "tool:forget")]
        assert memory.verify().ok


def test_the_actors_of_refold_itself_keep_their_numbers() -> None:
    assert ACTORS[:9] == ("host", "user", "assistant", "tool", "hook", "cli", "mcp", "mirror", "extraction")
    assert len(set(ACTORS)) == len(ACTORS) < NAMED_ACTORS_FROM


@pytest.mark.parametrize(
    "write",
    [
        lambda memory: memory.snapshot("now"),
        lambda memory: memory.settings.set("memory_max_injected", 3),
        lambda memory: memory.fork("x").profile().set("a", "b"),
        lambda memory: memory.board(session="s").set_node_context({"a": 1}),
        lambda memory: memory.files().create("/memories/a.txt", "x"),
    ],
)
def test_every_kind_of_stream_is_written_under_the_actor(write: Callable[[Memory], object]) -> None:
    memory = Memory()
    with memory.acting("tool:search"):
        write(memory)
    fork = memory.fork("x")
    assert {stamp.actor for event, stamp in fork.events() if type(event).__name__ != "ActorNamed"} == {"tool:search"}
