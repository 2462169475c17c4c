"""A state machine that drives every public verb of a memory and, after each step, compares it with the plain model.

Run as a module it is one part of the profile that continuous integration runs::

    python -m tests.machine.machine SEED EXAMPLES STEPS
"""

import shutil
import sys
import threading
from contextvars import Context
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import initialize, invariant, precondition, rule, run_state_machine_as_test

from refold import InvalidInput, Memory, ReadOnly, Recorded, Snapshot
from tests.machine.board_rules import BoardRules
from tests.machine.chat_rules import GIVEN, drawn_rule
from tests.machine.comparison import check_chat, check_memory
from tests.machine.copies import carry_away, show_contexts, show_files
from tests.machine.driver import (
    BUDGETS,
    CONFIGURED,
    DEPTH_MAX,
    FORKS,
    SMALL,
    Drawn,
    Kept,
    drawn_options,
    keys,
    messages,
    moments,
    names,
    texts,
)
from tests.machine.file_rules import FileRules
from tests.machine.model import Model, Options, day_of
from tests.machine.model_states import Opening
from tests.machine.refusals import CHAT_MUTATIONS, MEMORY_MUTATIONS, REFUSALS
from tests.support.bounds import Clock, lowered
from tests.support.other_process import Elsewhere

places = st.integers(0, 1_000)
days = st.sampled_from([None, "2026-11-21", "1999-12-31"])
alone = precondition(lambda machine: machine.model.batch is None)
in_batch = precondition(lambda machine: machine.model.batch is not None)
has_events = precondition(lambda machine: machine.model.committed > 0)

GIVEN |= {
    "keep": {"name": names, "through_bytes": st.booleans()},
    "name_snapshot": {"name": names, "label": st.sampled_from(["one", "two"])},
    "restore": {"name": names, "source": names, "place": places, "drawn": drawn_options},
    "restore_named": {"name": names, "label": st.sampled_from(["one", "two"]), "drawn": drawn_options},
    "fork": {
        "name": names,
        "twin": st.sampled_from(FORKS),
        "place": st.one_of(st.none(), places),
        "drawn": drawn_options,
    },
    "close": {
        "name": st.sampled_from(["a", *FORKS]),
        "drop": st.sampled_from([True, True, False]),
        "drawn": drawn_options,
    },
    "set_fact": {"key": keys, "value": texts, "drawn": drawn_options},
    "act": {
        "key": keys,
        "actor": st.sampled_from(["tool:search", "mcp:\u00e9"]),
        "place": st.integers(0, 30),
        "drawn": drawn_options,
    },
    "delete_fact": {"key": keys, "drawn": drawn_options},
    "write": {"text": texts, "day": days, "occurred": moments, "drawn": drawn_options},
    "tick": {"microseconds": st.sampled_from([1, 10**6, 86_400 * 10**6, -5 * 10**6])},
}
WEIGHTED = [
    *GIVEN,
    *["append", "talk"] * 3,
    *["set", "delete", "note", "set_state", "fork", "restore", "restore", "close"] * 2,
    *["learn", "learn", "upsert", "update", "unmerge", "unmerge", "compact", "tick"] * 2,
    *["go", "go", "fork_whole", "restore_whole"] * 2,
    *["set_parts", "append_to_board", "hydrate_board"],
    *["write_file", "edit_file", "edit_file"],
]

AT_HOME = ("act", "go", "keep", "restore")
"""What another process does not do: contexts, handles and snapshots that are pointers do not travel."""

FITTING: dict[str, dict[str, Any]] = {
    "append": {"looped": False},
    "keep_whole": {"label": "one"},
    "restore_whole": {"label": "one", "place": 0},
}
"""What another process is given instead, for the same reason."""

KEYED = ("set", "deleted", "value_set", "value_deleted")


@st.composite
def actions(draw: st.DrawFn) -> tuple[str, dict[str, Any]]:
    """A rule with what it draws; messages more often than anything else, so that windows fill."""
    verb = draw(st.sampled_from(WEIGHTED))
    return verb, draw(st.fixed_dictionaries(GIVEN[verb]))


