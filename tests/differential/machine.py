"""A state machine that does the same to a memory and to the model, and compares all that can be read.

Run as a module it repeats what a test ran, and makes what fails small; the log is in a directory, or on a server::

    python -m tests.differential.machine SEED EXAMPLES STEPS [postgres|nats]
"""

import shutil
import sys
import tempfile
import threading
import time
from contextlib import ExitStack
from contextvars import Context
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from hypothesis.stateful import run_state_machine_as_test as run

from refold import Board, InvalidInput, Memory, ReadOnly, Recorded, RefoldError, Snapshot, Upserted, fold, recover
from refold.engine import batch as batches
from refold.engine.reader import end_of_command
from refold.limits import MEMORY_BYTES_DEFAULT
from tests.differential.boards import Whose
from tests.differential.log import DEPTH_MAX
from tests.differential.model import Model
from tests.differential.operations import (
    BOARDS,
    BRANCHES,
    Kept,
    Operation,
    agrees,
    bursts,
    handle,
    ids_of,
    messages,
    names,
    options,
    places,
    stream_of,
)
from tests.differential.readings import Known, check_memory, check_window
from tests.differential.refusals import CHAT_MUTATIONS, MEMORY_MUTATIONS, REFUSALS
from tests.mirror.files import days, held, rendered
from tests.support.bounds import Clock, lowered, seeded_bytes
from tests.support.commits import Logs, running
from tests.support.other_process import Elsewhere, LengthCounter, WordsEmbedder
from tests.support.seams import engine_of, log_of

