"""What LangGraph has kept in SQLite, taken into a memory: equal checkpoints, items, resumed, from the command line."""

import importlib
import os
import sqlite3
import sys
from contextlib import closing
from datetime import UTC
from pathlib import Path
from typing import Annotated, Any, TypedDict

import ormsgpack
import pytest
from langgraph.checkpoint.serde.jsonplus import JsonPlusSerializer
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages
from langgraph.store.sqlite import SqliteStore
from langgraph.types import Command, interrupt

from refold import InvalidInput, Memory
from refold.adapters.langgraph import RefoldSaver
from refold.adapters.langgraph_sqlite import migrate
from refold.adapters.langgraph_store import RefoldStore
from tests.support.command import running
from tests.support.memories import assert_sound

NAMESPACES = [("users",), ("users", "ann"), ("docs",)]


def builder() -> Any:
    def answer(state: Any) -> dict[str, Any]:
        return {"messages": [("ai", f"{len(state['messages'])} so far")]}

    def ask(_: Any) -> dict[str, Any]:
        return {"messages": [("human", interrupt("sure?"))]}

    nodes: Any = StateGraph(MessagesState)
    return nodes.add_node("answer", answer).add_node("ask", ask).add_edge(START, "answer").add_edge("answer", "ask")


def fill(path: Path, *, threads: int, turns: int, text: str = "Hello!") -> None:
    """Run a graph over LangGraph's own saver and put items into its store, in one file."""
    with SqliteSaver.from_conn_string(str(path)) as saver:
        graph = builder().compile(checkpointer=saver)
        for number in range(threads):
            config: Any = {"configurable": {"thread_id": f"thread-{number}"}}
            for turn in range(turns):
                graph.invoke({"messages": [("human", f"{text} {turn}")]}, config)
                if turn % 2 == 0:
                    graph.invoke(Command(resume="yes"), config)
    with SqliteStore.from_conn_string(str(path)) as store:
        store.setup()
        for place, namespace in enumerate(NAMESPACES):
            store.put(namespace, "key", {"n": place, "text": text})
            store.put(namespace, "with.dot", {"n": [None, {"deep": True}]}, ttl=60)


def checkpoints(saver: Any) -> list[Any]:
    return [
        (found.config, found.checkpoint, found.metadata, found.parent_config, found.pending_writes)
        for found in saver.list(None)
    ]


def test_items_that_have_expired_are_left_out(memory: Memory, tmp_path: Path) -> None:
    path = tmp_path / "langgraph.db"
    with SqliteStore.from_conn_string(str(path)) as store:
        store.setup()
        for key in ("old", "new", "kept"):
            store.put(("u",), key, {"is": key}, ttl=None if key == "kept" else 60)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE store SET expires_at = '2026-01-01 00:00:00' WHERE key = 'old'")
        connection.commit()
    assert migrate(memory, path).items == 2
    assert sorted(item.key for item in RefoldStore(memory).search(("u",))) == ["kept", "new"]
    assert migrate(memory, path).repeated


PLAN = """
from dataclasses import dataclass
from enum import Enum

class Kind(Enum):
    ROAD = "road"

@dataclass
class Plan:
    title: str
    kinds: list
"""


def test_values_of_classes_that_are_not_here_are_what_they_were(
    memory: Memory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "plans_of_a_user.py").write_text(PLAN)
    monkeypatch.syspath_prepend(str(tmp_path))
    plans = importlib.import_module("plans_of_a_user")

    class State(TypedDict):
        messages: Annotated[list[Any], add_messages]
        plan: Any

    def plan(state: State) -> dict[str, Any]:
        return {
            "messages": [("ai", "Done.")],
            "plan": [*(state.get("plan") or []), plans.Plan("car", [plans.Kind.ROAD])],
        }

    nodes: Any = StateGraph(State)
    graph = nodes.add_node("plan", plan).add_edge(START, "plan")
    config: Any = {"configurable": {"thread_id": "trip"}}
    with SqliteSaver.from_conn_string(str(tmp_path / "langgraph.db")) as saver:
        theirs = graph.compile(checkpointer=saver)
        for _ in range(2):
            theirs.invoke({"messages": [("human", "Plan it.")]}, config)
        expected = checkpoints(saver)
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "plans_of_a_user")
        patch.setattr(sys, "path", [each for each in sys.path if each != str(tmp_path)])
        migrate(memory, tmp_path / "langgraph.db")
    assert checkpoints(RefoldSaver(memory)) == expected
    resumed = graph.compile(checkpointer=RefoldSaver(memory)).invoke({"messages": [("human", "More.")]}, config)
    assert resumed["plan"] == [plans.Plan("car", [plans.Kind.ROAD])] * 3
    assert len(memory.conversation("langgraph/trip").window()) == 6