class MemoryMachine(BoardRules, FileRules):
    """Everything beside the verbs of one conversation: travels, the other handles, the store, and what must hold."""

    @initialize(bounds=st.sampled_from(SMALL))
    def begin(self, bounds: dict[str, int]) -> None:
        self.bounds = bounds | {"BASE_DEPTH_MAX": DEPTH_MAX}
        self.open_things.enter_context(lowered(**self.bounds))
        self.memory_bytes = bounds.get("MEMORY_BYTES_MIN", self.memory_bytes)
        self.model.clock_ns = self.clock
        self._meet_donor()
        self.memory, self.model = self.opened(self.path), Model()
        self.store = self.memory
        self.model.clock_ns = self.clock

    def _meet_donor(self) -> None:
        """Takes a snapshot in another store, to be handed over."""
        self.memory = self.opened(None)
        asked = [{"id": "c1", "function": {"name": "look", "arguments": "{}"}}]
        fields: dict[str, Any] = {"tokens": 7, "pinned": False, "name": None, "metadata": {"m": 1}}
        self.append("a", fields | {"role": "user", "content": "hello"}, None, Drawn())
        self.append("a", fields | {"role": "assistant", "content": None, "tool_calls": asked}, 5, Drawn())
        self.append("a", fields | {"role": "tool", "content": [{"text": "x"}], "tool_call_id": "c1"}, None, Drawn())
        for key in ("k", "\u00e9"):
            self.set("a", key, "donated " * 40, Drawn())
            self.set_state("a", key, [key], Drawn())
            self.note("a", "donated", Drawn())
        self.keep("a", through_bytes=True)
        self.kept[-1].foreign = True
        self.memory.close()

    def teardown(self) -> None:
        """Compares every remembered hash with a read at its seq and with a replay, and closes everything."""
        try:
            if self.model.batch is not None:
                self.leave_batch(fails=False)
            for (branch, seq), hashed in self.hashes.items():
                handle = self.branch_of(self.store, branch)
                assert handle.state_hash(at=seq) == handle.replay_hash(at=seq) == hashed
        finally:
            self.batch.close()
            self.leave_elsewhere()
            self.store.close()
            self.open_things.close()

    # Snapshots, restores, forks.

    @drawn_rule("keep")
    def keep(self, name: str, through_bytes: bool) -> None:
        if self.model.batch is not None:
            with pytest.raises(InvalidInput):
                self.chat(name).snapshot()
            return
        stream, snapshot, carried = f"conversation/{name}", self.chat(name).snapshot(), None
        if through_bytes:
            snapshot = Snapshot.from_bytes(snapshot.to_bytes())
            carried = (self.model.state(stream).project, self.model.state(stream).carried())
        assert (snapshot.stream, snapshot.seq) == (stream, self.model.last_seq(stream))
        self.kept.append(Kept(snapshot, stream, snapshot.seq, carried, branch=self.model.branch))

    @drawn_rule("name_snapshot")
    def name_snapshot(self, name: str, label: str) -> None:
        stream, chat = f"conversation/{name}", self.chat(name)

        def plan(_: Options, __: Any) -> None:
            self.refuse_in_batch()
            self.model.name_snapshot(stream, label)
            self.model.named(stream, label)

        given = self.drive(stream, Drawn(), lambda **_: chat.snapshot(label), plan)
        assert given is None or given[0].name == label

    @drawn_rule("restore")
    def restore(self, name: str, source: str, place: int, drawn: Drawn) -> None:
        stream, chat, opening = f"conversation/{name}", self.chat(name), self.opening(name)
        kept = self.kept[place % len(self.kept)] if place % 2 or self.model.batch else self._state_of(source, place)

        def plan(options: Options, _: Any) -> None:
            asked = ("restore", kept.stream, kept.seq, 0 if kept.carried else kept.branch)
            if self._is_here(kept):
                branch = self.model.branch if kept.carried else kept.branch
                self.model.restore(stream, (kept.stream, kept.seq, branch), asked, options, opening)
            else:
                self.model.take_over(stream, kept.carried[1], asked, options, opening)

        self.drive(stream, drawn, lambda **options: chat.restore(kept.snapshot, **options), plan)

    def _state_of(self, name: str, place: int) -> Kept:
        """A pointer to any state of a conversation."""
        snapshot = self.chat(name).at(place % (self.model.head + 1)).snapshot()
        return Kept(snapshot, snapshot.stream, snapshot.seq, branch=self.model.branch)

    def _is_here(self, kept: Kept) -> bool:
        """Whether what was kept is a state of this store, so that a pointer is enough."""
        if kept.carried is None:
            return True
        state = self.model.state(kept.stream, kept.seq)
        return not kept.foreign and (state.project, state.carried()) == kept.carried

    @drawn_rule("restore_named")
    def restore_named(self, name: str, label: str, drawn: Drawn) -> None:
        stream, chat, opening = f"conversation/{name}", self.chat(name), self.opening(name)

        def plan(options: Options, _: Any) -> None:
            seq = self.model.named(stream, label)
            self.model.restore(stream, (stream, seq, self.model.branch), ("restore", label), options, opening)

        self.drive(stream, drawn, lambda **options: chat.restore(label, **options), plan)

    @drawn_rule("fork")
    def fork(self, name: str, twin: str, place: int | None, drawn: Drawn) -> None:
        at = None if place is None else place % (self.model.committed + 1)

        def plan(options: Options, _: Any) -> None:
            self.refuse_in_batch()
            opening = self.opening(name)
            self.model.fork(f"conversation/{name}", f"conversation/{twin}", at, DEPTH_MAX, options, opening)

        chat = self.chat(name)
        given = self.drive(f"conversation/{twin}", drawn, lambda **options: chat.fork(twin, at=at, **options), plan)
        assert given is None or given[0].id == twin

    @drawn_rule("close")
    def close(self, name: str, drop: bool, drawn: Drawn) -> None:
        stream, chat, opening = f"conversation/{name}", self.chat(name), self.opening(name)

        def plan(options: Options, _: Any) -> None:
            if drop:
                self.model.drop(stream, options, opening)

        self.drive(stream, drawn, lambda **options: chat.close(drop=drop, **options), plan)

    # Profile and journal.

    @drawn_rule("set_fact")
    def set_fact(self, key: str, value: str, drawn: Drawn) -> None:
        def decide(facts: Any) -> Any:
            held, prior = facts.values.get(key, (None, 0))
            return None if held == value else ("value_set", (key, value, prior))

        self.drive(
            "profile/default",
            drawn,
            lambda **options: self.memory.profile().set(key, value, **options),
            lambda options, _: self.model.note("profile/default", ("set", key, value), decide, options),
        )

    @drawn_rule("act")
    def act(self, key: str, actor: str, place: int, drawn: Drawn) -> None:
        """Sets a value that none was before, under an actor and a cause."""
        stream, cause = "profile/signed", place % (self.model.committed + 1)
        value = str(self.model.head)

        def set_value(**options: Any) -> None:
            # An actor is named where a batch is committed, in front of it.
            with self.memory.acting("cli" if self.model.batch is not None else actor, cause=cause):
                self.memory.profile("signed").set(key, value, **options)

        def plan(options: Options, _: Any) -> None:
            origin: list[str | int] = []

            def decide(facts: Any) -> Any:
                held, prior = facts.values.get(key, (None, 0))
                if held == value:
                    return None
                origin.append("cli" if self.model.batch is not None else self.model.naming(actor))
                return "value_set", (key, value, prior)

            self.model.note(stream, ("set", key, value), decide, options)
            if origin:
                self.model.sign(cause, origin[0])

        self.drive(stream, drawn, set_value, plan)

    @drawn_rule("delete_fact")
    def delete_fact(self, key: str, drawn: Drawn) -> None:
        def decide(facts: Any) -> Any:
            return ("value_deleted", (key, None, facts.values[key][1])) if key in facts.values else None

        given = self.drive(
            "profile/default",
            drawn,
            lambda **options: self.memory.profile().delete(key, **options),
            lambda options, _: self.model.note("profile/default", ("delete", key), decide, options),
        )
        assert given is None or given[0] is (given[1] is not None)

    @drawn_rule("write")
    def write(self, text: str, day: str | None, occurred: int | None, drawn: Drawn) -> None:
        when_ns = self.model.now_ns() if occurred is None else occurred
        written, stream, asked = day or day_of(when_ns), "journal/work", ("append", day, text, occurred)
        given = self.drive(
            stream,
            drawn,
            lambda **options: self.memory.journal("work").append(text, day=day, occurred=occurred, **options),
            lambda options, _: self.model.note(
                stream, asked, lambda _: ("written", (written, text)), options, occurred_ns=occurred
            ),
        )
        if given is not None:
            note, entry = given
            assert (note.day, note.text) == entry.data
            assert entry.seq > self.model.committed or note.time_ns == entry.time_ns

    # Several at once, and the same again.

    @rule(drawn=st.lists(actions(), min_size=6, max_size=20))
    def several(self, drawn: list[tuple[str, dict[str, Any]]]) -> None:
        for verb, given in drawn:
            getattr(self, verb)(**given)

    # Hypothesis picks among the rules evenly; most of what is to be found needs a past.
    several_others = several_more = several

    @precondition(lambda machine: machine.asked is not None)
    @rule()
    def ask_again(self) -> None:
        self.drive(*self.asked)

    @alone
    @rule(drawn=st.lists(actions(), min_size=1, max_size=6))
    def do_elsewhere(self, drawn: list[tuple[str, dict[str, Any]]]) -> None:
        """Another process does it; this one has to notice."""
        for verb, given in drawn:
            if verb in AT_HOME:
                continue
            self.memory = self.branch_of(self.opened_elsewhere())
            getattr(self, verb)(**given | FITTING.get(verb, {}))
            self.memory = self.branch_of(self.store)
            assert self.memory.head == self.model.committed

    # Batches and time.

    @drawn_rule("tick")
    def tick(self, microseconds: int) -> None:
        self.clock.advance(microseconds)

    @alone
    @rule()
    def enter_batch(self) -> None:
        self.batch.enter_context(self.memory.batch())
        self.model.begin()

    @in_batch
    @rule(fails=st.sampled_from([False, False, False, True]))
    def leave_batch(self, fails: bool) -> None:
        if fails:
            self.batch.__exit__(KeyError, KeyError(), None)
            self.model.discard()
            self.asked = None  # Its handle may be one on a conversation that was opened in this batch alone.
        else:
            self.batch.close()
            self.model.commit()

    # Reading the past.

    @has_events
    @rule(name=names, place=places, other=places)
    def look_back(self, name: str, place: int, other: int) -> None:
        self._travel(place)
        self._replay(name)
        self._diff(name, place, other)

    def _travel(self, place: int) -> None:
        at = place % (self.model.committed + 1)
        frozen = self.memory.at(at)
        check_memory(frozen, self.model, self._openings(), at)
        moment = datetime.fromtimestamp(0, UTC) + timedelta(microseconds=self.model.log[at - 1].time_ns // 1_000)
        assert self.memory.at(moment).head == self.model.seq_at_time(self.model.log[at - 1].time_ns)
        if (self.model.branch, at) in self.hashes:
            assert frozen.state_hash() == frozen.replay_hash() == self.hashes[self.model.branch, at]

    def _replay(self, name: str) -> None:
        stream, opening = f"conversation/{name}", Opening(self.budget)
        after = max(self.model.committed - 4, 0)
        entries = [e for e in self.model.entries(stream, self.model.committed) if e.seq > after]
        steps = list(self.memory.conversation(name).replay(after=after))
        assert [step.stamp.seq for step in steps] == [entry.seq for entry in entries]
        for step, entry in zip(steps, entries, strict=True):
            check_chat(step.before, self.model, opening, entry.seq - 1)
            check_chat(step.after, self.model, opening, entry.seq)
            assert [message.id for message in step.evicted] == self.model.evicted(entry)

    def _diff(self, name: str, first: int, second: int) -> None:
        a, b = (place % (self.model.committed + 1) for place in (first, second))
        changes = self.memory.diff(a, b)
        assert bool(changes) == (self.model.plain(a) != self.model.plain(b))
        back = [(change.stream, change.path, change.after, change.before) for change in self.memory.diff(b, a)]
        assert sorted(map(repr, back)) == sorted(repr((c.stream, c.path, c.before, c.after)) for c in changes)
        chat = self.memory.conversation(name)
        states = [self.model.state(f"conversation/{name}", at).plain() for at in (a, b)]
        assert bool(self.memory.diff(chat.at(a), chat.at(b))) == (states[0] != states[1])

    # The store.

    @alone
    @rule(how=st.sampled_from(["close", "kill"]), budget=st.sampled_from(BUDGETS), clears=st.booleans())
    def reopen(self, how: str, budget: int, clears: bool) -> None:
        left = self.copied() if how == "kill" else self.path
        self.leave_elsewhere()
        self.store.close()
        self.path, self.budget, self.asked = left, budget, None
        self.store = self.opened(left, clear_scratchpads_on_open=clears)
        driven, self.model.branch = self.model.branch, 0
        for branch in self.branches() if clears else ():
            self.model.branch = branch
            for name in self.model.names("conversation"):
                state = self.model.state(f"conversation/{name}")
                if state.entries or state.notes:
                    self.model.append(f"conversation/{name}", "cleared", None)
        self.model.branch = 0
        for kept in self.kept:
            if kept.carried is None:
                name = kept.stream.partition("/")[2]
                kept.snapshot = self.branch_of(self.store, kept.branch).conversation(name).at(kept.seq).snapshot()
        self.go_to(driven)

    @alone
    @rule(flushes=st.booleans(), place=st.one_of(st.none(), st.none(), places))
    def look_from_elsewhere(self, flushes: bool, place: int | None) -> None:
        if flushes:
            self.memory.flush()
        self._read_only()
        self._hand_over()
        if place is not None:
            carry_away(self, place)
        self._hear()

    def _read_only(self) -> None:
        with self.opened(self.path, readonly=True) as reader:
            check_memory(self.branch_of(reader), self.model, self._openings())
            for mutation in MEMORY_MUTATIONS:
                with pytest.raises(ReadOnly):
                    mutation(reader)

    def _hand_over(self) -> None:
        path = self.root / "export.jsonl"
        assert self.memory.export(path) == self.model.head
        with self.opened(None) as other:
            assert other.load(path).events == self.model.head
            check_memory(self.branch_of(other), self.model, self._openings())
            for (branch, seq), hashed in self.hashes.items():
                assert self.branch_of(other, branch).state_hash(at=seq) == hashed
            show_files(self, self.branch_of(other))
            show_contexts(self.branch_of(other))
            assert other.verify().ok

    def _hear(self) -> None:
        """Subscribes from the first event on, and gets each that there is."""
        heard: list[Recorded] = []
        last = self.model.seen()[-1].seq if self.model.seen() else 0
        is_all = threading.Event()

        def hear(recorded: Recorded) -> None:
            heard.append(recorded)
            if recorded.stamp.seq == last:
                is_all.set()

        with self.memory.subscribe(hear, after=0) as subscription:
            assert not last or is_all.wait(60)
        assert (heard, subscription.error) == (list(self.memory.events()), None)

    @alone
    @has_events
    @rule(chosen=st.lists(places, min_size=1, max_size=3), derived=st.sampled_from(["erase", "keep"]))
    def erase(self, chosen: list[int], derived: str) -> None:
        whole = [entry for entry in self.model.log if not entry.erased and entry.kind != "erased"]
        # What replaced a value is erased most often: the value must not come back.
        replacing = [entry for entry in whole if entry.kind in KEYED and entry.data[2]]
        candidates = [entry.seq for entry in (*whole, *replacing * 5)]
        if not candidates:
            return
        seqs = sorted({candidates[place % len(candidates)] for place in chosen})
        self.leave_elsewhere()
        windows = self._windows()
        receipt = self.memory.erase(seqs, derived=derived)
        erased = self.model.erase(seqs, derived=derived == "erase")
        assert sorted((*receipt.seqs, *receipt.derived)) == erased
        assert self._windows() == windows
        self.hashes = {place: hashed for place, hashed in self.hashes.items() if place[1] < erased[0]}

    @alone
    @rule(fields=messages())
    def erase_conversation(self, fields: dict[str, Any]) -> None:
        """One that nobody else goes on from, so that nothing refuses it."""
        self.leave_elsewhere()
        self.append("gone", fields, None, Drawn())
        for stream in self.chat("gone").erase(derived="keep").streams:
            self.model.erase_stream("conversation/gone", stream)
        assert "gone" not in self.memory.conversations()

    @alone
    @rule()
    def reembed(self) -> None:
        """With the embedder that everything has; `test_reembedding_machine` is about others."""
        head = self.memory.head
        assert self.memory.reembed().vectors == 0
        assert self.memory.head == head

    def _windows(self) -> list[list[tuple[str, int]]]:
        """The ids and tokens of every window: what no erasure may move."""
        chats = map(self.memory.conversation, self.memory.conversations())
        return [[(message.id, message.tokens) for message in chat.window()] for chat in chats]

    # What is refused.

    @rule(name=names, refusal=st.sampled_from(REFUSALS), place=places, mutation=st.sampled_from(CHAT_MUTATIONS))
    def refuse(self, name: str, refusal: Any, place: int, mutation: Any) -> None:
        error, call = refusal
        with pytest.raises(error):
            call(self.memory, self.chat(name))
        with pytest.raises(ReadOnly if self.model.batch is None else (ReadOnly, InvalidInput)):
            mutation(self.chat(name).at(place % (self.model.committed + 1)))

    # What holds after each step.

    def _openings(self) -> dict[str, Opening]:
        """What a plain handle would record, by conversation."""
        erased = [name for name in self.model.names("conversation") if name.startswith("erased-")]
        return {name: Opening(self.budget) for name in (*CONFIGURED, *FORKS, *erased)}

    @invariant()
    def reads_equal_the_model(self) -> None:
        check_memory(self.memory, self.model, self._openings())
        if self.model.batch is not None:
            Context().run(check_memory, self.memory, self.model.outside(), self._openings())

    @invariant()
    def every_way_to_the_state_agrees(self) -> None:
        head, live = self.memory.head, self.memory.state_hash()
        assert self.memory.replay_hash() == live
        assert self.hashes.setdefault((self.model.branch, head), live) == live
        if self.other is not None and self.model.batch is None:
            assert self.branch_of(self.opened_elsewhere()).state_hash() == live
        copy = self.copied()
        with self.opened(copy) as left:
            self._check_branches(left)
        with self.opened(copy) as reopened:
            self._check_branches(reopened)
            report = reopened.verify()
        assert report.ok, report.findings
        shutil.rmtree(copy)
        self.steps += 1
        branch, seq = sorted(self.hashes)[self.steps * 7 % len(self.hashes)]
        assert self.branch_of(self.store, branch).state_hash(at=seq) == self.hashes[branch, seq]

    def _check_branches(self, other: Memory) -> None:
        """Another handle on the same log tells the same of every branch."""
        for branch in self.branches():
            handle, again = (self.branch_of(store, branch) for store in (self.store, other))
            if self.model.batch is None or branch == self.model.branch:
                assert again.state_hash() == again.replay_hash() == handle.state_hash()


def main(number: int, examples: int, steps: int, *, phases: tuple[Phase, ...] = (Phase.generate, Phase.shrink)) -> None:
    """Runs the machine on examples that are the same for the same number; one that fails is made small."""
    profile = settings(
        max_examples=examples,
        stateful_step_count=steps,
        phases=phases,
        print_blob=True,
        deadline=None,
        database=None,
        report_multiple_bugs=False,
        suppress_health_check=list(HealthCheck),
    )
    with Elsewhere(Clock()) as worker:
        MemoryMachine.worker = worker
        run_state_machine_as_test(seed(number)(MemoryMachine), settings=profile)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