SHARED_MEMORY = Path("/dev/shm")  # noqa: S108 - a store there costs no disk flush; a directory of its own is made inside
BUDGETS = (100, 40, 128_000)
BOUNDS: tuple[dict[str, int], ...] = (
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
"""Bounds lowered, so that a short run crosses many checkpoints."""

AT_HOME = ("Conversation.restore", "Memory.restore", "Table.restore")
"""What another process does not do: snapshots that are pointers, and handles, do not travel."""

RUN_EXAMPLES = 10
KILLS_MAX = 1
"""How often the other process is killed in one example: it takes longer to begin anew than all else."""

UNDER_WAY_SECONDS = 0.5
"""How long a commit of a process that was killed may be under way to the server of its log."""

PLAIN = dict.fromkeys(["keywords", "metadata", "vector", "occurred"])
PLAIN |= {"category": "fact", "importance": 0.5, "status": "active"}
GONE = (
    Operation("Conversation.append", "gone", ("user", "one"), {"fields": {}, "occurred": None}),
    Operation("Project.upsert", "gone", ("tea",), {"draft": PLAIN, "threshold": None}),
    Operation("Profile.set", "gone", ("k", "one")),
    Operation("Journal.append", "gone", ("one",), {"day": None, "occurred": None}),
    Operation("Files.create", "gone", ("/memories/one.txt", "one")),
    Operation("Board.set_working_history", Whose("gone"), ("one",)),
    Operation("Table.put", "gone", ("k", b"one"), {"expires": None}),
    Operation("Table.restore", "gone", ("work",), {"at": None}),
)
"""What is erased as a whole."""

alone = precondition(lambda machine: machine.model.batch is None)
in_batch = precondition(lambda machine: machine.model.batch is not None)


def public_type(error: RefoldError) -> type[Exception]:
    """The class of an error that users know: the model raises no other."""
    return next(each for each in type(error).__mro__ if each.__module__ == "refold.errors")


class DifferentialMachine(RuleBasedStateMachine):
    """One store, one model, and another process that has the same store open now and then."""

    worker: Elsewhere
    logs: Logs | None = None
    """Where the store is a log on a server."""

    def __init__(self) -> None:
        super().__init__()
        self.open_things, self.batch = ExitStack(), ExitStack()
        place = SHARED_MEMORY if SHARED_MEMORY.is_dir() else None
        self.root = Path(self.open_things.enter_context(tempfile.TemporaryDirectory(prefix="refold-", dir=place)))
        self.path: Path | str = self.root / "store" if self.logs is None else self.logs.address()
        self.clock, self.stores = Clock(), 0
        self.model, self.memory_bytes = Model(self.clock, BUDGETS[0]), MEMORY_BYTES_DEFAULT
        self.kept: list[Kept] = []
        self.hashes: dict[tuple[int, int], str] = {}
        self.other: Any = None
        self.asked: Operation | None = None
        self.known, self.steps, self.kills = Known(), 0, 0

    @initialize(bounds=st.sampled_from(BOUNDS))
    def begin(self, bounds: dict[str, int]) -> None:
        # Messages are never embedded: who is found by meaning would be a matter of time.
        self.bounds = bounds | {"BASE_DEPTH_MAX": DEPTH_MAX, "EMBED_LINGER_SECONDS": 10**9}
        self.open_things.enter_context(lowered(**self.bounds))
        self.memory_bytes = bounds.get("MEMORY_BYTES_MIN", self.memory_bytes)
        self.store = self.memory = self.opened(None)
        self._meet_donor()
        self.store = self.memory = self.opened(self.path)

    def _meet_donor(self) -> None:
        """Take a snapshot in another store, to be handed over."""
        call = [{"id": "c1", "function": {"name": "look", "arguments": "{}"}}]
        said: list[tuple[Any, ...]] = [
            ("user", "hello", {}),
            ("assistant", None, {"tool_calls": call}),
            ("tool", [{"text": "x"}], {"tool_call_id": "c1"}),
        ]
        for role, content, fields in said:
            given = {"fields": fields | {"tokens": 7, "pinned": False, "metadata": {"m": 1}}, "occurred": 5}
            self.do(Operation("Conversation.append", "a", (role, content), given))
        for key in ("k", "\u00e9"):
            self.do(Operation("Scratchpad.set", "a", (key, "donated " * 40)))
            self.do(Operation("ScopedState.set", "a", (key, [key])))
            self.do(Operation("Scratchpad.note", "a", ("donated",)))
        self.keep("a", as_bytes=True)
        self.kept[0].foreign = True
        self.memory.close()
        self.model = Model(self.clock, BUDGETS[0])

    def teardown(self) -> None:
        """Compare every remembered hash with a read at its seq and with a replay, and close everything."""
        try:
            if self.model.batch is not None:
                self.leave_batch(fails=False)
            for (branch, seq), hashed in self.hashes.items():
                there = self.branch_of(self.store, branch)
                assert there.state_hash(at=seq) == there.replay_hash(at=seq) == hashed
        finally:
            self.batch.close()
            self.leave_other()
            self.store.close()
            self.open_things.close()

    # Stores, processes and branches.

    def opened(self, path: Path | str | None, **given: Any) -> Memory:
        """A memory whose clock and random source are known, and whose copy of a log on a server is a new one."""
        self.stores += 1
        given = self._cache(path) | given
        known: dict[str, Any] = {"clock_ns": self.clock, "random_bytes": seeded_bytes(self.stores)}
        known |= {"token_counter": LengthCounter(), "embedder": WordsEmbedder()}
        known |= {"memory_bytes": self.memory_bytes, "window_tokens": self.model.budget}
        return Memory(path, **(known | given))

    def _cache(self, path: Path | str | None) -> dict[str, Any]:
        if not isinstance(path, str):
            return {}
        return {"cache": self.root / f"cache-{self.stores}"}

    def opened_elsewhere(self) -> Any:
        """The same store in another process, where it stays open until it is left."""
        if self.other is None:
            self.stores += 1
            self.worker.clock = self.clock
            given: dict[str, Any] = {"memory_bytes": self.memory_bytes, "window_tokens": self.model.budget}
            given |= {} if self.logs is None else {"cache": ":memory:"}
            self.other = self.worker.opened(self.path, self.bounds, self.stores, **given)
        return self.other

    def leave_other(self) -> None:
        """Close the store in the other process."""
        if self.other is not None:
            self.worker.shut()
            self.other = None

    def copied(self) -> Path | str:
        """The path of a copy of the store as it lies on disk: what a killed process leaves, or the address."""
        if isinstance(self.path, str):
            return self.path
        self.stores += 1
        copy = self.root / f"copy-{self.stores}"
        copy.mkdir()
        shutil.copyfile(self.path / "data.mdb", copy / "data.mdb")
        return copy

    def catch_up(self, memory: Any = None) -> None:
        """Let a memory take in all that was written to a log on a server, by default the one that is driven."""
        if self.logs is not None and self.model.batch is None:
            (self.memory if memory is None else memory).refresh()

    def branch_of(self, store: Any, branch: int | None = None) -> Any:
        """The handle of a store on a branch, by default on the one that is driven."""
        branch = self.model.branch if branch is None else branch
        return store.fork(self.model.branches()[branch - 1][2]) if branch else store

    def branches(self) -> range:
        """The numbers of all branches."""
        return range(len(self.model.branches(self.model.committed)) + 1)

    def go_to(self, branch: int) -> None:
        """Drive another branch from here on."""
        self.model.branch = branch
        self.memory, self.asked = self.branch_of(self.store), None

    # Operations.

    def do(self, drawn: Operation) -> None:
        """Do an operation to both: both do it and say the same, or both refuse it with the same error."""
        if drawn.verb == "Project.decay" and self.model.batch is not None:
            return  # What an open batch holds has no time yet.
        op = drawn.resolved(self.model, self.kept)
        if any(getattr(arg, "kind", "") for arg in op.args):
            return
        if op.options.get("request_id") is not None:
            self.asked = op
        self.ask(op)

    def ask(self, op: Operation) -> None:
        """Do an operation that picks nothing any more."""
        head = self.model.committed
        try:
            result = op.do(self.memory)
        except RefoldError as error:
            with pytest.raises(public_type(error)):
                op.follow(self.model, [])
            assert self.model.committed == head
        else:
            expected = op.follow(self.model, self._new_ids(op, result))
            assert agrees(result, expected), (op, result, expected)
        self.catch_up()
        assert self.memory.head == self.model.committed, op

    def _new_ids(self, op: Operation, result: Any) -> list[str]:
        """The random ids that a call made; only the event has that of a text that was merged."""
        if not isinstance(result, Upserted) or result.outcome != "merged":
            return ids_of(result)
        home = self.branch_of(self.store)
        self.catch_up(home)  # Another process may have merged it.
        batch = batches.active_batch(engine_of(home))
        event: Any = batch.transaction.events[-1] if batch else list(home.project(op.where).events())[-1].event
        return [getattr(event, "other", "")]  # Another event is the last one where a request is repeated.

    # Rules are sorted by how much they draw and by name, and the first ones are drawn more often than the others: those
    # that write come first, for most of what is to be found needs a past.

    @rule(drawn=bursts)
    def burst(self, drawn: list[Operation]) -> None:
        for op in drawn:
            self.do(op)

    burst_again = burst_later = burst_more = burst_others = burst

    @precondition(lambda machine: machine.asked is not None)
    @rule(times=st.integers(1, 2))
    def repeat(self, times: int) -> None:
        """Ask the same again, under the same request id."""
        for _ in range(times):
            assert self.asked is not None
            self.ask(self.asked.unclaimed(self.model))

    @alone
    @rule(drawn=bursts)
    def burst_elsewhere(self, drawn: list[Operation]) -> None:
        """Another process does it; this one has to notice."""
        for op in drawn:
            if not op.verb.startswith(AT_HOME):
                self.memory = self.branch_of(self.opened_elsewhere())
                self.do(op)
                self.memory = self.branch_of(self.store)
                self.catch_up()
                assert self.memory.head == self.model.committed
        self.asked = None

    @alone
    @precondition(lambda machine: machine.kills < KILLS_MAX)
    @rule(drawn=bursts, message=messages(), waits=st.booleans())
    def kill_writer(self, drawn: list[Operation], message: Any, waits: bool) -> None:
        """A process that writes is killed: between two calls, or in one, which is done as a whole or not at all."""
        self.kills += 1
        self.burst_elsewhere(drawn)
        other, before = self.branch_of(self.opened_elsewhere()), self.model.head
        (role, content), fields = message
        op = Operation("Conversation.append", "a", (role, content), {"fields": fields, "occurred": None})
        op = op.resolved(self.model, self.kept)
        if waits:
            self.worker.kill()
        else:
            chat = other.conversation("a")
            chat.window()
            self.worker.kill(chat, "append", (role, content), **fields)
        self.other = None
        if self.logs is not None:
            time.sleep(UNDER_WAY_SECONDS)
        self.catch_up()
        if self.memory.head > before:
            event: Any = list(self.memory.events(after=before))[-1].event
            op.follow(self.model, [event.id])

    # Batches and time.

    @rule(microseconds=st.sampled_from([86_400 * 10**6, 1, 10**6, 86_400 * 10**6, -5 * 10**6, -400 * 86_400 * 10**6]))
    def tick(self, microseconds: int) -> None:
        self.clock.advance(microseconds)

    @alone
    @rule(drawn=bursts)
    def enter_batch(self, drawn: list[Operation]) -> None:
        self.batch.enter_context(self.memory.batch())
        self.model.begin()
        self.burst(drawn)

    @in_batch
    @rule(fails=st.sampled_from([False, False, False, True]))
    def leave_batch(self, fails: bool) -> None:
        if fails:
            self.batch.__exit__(KeyError, KeyError(), None)
            self.model.discard()
            self.asked = None  # It may name a conversation that was opened in this batch.
        else:
            self.batch.close()
            self.model.commit()

    @rule(key=st.sampled_from(["k", "l"]), actor=st.sampled_from(["tool:search", "mcp:\u00e9"]), place=places)
    def act(self, key: str, actor: str, place: int) -> None:
        """Write under an actor and a cause; in a batch under one that is known, for the name is written first."""
        value, cause = str(self.model.head), place % (self.model.committed + 1)
        actor = "cli" if self.model.batch else actor
        with self.memory.acting(actor, cause=cause):
            self.memory.profile("signed").set(key, value)
        named = actor if actor == "cli" else self.model.naming(actor)
        self.model.profile_set("signed", key, value)
        self.model.rows[-1] = replace(self.model.rows[-1], cause=cause, actor=named)

    # The past.

    @rule(name=names, place=places, other=places)
    def look_back(self, name: str, place: int, other: int) -> None:
        head = self.model.committed
        # Every other time one of the last moments: only there is the live state of a stream one event too young.
        at, to = max(head - place // 2 % 4, 0) if place % 2 else place % (head + 1), other % (head + 1)
        frozen = self.memory.at(at)
        check_memory(frozen, self.model, at)
        if at:
            time_ns = self.model.rows[at - 1].time_ns
            moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=time_ns // 1_000)
            assert self.memory.at(moment).head == sum(r.time_ns <= time_ns for r in self.model.rows[:head])
        known = self.hashes.get((self.model.branch, at))
        assert frozen.state_hash() == frozen.replay_hash() == (known or frozen.state_hash())
        self._replay(name, max(head - 4, 0))
        self._diff(at, to)

    def _replay(self, name: str, after: int) -> None:
        stream = f"conversation/{name}"
        rows = [row for row in self.model.stream_rows(stream, self.model.committed) if row.seq > after]
        steps = list(self.memory.conversation(name).replay(after=after))
        assert [step.stamp.seq for step in steps] == [row.seq for row in rows]
        for step, row in zip(steps, rows, strict=True):
            check_window(step.before, self.model, row.seq - 1)
            check_window(step.after, self.model, row.seq)

    def _diff(self, a: int, b: int) -> None:
        streams = {row.stream for row in self.model.seen(max(a, b))} - {"store/main"}
        differing = {s for s in streams if self.model.state(s, a).plain() != self.model.state(s, b).plain()}
        changes = [change for change in self.memory.diff(a, b) if change.stream != "store/main"]
        assert {change.stream for change in changes} == differing
        back = [(c.stream, c.path, c.after, c.before) for c in self.memory.diff(b, a) if c.stream != "store/main"]
        assert sorted(map(repr, back)) == sorted(repr((c.stream, c.path, c.before, c.after)) for c in changes)

    @alone
    @rule(name=names, as_bytes=st.booleans(), place=st.one_of(st.none(), places))
    def keep(self, name: str, as_bytes: bool, place: int | None = None) -> None:
        """Take a snapshot of a conversation: of now or of then, as a pointer or as bytes."""
        at = None if place is None else place % (self.model.head + 1)
        stream, chat = f"conversation/{name}", self.memory.conversation(name)
        snapshot = (chat if at is None else chat.at(at)).snapshot()
        assert (snapshot.stream, snapshot.seq) == (stream, self.model.last_seq(stream, at))
        assert snapshot.cut == (self.model.head if at is None else at)
        kept = Kept(snapshot, stream, snapshot.seq, self.model.branch, cut=snapshot.cut)
        if as_bytes:
            state = self.model.state(stream, at)
            kept.snapshot, kept.carried = Snapshot.from_bytes(snapshot.to_bytes()), (state.project, state.carried())
        self.kept.append(kept)

    # Branches.

    @rule(name=st.sampled_from(BRANCHES), place=st.one_of(st.none(), st.none(), places), given=options)
    def fork(self, name: str, place: int | None, given: dict[str, Any]) -> None:
        at = None if place is None else place % (self.model.committed + 1)
        op = Operation("Memory.fork", None, (name,), {"at": at}, given).resolved(self.model, self.kept)
        asked, head = self.model.branch, self.memory.head
        try:
            memory = op.do(self.memory)
        except RefoldError as error:
            with pytest.raises(public_type(error)):
                op.follow(self.model, [])
            assert self.memory.head == head
            return
        self.model.branch = op.follow(self.model, [])
        self.memory, self.asked = memory, None
        assert memory.head == self.model.committed
        parent, seq, _ = self.model.branches()[self.model.branch - 1]
        if all(row.branch != self.model.branch for row in self.model.rows) and self.model.batch is None:
            assert memory.state_hash() == self.branch_of(self.store, parent).state_hash(at=seq), asked

    @rule(place=places)
    def go(self, place: int) -> None:
        """Go to another branch."""
        self.go_to(place % len(self.branches()))
        assert self.memory.head == self.model.committed

    @alone
    @rule(branch=places, place=places, given=options)
    def restore(self, branch: int, place: int, given: dict[str, Any]) -> None:
        """Bring the whole memory back to what a branch was at a seq."""
        branch, at = branch % len(self.branches()), place % (self.model.head + 1)
        there = self.branch_of(self.store, branch)
        kept = Kept(there.at(at).snapshot(), "", at, branch)
        op = Operation("Memory.restore", None, (kept,), None, given).resolved(self.model, self.kept)
        self.ask(op)
        if not self.model.is_repeated and "expected" not in op.options and "request_id" not in op.options:
            assert self.memory.state_hash() == there.state_hash(at=at)

    # The store.

    @alone
    @rule(how=st.sampled_from(["close", "kill"]), budget=st.sampled_from(BUDGETS), clears=st.booleans())
    def reopen(self, how: str, budget: int, clears: bool) -> None:
        left = self.copied() if how == "kill" else self.path
        self.leave_other()
        self.store.close()
        self.path, self.model.budget, self.asked = left, budget, None
        self.store = self.opened(left, clear_scratchpads_on_open=clears)
        driven = self.model.branch
        for branch in self.branches() if clears else ():
            self.model.branch = branch
            for name in self.model.names("conversation"):
                self.model.scratchpad_clear((name, None, None))
        self.model.branch = 0
        for kept in self.kept:
            if kept.carried is None:
                chat = self.branch_of(self.store, kept.branch).conversation(kept.stream.partition("/")[2])
                kept.snapshot = chat.at(kept.cut).snapshot()
        self.go_to(driven)

    @alone
    @rule(place=places)
    def carry_away(self, place: int) -> None:
        """Read what a read-only handle, an export, a backup and the recovery of an earlier state hold."""
        backup, new, export, head = self.root / "backup", self.root / "new", self.root / "export", self.model.head
        self.memory.flush()
        with self.opened(self.path, readonly=True) as reader:
            check_memory(self.branch_of(reader), self.model)
            for mutation in MEMORY_MUTATIONS:
                with pytest.raises(ReadOnly):
                    mutation(reader)
        assert self.memory.export(export) == head
        with self.opened(None) as other:
            assert other.load(export).events == head
            check_memory(self.branch_of(other), self.model)
            self._check_hashes(other, head)
            assert self.memory.reembed().vectors == 0
            self._check_mirror(self.branch_of(other))
            self._show_contexts(self.branch_of(other))
            assert other.verify().ok
        made = self.memory.backup(backup)
        assert (made.head, made.state_hash) == (head, self.store.state_hash())
        seq = place % (head + 1)
        seq = end_of_command(log_of(self.store), seq) if seq else 0
        assert recover(backup, new, to=seq, clock_ns=self.clock).state_hash == self.store.state_hash(at=seq)
        with self.opened(new) as again:
            assert again.replay_hash() == again.state_hash()
            self._check_hashes(again, seq)
        for path in (backup, new):
            shutil.rmtree(path)
        export.unlink()

    def _check_hashes(self, other: Memory, head: int) -> None:
        for (branch, seq), hashed in self.hashes.items():
            if seq <= head and branch <= len(self.model.branches(head)):
                assert self.branch_of(other, branch).state_hash(at=seq) == hashed

    def _check_mirror(self, memory: Memory) -> None:
        """Mirror a memory in files, which hold its profile and its notes, and change neither."""
        directory, before = self.root / "mirror", memory.state_hash()
        with memory.mirror(directory) as mirror:
            assert (mirror.report.ok, mirror.report.edits) == (True, ())
        names = [f"{path.stem[:4]}-{path.stem[4:6]}-{path.stem[6:]}" for path in days(directory)]
        assert held(directory) == rendered(memory, names)
        assert memory.state_hash() == before
        shutil.rmtree(directory)

    def _show_contexts(self, memory: Memory) -> None:
        """Show a context of each conversation, and build every one again after all of them were shown."""
        chats = [memory.conversation(name) for name in memory.conversations()]
        seqs = [memory.show(memory.context(chat, query="tea")) for chat in chats]
        assert all(memory.rebuild(seq).matches for seq in seqs)
        assert memory.state_hash() == memory.replay_hash()

    @alone
    @rule(whose=st.sampled_from(BOARDS))
    def listen(self, whose: Whose) -> None:
        """Hear of every event, and of all that a board ever showed, the last of it as it is now."""
        heard: list[Recorded] = []
        board, is_all = self.memory.board(**whose.options), threading.Event()
        shown, settings = [_shown(board.at(0))], [board.at(0).get_settings()]
        last = max((stamp.seq for _, stamp in self.memory.events()), default=0)

        def hear(recorded: Recorded) -> None:
            heard.append(recorded)
            if recorded.stamp.seq == last:
                is_all.set()

        with (
            board.subscribe_settings(settings.append, after=0),
            board.subscribe(lambda then: shown.append(_shown(then)), after=0),
            self.memory.subscribe(hear, after=0) as subscription,  # The last one to hear of each event.
        ):
            assert not last or is_all.wait(60), (shown, settings)
        assert (heard, subscription.error) == (list(self.memory.events()), None)
        for told, now in ((shown, _shown(board)), (settings, board.get_settings())):
            assert told[-1] == now
            assert all(one != other for one, other in pairwise(told))

    @rule(name=names, refusal=st.sampled_from(REFUSALS), place=places, mutation=st.sampled_from(CHAT_MUTATIONS))
    def refuse(self, name: str, refusal: Any, place: int, mutation: Any) -> None:
        """What is refused whatever the state is, and what the past refuses."""
        error, call = refusal
        with pytest.raises(error):
            call(self.memory, self.memory.conversation(name))
        frozen = self.memory.at(place % (self.model.committed + 1))
        refusals = ReadOnly if self.model.batch is None else (ReadOnly, InvalidInput)
        with pytest.raises(refusals):
            mutation(frozen.conversation(name))
        with pytest.raises(ReadOnly):
            frozen.fork("of the past")

    # Erasure.

    @alone
    @rule(chosen=st.lists(places, min_size=1, max_size=3), derived=st.sampled_from(["erase", "keep"]))
    def erase(self, chosen: list[int], derived: str) -> None:
        whole = [row for row in self.model.rows if not row.erased and row.about != "erasure"]
        # What replaced a value last is erased most often: the value must not come back.
        replacing = [row for row in whole if row.about == "replaced" or (row.about and row.about[0] == "became")]
        replacing = replacing[-4:] or whole
        if whole:
            pairs = [(place, replacing if place % 3 else whole) for place in chosen]
            seqs = sorted({rows[place % len(rows)].seq for place, rows in pairs})
            windows, ids = self._windows(), self._given_ids()
            receipt = self.memory.erase(seqs, derived=derived)
            erased = self.model.erase(seqs, derived=derived == "erase")
            assert sorted((*receipt.seqs, *receipt.derived)) == erased
            self._take_new_ids(ids)
            assert self._windows() == windows
            self._look_elsewhere()
            self.hashes = {place: hashed for place, hashed in self.hashes.items() if place[1] < erased[0]}

    erase_more = erase

    def _look_elsewhere(self) -> None:
        """The other process has noticed what was erased, if it has the store open."""
        if self.other is not None and self.logs is None:
            assert (self.other.head, self.other.state_hash()) == (self.store.head, self.store.state_hash())

    def _given_ids(self) -> dict[int, list[str]]:
        """The ids that callers chose, of all events of every branch."""
        branches = [self.branch_of(self.store, branch) for branch in self.branches()]
        return {stamp.seq: list(fold.given_ids(event)) for branch in branches for event, stamp in branch.events()}

    def _take_new_ids(self, before: dict[int, list[str]]) -> None:
        """Erased events got new ids for those that no other event has, and they are the same for all of them."""
        changed: dict[int, dict[str, str]] = {}
        for seq, ids in self._given_ids().items():
            pairs = zip(before.get(seq, ids), ids, strict=True)
            new = {old: now for old, now in pairs if old != now}
            if new:
                changed[seq] = new
                row = self.model.rows[seq - 1]
                others = [other for other in self.model.rows if other.stream == row.stream and other.seq in before]
                assert row.erased
                assert not any(not other.erased and new.keys() & {*before[other.seq]} for other in others)
                assert all(name.startswith("erased-") for name in new.values())
        self.model.take_new_ids(changed)

    def _windows(self) -> list[list[tuple[str, int]]]:
        chats = map(self.memory.conversation, self.memory.conversations())
        return [[(message.id, message.tokens) for message in chat.window()] for chat in chats]

    @alone
    @rule(op=st.sampled_from(GONE))
    def erase_all(self, op: Operation) -> None:
        """Erase a whole stream that nothing else goes on from, so that nothing refuses it."""
        self.do(op)
        kind, own = op.verb.partition(".")[0], stream_of(op.resolved(self.model, self.kept))
        first = min((row.seq for row in self.model.rows if row.stream == own), default=self.model.head)
        ids = self._given_ids()
        for stream in handle(self.memory, kind, op.resolved(self.model, []).where).erase(derived="keep").streams:
            self.model.erase_stream(own, stream)
        self._take_new_ids(ids)
        self._look_elsewhere()
        self.hashes = {place: hashed for place, hashed in self.hashes.items() if place[1] < first}

    # What holds after each step.

    @invariant()
    def everything_agrees(self) -> None:
        if self.steps % 4 == 0:
            self.known = Known()
        check_memory(self.memory, self.model, known=self.known)
        if self.model.batch is not None:
            Context().run(check_memory, self.memory, self.model.outside())
        live, head = self.memory.state_hash(), self.memory.head
        assert self.memory.replay_hash() == live
        assert self.hashes.setdefault((self.model.branch, head), live) == live
        branch, seq = sorted(self.hashes)[self.steps * 7 % len(self.hashes)]
        assert self.branch_of(self.store, branch).state_hash(at=seq) == self.hashes[branch, seq]
        self.steps += 1
        if self.steps % 3 == 0:
            self._check_copy()

    def _check_copy(self) -> None:
        """What a killed process would leave tells the same of every branch, and so does the other process."""
        copy = self.copied()
        if self.other is not None and self.model.batch is None:
            self.catch_up(self.other)
            assert self.branch_of(self.other).state_hash() == self.memory.state_hash()
        with self.opened(copy) as left:
            for branch in self.branches():
                here, there = (self.branch_of(store, branch) for store in (self.store, left))
                if self.model.batch is None or branch == self.model.branch:
                    assert there.state_hash() == there.replay_hash() == here.state_hash()
            report = left.verify()
        assert report.ok, report.findings
        if isinstance(copy, Path):
            shutil.rmtree(copy)


def _shown(board: Board) -> dict[str, Any]:
    return board.to_dict() | {"meta": board.get("messages_meta")}


def main(number: int, examples: int, steps: int, *, phases: tuple[Phase, ...] = (Phase.generate, Phase.shrink)) -> None:
    """Run the machine on examples that are the same for the same number."""
    with Elsewhere(Clock()) as worker:
        DifferentialMachine.worker = worker
        # Many short runs see more than a long one, which varies what it has seen.
        for part in range(0, examples, RUN_EXAMPLES):
            profile = settings(
                max_examples=min(RUN_EXAMPLES, examples - part),
                stateful_step_count=steps,
                phases=phases,
                print_blob=True,
                deadline=None,
                database=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            )
            run(seed(number * 1_000_003 + part)(DifferentialMachine), settings=profile)


if __name__ == "__main__":
    with ExitStack() as servers:
        if sys.argv[4:]:
            DifferentialMachine.logs = servers.enter_context(running(sys.argv[4]))
        main(*map(int, sys.argv[1:4]))
