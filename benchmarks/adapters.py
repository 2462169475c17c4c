"""The checkpointer of LangGraph, beside LangGraph's own on SQLite, which takes the place of a floor.

Every round takes every job of both in rotated order. A thread has so many checkpoints already, of a chat that grew by a
message a step; both are durable when a call returns (SQLite: WAL, FULL). Run it::

    python benchmarks/adapters.py [ROUNDS] [MESSAGES]
"""

import sqlite3
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from crews import Crew
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.base import BaseCheckpointSaver, empty_checkpoint
from langgraph.checkpoint.base.id import uuid6
from langgraph.checkpoint.sqlite import SqliteSaver
from rounds import Job, alternate, in_short_slices, median, ratio_of

from refold.adapters.langgraph import RefoldSaver

THREADS_COUNT: Final = 64
LISTED_COUNT: Final = 10
VERBS: Final = ("put", "put_writes", "get_tuple", "list")
NAMES: Final = (*VERBS, *(f"{verb}, {THREADS_COUNT} threads" for verb in VERBS))


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
        said = kind(f"turn {self.step} " + "lorem ipsum " * 16, id=f"m{self.step}")
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


@contextmanager
def sqlite_saver(path: Path) -> Iterator[BaseCheckpointSaver[str]]:
    """LangGraph's own checkpointer, durable when a call returns."""
    connection = sqlite3.connect(path, check_same_thread=False)
    saver = SqliteSaver(connection)
    saver.setup()
    connection.execute("PRAGMA synchronous=FULL")
    yield saver
    connection.close()


def jobs(saver: BaseCheckpointSaver[str], crew: Crew, messages: int) -> dict[str, Job]:
    """Return the jobs of one checkpointer by their names."""
    put, written, read = (Talk(saver, name, messages) for name in ("put", "written", "read"))
    talks = [Talk(saver, f"talk-{place}", LISTED_COUNT) for place in range(crew.count)]

    def many(run: Callable[[], None], times: int) -> Job:
        return Job(lambda: [run() for _ in range(times)], times)

    found = (
        many(put.put, 4),
        many(written.put_writes, 4),
        many(read.get_tuple, 4),
        many(read.list, 1),
        *(crew.job(lambda place, verb=verb: getattr(talks[place], verb)(), 1) for verb in VERBS),
    )
    return dict(zip(NAMES, found, strict=True))


def main(rounds: int, messages: int) -> None:
    """Print, for each job, the middle times of both in milliseconds and the ratio of their rates with its quartiles."""
    with (
        tempfile.TemporaryDirectory() as place,
        Crew(THREADS_COUNT) as crew,
        RefoldSaver.from_path(f"{place}/refold") as ours,
        sqlite_saver(Path(place) / "sqlite") as theirs,
    ):
        both = {"refold": jobs(ours, crew, messages), "sqlite": jobs(theirs, crew, messages)}
        samples = alternate({f"{who} {name}": job for who, each in both.items() for name, job in each.items()}, rounds)
        size = sum(path.stat().st_size for path in Path(place, "refold").iterdir() if path.name != "ballast")
        other = sum(path.stat().st_size for path in Path(place).glob("sqlite*"))
    print(f"{rounds} rounds, threads of {messages} messages; {size / 1e6:.1f} MB, SqliteSaver {other / 1e6:.1f} MB")
    print(f"{'job':24} {'refold ms':>10} {'sqlite ms':>10} {'rate':>6}  quartiles")
    for name in NAMES:
        run, floor = samples[f"refold {name}"], samples[f"sqlite {name}"]
        ratio = ratio_of(run, floor, "at least")
        times = f"{median(run) / 1e6:10.3f} {median(floor) / 1e6:10.3f}"
        print(f"{name:24} {times} {ratio.value:5.2f}x  {ratio.low:.2f} to {ratio.high:.2f}")


if __name__ == "__main__":
    arguments = [int(argument) for argument in sys.argv[1:]]
    in_short_slices(main, *(arguments + [60, 50][len(arguments) :]))
