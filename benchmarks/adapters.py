"""What adapters keep, beside the frameworks' own stores on SQLite, which take the place of a floor.

Every round takes every job of both in rotated order; both are durable when a call returns (SQLite: WAL, FULL). A thread
of LangGraph has so many checkpoints already, of a chat that grew by a message a step; its store has 2,000 items in 20
namespaces; a session of the OpenAI Agents SDK has so many messages. Run it::

    python benchmarks/adapters.py [ROUNDS] [MESSAGES]
"""

import asyncio
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from agents.memory import Session, SQLiteSession
from crews import Crew
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.store.base import BaseStore
from langgraph.store.sqlite import SqliteStore
from rounds import Job, alternate, in_short_slices, median, ratio_of

from refold import Memory
from refold.adapters.langgraph import RefoldSaver
from refold.adapters.langgraph_store import RefoldStore
from refold.adapters.openai_agents import RefoldSession

THREADS_COUNT: Final = 64
LISTED_COUNT: Final = 10
ITEMS_COUNT: Final = 2_000
NAMESPACES_COUNT: Final = 20
VERBS: Final = ("put", "put_writes", "get_tuple", "list")
TEXT: Final = "lorem ipsum " * 16


class Talk:
    """One thread of a checkpointer: a chat that grows by a message at each step."""

    def __init__(self, saver: BaseCheckpointSaver[str], name: str, messages: int) -> None:
        self.saver = saver
        self.base: Any = {"configurable": {"thread_id": name, "checkpoint_ns": ""}}
        self.config, self.messages, self.step, self.messages_count = self.base, [], 0, messages
        for _ in range(messages):
            self.put()

    def put(self) -> None:
        """Put a checkpoint with one more message; a chat that is long enough begins anew."""
        self.step += 1
        kind = HumanMessage if self.step % 2 else AIMessage
        said = kind(f"turn {self.step} " + TEXT, id=f"m{self.step}")
        self.messages = [*self.messages, said]
        if len(self.messages) >= 2 * self.messages_count:
            self.messages = self.messages[-self.messages_count :]
        made = empty_checkpoint()
        version = f"{self.step:032}.0"
        made["id"] = str(uuid6(clock_seq=self.step % 16_384))
        made["channel_values"] = {"messages": self.messages, "step": self.step, "plan": "fixed " * 20}
        new: Any = {"messages": version, "step": version} | ({"plan": "1"} if self.step == 1 else {})
        made["channel_versions"] = {"messages": version, "step": version, "plan": "1"}
        self.config = self.saver.put(self.config, made, {"source": "loop", "step": self.step}, new)

    def put_writes(self) -> None:
        """Put the writes of one more task of the newest checkpoint."""
        self.step += 1
        writes = [("messages", self.messages[-1:]), ("step", self.step)]
        self.saver.put_writes(self.config, writes, f"task-{self.step}")

    def get_tuple(self) -> None:
        """Read the newest checkpoint."""
        found = self.saver.get_tuple(self.base)
        assert found is not None
        assert len(found.checkpoint["channel_values"]["messages"]) >= self.messages_count

    def list(self) -> None:
        """Read the ten newest checkpoints."""
        assert len([*self.saver.list(self.base, limit=LISTED_COUNT)]) == LISTED_COUNT

    def filter(self) -> None:
        """Read the checkpoint of one step, by its metadata."""
        wanted = self.step - self.messages_count // 2
        (found,) = self.saver.list(self.base, filter={"step": wanted}, limit=1)
        assert found.metadata.get("step") == wanted


class Shelf:
    """A store of LangGraph with items of several users."""

    def __init__(self, store: BaseStore) -> None:
        self.store, self.count = store, 0
        while self.count < ITEMS_COUNT:
            self.put()

    def _place(self, number: int) -> tuple[tuple[str, str], str]:
        return ("users", f"user-{number % NAMESPACES_COUNT}"), f"item-{number % ITEMS_COUNT}"

    def put(self) -> None:
        """Put one more item, or write over the oldest one."""
        self.count += 1
        self.store.put(*self._place(self.count), {"text": TEXT, "number": self.count, "kind": f"k{self.count % 7}"})

    def get(self) -> None:
        """Read an item."""
        number = self.count * 31 % ITEMS_COUNT
        found = self.store.get(*self._place(number))
        assert found is not None
        assert found.value["number"] % ITEMS_COUNT == number

    def search(self) -> None:
        """Read the ten newest items of a user."""
        assert len(self.store.search(self._place(self.count)[0], limit=LISTED_COUNT)) == LISTED_COUNT

    def search_all(self) -> None:
        """Read the ten newest items of all."""
        assert len(self.store.search(("users",), limit=LISTED_COUNT)) == LISTED_COUNT

    def filter(self) -> None:
        """Read ten items of a kind."""
        found = self.store.search(("users",), filter={"kind": "k3"}, limit=LISTED_COUNT)
        assert [item.value["kind"] for item in found] == ["k3"] * LISTED_COUNT