@pytest.mark.parametrize("outer", [None, "Interrupt", "Send"])
def test_a_file_from_elsewhere_runs_nothing(memory: Memory, tmp_path: Path, outer: str | None) -> None:
    made = tmp_path / "made"
    evil = ormsgpack.Ext(0, ormsgpack.packb(("os", "mkdir", str(made))))
    if outer is not None:
        arguments = (
            ("langgraph.types", outer, evil) if outer == "Interrupt" else ("langgraph.types", outer, ("a", evil))
        )
        evil = ormsgpack.Ext(0 if outer == "Interrupt" else 1, ormsgpack.packb(arguments))
    fill(tmp_path / "langgraph.db", threads=1, turns=1)
    with closing(sqlite3.connect(tmp_path / "langgraph.db")) as connection:
        for row, packed in connection.execute("SELECT rowid, checkpoint FROM checkpoints").fetchall():
            checkpoint = ormsgpack.unpackb(packed, ext_hook=ormsgpack.Ext)
            checkpoint["channel_values"]["evil"] = evil
            checkpoint["channel_versions"]["evil"] = "1"
            changed = ormsgpack.packb(checkpoint, option=ormsgpack.OPT_NON_STR_KEYS)
            connection.execute("UPDATE checkpoints SET checkpoint = ? WHERE rowid = ?", (changed, row))
        connection.execute("UPDATE writes SET type = 'msgpack', value = ?", (ormsgpack.packb(evil),))
        connection.commit()
    assert migrate(memory, tmp_path / "langgraph.db").checkpoints
    assert not made.exists()
    strict = RefoldSaver(memory, serde=JsonPlusSerializer(allowed_msgpack_modules=None))
    assert list(strict.list(None))
    assert not made.exists()


def test_checkpoints_writes_and_items_are_what_they_were(memory: Memory, tmp_path: Path) -> None:
    fill(tmp_path / "langgraph.db", threads=3, turns=4)
    counts = migrate(memory, tmp_path / "langgraph.db")
    with SqliteSaver.from_conn_string(str(tmp_path / "langgraph.db")) as theirs:
        expected = checkpoints(theirs)
        assert checkpoints(RefoldSaver(memory)) == expected
    assert (counts.threads, counts.checkpoints, counts.items, counts.known) == (3, len(expected), 6, 0)
    ours = RefoldStore(memory)
    with SqliteStore.from_conn_string(str(tmp_path / "langgraph.db")) as theirs_store:
        for namespace in NAMESPACES:
            for key in ("key", "with.dot"):
                mine, other = ours.get(namespace, key), theirs_store.get(namespace, key)
                assert mine is not None
                assert other is not None
                times = [time.replace(tzinfo=UTC) for time in (other.created_at, other.updated_at)]
                assert (mine.value, mine.created_at, mine.updated_at) == (other.value, *times)
    window = [message.content for message in memory.conversation("langgraph/thread-0").window()]
    assert window[:3] == ["Hello! 0", "1 so far", "yes"]
    config: Any = {"configurable": {"thread_id": "thread-0"}}
    graph = builder().compile(checkpointer=RefoldSaver(memory))
    resumed = graph.invoke(Command(resume="again"), config)
    assert resumed["messages"][-1].content == "again", "an interrupted run goes on"
    assert_sound(memory)


def test_one_that_was_cut_off_goes_on(memory: Memory, tmp_path: Path) -> None:
    fill(tmp_path / "langgraph.db", threads=2, turns=2)

    def stop(done: int, count: int) -> None:
        if done == count // 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        migrate(memory, tmp_path / "langgraph.db", progress=stop)
    head = memory.head
    counts = migrate(memory, tmp_path / "langgraph.db")
    assert counts.known
    assert counts.checkpoints + counts.items
    assert memory.head > head
    head = memory.head
    assert migrate(memory, tmp_path / "langgraph.db").repeated
    assert memory.head == head, "once more changes nothing"
    with SqliteSaver.from_conn_string(str(tmp_path / "langgraph.db")) as theirs:
        assert checkpoints(RefoldSaver(memory)) == checkpoints(theirs)


def set_item(path: Path, key: str, value: str, updated: str) -> None:
    """Put an item as SqliteStore does, at a time of the test's choice."""
    with closing(sqlite3.connect(path)) as connection:
        row = ("users", key, f'{{"likes": "{value}"}}', "2026-01-01 08:00:00", updated)
        connection.execute(
            "INSERT OR REPLACE INTO store (prefix, key, value, created_at, updated_at) VALUES (?, ?, ?, ?, ?)", row
        )
        connection.commit()


def test_a_later_migration_takes_items_that_have_changed_since(memory: Memory, tmp_path: Path) -> None:
    path, store = tmp_path / "store.db", RefoldStore(memory)
    with SqliteStore.from_conn_string(str(path)) as theirs:
        theirs.setup()
    first, second, third = (f"2026-01-0{day} 09:00:00" for day in (1, 2, 3))
    for key in ("drink", "food", "pet", "quick", "seat"):
        set_item(path, key, "tea", first)
    assert migrate(memory, path).items == 5

    def likes(key: str) -> tuple[str, str]:
        item = store.get(("users",), key)
        assert item is not None
        return item.value["likes"], item.updated_at.strftime("%Y-%m-%d %H:%M:%S")

    set_item(path, "drink", "coffee", second)
    set_item(path, "quick", "coffee", first)  # Within one second, which is all that SQLite's times tell apart.
    set_item(path, "late", "coffee", second)
    counts = migrate(memory, path)
    assert (counts.items, counts.known, counts.repeated, counts.conflicts) == (3, 3, False, ())
    assert [likes(key) for key in ("drink", "quick", "late")] == [
        ("coffee", second),
        ("coffee", first),
        ("coffee", second),
    ]
    assert likes("food") == ("tea", first)
    assert migrate(memory, path).repeated

    for key in ("food", "pet", "seat"):
        store.put(("users",), key, {"likes": "milk"})
    set_item(path, "pet", "cocoa", third)
    set_item(path, "seat", "milk", third)
    set_item(path, "drink", "older", first)
    head = memory.head
    counts = migrate(memory, path)
    assert (counts.items, counts.known, counts.repeated, counts.conflicts) == (0, 5, False, ("users/pet",))
    assert (memory.head, likes("pet")[0], likes("drink")[0]) == (head, "milk", "coffee")
    pet = store.get(("users",), "pet")
    assert pet is not None
    assert pet.created_at.isoformat() == "2026-01-01T08:00:00+00:00"
    assert_sound(memory)


def test_a_file_of_something_else_is_refused(memory: Memory, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be read as a page of one" * 20)
    with pytest.raises(InvalidInput, match="is no SQLite database"):
        migrate(memory, tmp_path / "text")
    with closing(sqlite3.connect(tmp_path / "other.db")) as connection:
        connection.execute("CREATE TABLE other (id)")
    with pytest.raises(InvalidInput, match="neither checkpoints nor a store"):
        migrate(memory, tmp_path / "other.db")
    assert memory.head == 0


def test_the_command_line_imports_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    fill(tmp_path / "langgraph.db", threads=2, turns=1)
    refold, db = running(monkeypatch, capfd), str(tmp_path / "store")
    ended = refold("import", "--from", "langgraph-sqlite", str(tmp_path / "langgraph.db"), "--db", db)
    assert (ended.code, "2 threads" in ended.out, "6 items" in ended.out) == (0, True, True), ended
    again = refold("import", "--from", "langgraph-sqlite", str(tmp_path / "langgraph.db"), "--db", db)
    assert "already imported, nothing changed" in again.out
    set_item(tmp_path / "langgraph.db", "drink", "tea", "2026-01-01 09:00:00")
    again = refold("import", "--from", "langgraph-sqlite", str(tmp_path / "langgraph.db"), "--db", db)
    assert ": 0 threads, 0 checkpoints, 1 item, " in again.out
    with Memory(db) as memory:
        RefoldStore(memory).put(("users",), "drink", {"likes": "milk"})
    set_item(tmp_path / "langgraph.db", "drink", "cocoa", "2026-01-02 09:00:00")
    again = refold("import", "--from", "langgraph-sqlite", str(tmp_path / "langgraph.db"), "--db", db)
    said = "users/drink was changed in the file and in the store; it stays as it is in the store\n"
    assert (again.code, again.err) == (0, said), again


@pytest.mark.slow
def test_a_hundred_megabytes_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "langgraph.db"
    fill(path, threads=20, turns=22, text="A long message of a user. " * 400)
    assert path.stat().st_size > 100_000_000
    with Memory(tmp_path / "store") as memory:
        counts = migrate(memory, path)
        with SqliteSaver.from_conn_string(str(path)) as theirs:
            config: Any = {"configurable": {"thread_id": "thread-7"}}
            mine = [found.checkpoint for found in RefoldSaver(memory).list(config)]
            assert mine == [found.checkpoint for found in theirs.list(config)]
        assert counts.threads == 20
        assert memory.verify().ok
    assert sum(file.stat().st_size for file in (tmp_path / "store").iterdir()) < path.stat().st_size / 2


def test_a_pipe_is_not_waited_for(memory: Memory, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InvalidInput, match="is no file"):
        migrate(memory, tmp_path / "pipe")