class Agent:
    """A session of the OpenAI Agents SDK."""

    def __init__(self, session: Session, loop: asyncio.AbstractEventLoop, messages: int) -> None:
        self.session, self.loop, self.count = session, loop, 0
        for _ in range(messages):
            self.add()

    def add(self) -> None:
        """Add a message."""
        self.count += 1
        item: Any = {"role": "user", "content": f"{self.count} {TEXT}"}
        self.loop.run_until_complete(self.session.add_items([item]))

    def get(self) -> None:
        """Read the ten newest messages."""
        assert len(self.loop.run_until_complete(self.session.get_items(LISTED_COUNT))) == LISTED_COUNT

    def pop(self) -> None:
        """Take the newest message out."""
        found = self.loop.run_until_complete(self.session.pop_item())
        assert found is not None
        assert str(found.get("content")).startswith(f"{self.count} ")
        self.count -= 1


@contextmanager
def sqlite_saver(path: Path) -> Iterator[BaseCheckpointSaver[str]]:
    """LangGraph's own checkpointer, durable when a call returns."""
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    connection.execute("PRAGMA synchronous=FULL")
    yield saver
    connection.close()


@contextmanager
def sqlite_store(path: Path) -> Iterator[BaseStore]:
    """LangGraph's own store, durable when a call returns."""
    with SqliteStore.from_conn_string(str(path)) as store:
        store.setup()
        store.conn.execute("PRAGMA journal_mode=WAL")
        store.conn.execute("PRAGMA synchronous=FULL")
        yield store


def many(run: Callable[[], None], times: int) -> Job:
    """Return a job that does something so many times."""
    return Job(lambda: [run() for _ in range(times)], times)


def checkpointer_jobs(saver: BaseCheckpointSaver[str], crew: Crew, messages: int) -> dict[str, Job]:
    """Return the jobs of one checkpointer by their names."""
    put, written, read = (Talk(saver, name, messages) for name in ("put", "written", "read"))
    talks = [Talk(saver, f"talk-{place}", LISTED_COUNT) for place in range(crew.count)]
    return {
        "put": many(put.put, 4),
        "put_writes": many(written.put_writes, 4),
        "get_tuple": many(read.get_tuple, 4),
        "list": many(read.list, 1),
        "list by metadata": many(read.filter, 1),
    } | {
        f"{verb}, {crew.count} threads": crew.job(lambda place, verb=verb: getattr(talks[place], verb)(), 1)
        for verb in VERBS
    }


def store_jobs(store: BaseStore) -> dict[str, Job]:
    """Return the jobs of one store by their names."""
    shelf = Shelf(store)
    return {
        "store: put": many(shelf.put, 4),
        "store: get": many(shelf.get, 4),
        "store: search a user": many(shelf.search, 1),
        "store: search all": many(shelf.search_all, 1),
        "store: search by a field": many(shelf.filter, 1),
    }


def session_jobs(session: Session, loop: asyncio.AbstractEventLoop, messages: int) -> dict[str, Job]:
    """Return the jobs of one session by their names."""
    agent = Agent(session, loop, messages)
    return {"session: add": many(agent.add, 4), "session: get": many(agent.get, 4), "session: pop": many(agent.pop, 4)}


def main(rounds: int, messages: int) -> None:
    """Print, for each job, the middle times of both in milliseconds and the ratio of their rates with its quartiles."""
    with (
        tempfile.TemporaryDirectory() as place,
        Crew(THREADS_COUNT) as crew,
        asyncio.Runner() as runner,
        Memory(f"{place}/refold") as memory,
        sqlite_saver(Path(place) / "sqlite") as saver,
        sqlite_store(Path(place) / "sqlite-store") as store,
    ):
        loop = runner.get_loop()
        ours = (
            checkpointer_jobs(RefoldSaver(memory), crew, messages)
            | store_jobs(RefoldStore(memory))
            | session_jobs(RefoldSession("session", memory), loop, messages)
        )
        own = SQLiteSession("session", Path(place) / "sqlite-session")
        theirs = checkpointer_jobs(saver, crew, messages) | store_jobs(store) | session_jobs(own, loop, messages)
        both = {"refold": ours, "sqlite": theirs}
        samples = alternate({f"{who} {name}": job for who, each in both.items() for name, job in each.items()}, rounds)
        size = sum(path.stat().st_size for path in Path(place, "refold").iterdir() if path.name != "ballast")
        other = sum(path.stat().st_size for path in Path(place).glob("sqlite*"))
        own.close()
    print(f"{rounds} rounds, threads of {messages} messages; {size / 1e6:.1f} MB, on SQLite {other / 1e6:.1f} MB")
    print(f"{'job':24} {'refold ms':>10} {'sqlite ms':>10} {'rate':>6}  quartiles")
    for name in ours:
        run, floor = samples[f"refold {name}"], samples[f"sqlite {name}"]
        ratio = ratio_of(run, floor, "at least")
        times = f"{median(run) / 1e6:10.3f} {median(floor) / 1e6:10.3f}"
        print(f"{name:24} {times} {ratio.value:5.2f}x  {ratio.low:.2f} to {ratio.high:.2f}")


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    in_short_slices(main, *(arguments + [60, 50][len(arguments) :]))
