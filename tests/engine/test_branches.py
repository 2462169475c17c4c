"""Forks of a whole memory: they begin as another one was, go on by themselves, and everything can be asked of them."""

from collections.abc import Callable

import pytest

from refold import (
    EXISTS,
    NO_STREAM,
    Closed,
    InvalidInput,
    LimitExceeded,
    Memory,
    NotFound,
    ReadOnly,
    Snapshot,
    WrongVersion,
)
from refold.engine.engine import Engine
from refold.engine.transaction import Transaction
from refold.limits import BASE_DEPTH_MAX, CHECKPOINT_EVENTS
from tests.support.blanks import blank
from tests.support.bounds import lowered
from tests.support.memories import refused
from tests.support.seams import counted_reads, records_in


def fill(memory: Memory) -> int:
    """Writes into every kind of stream and returns the head."""
    chat = memory.conversation("a", project="p", window_tokens=100)
    chat.append("user", "one", tokens=10)
    chat.scratchpad.set("k", "old")
    chat.state["project:shared"] = 1
    memory.profile().set("theme", "dark")
    memory.journal().append("noted", day="2026-11-21")
    return memory.head


def said(memory: Memory, name: str = "a") -> list[object]:
    return [message.content for message in memory.conversation(name).window()]


def command_at(memory: Memory, seq: int) -> int:
    """The seq at which the command of the event at a seq began."""
    (record,) = records_in(memory, seq - 1, seq)
    return record.commands[seq - record.first_seq]


class TestAFork:
    def test_begins_as_the_memory_is_and_costs_one_event(self, memory: Memory) -> None:
        head = fill(memory)
        fork = memory.fork("b")
        assert memory.head == fork.head == head + 1
        assert fork.state_hash() == memory.state_hash(at=head) == memory.state_hash() == fork.replay_hash()
        assert said(fork) == ["one"]
        assert fork.conversation("a").project == "p"
        assert fork.conversation("a").state.items() == [("project:shared", 1)]
        assert fork.profile().items() == [("theme", "dark")]
        assert [note.text for note in fork.journal().day("2026-11-21")] == ["noted"]
        assert (fork.conversations(), fork.projects()) == (["a"], ["p"])

    def test_begins_as_the_memory_was_at_a_seq(self, memory: Memory) -> None:
        fill(memory)
        for seq in range(memory.head + 1):
            fork = memory.fork(f"at {seq}", at=seq)
            assert fork.state_hash() == memory.state_hash(at=seq) == fork.replay_hash()
        assert memory.fork("at 0").conversations() == []

    def test_reads_no_more_of_a_long_log(self, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
        chat, reads = memory.conversation("a", window_tokens=50), counted_reads(memory, monkeypatch)
        for times in (10, 1_000):
            with memory.batch():
                for _ in range(times):
                    chat.append("user", "x", tokens=1)
            reads.clear()
            fork = memory.fork(f"after {times}")
            assert sum(reads) == 0
            assert fork.conversation("a").token_count() == chat.token_count()
            assert 0 < sum(reads) <= CHECKPOINT_EVENTS + 50 + 5

    def test_and_its_parent_go_on_apart(self, memory: Memory) -> None:
        fill(memory)
        fork = memory.fork("b")
        before = (memory.state_hash(), fork.state_hash())
        fork.conversation("a").append("user", "in the fork", tokens=10)
        assert memory.state_hash() == before[0]
        memory.conversation("a").append("user", "in main", tokens=10)
        memory.profile().set("theme", "light")
        memory.conversation("new").scratchpad.note("main only")
        assert (said(memory), said(fork)) == (["one", "in main"], ["one", "in the fork"])
        assert fork.profile().get("theme") == "dark"
        assert (fork.conversations(), memory.conversations()) == (["a"], ["a", "new"])
        assert fork.state_hash() == fork.replay_hash() != before[1]

    def test_continues_versions_and_points_back_into_its_parent(self, memory: Memory) -> None:
        fill(memory)
        fork = memory.fork("b")
        last = list(memory.conversation("a").events())[-1].stamp
        memory.conversation("a").scratchpad.note("main goes on")
        message = fork.conversation("a").append("user", "x", tokens=1)
        assert message.seq is not None
        (record,) = records_in(memory, message.seq - 1, message.seq)
        assert record.heads[0][1:] == (last.version, last.seq, 1)
        stamps = [stamp for _, stamp in fork.conversation("a").events()]
        assert [stamp.version for stamp in stamps] == list(range(1, len(stamps) + 1))
        assert {stamp.stream for stamp in stamps} == {"conversation/a"}
        assert fork.conversation("a").version == len(stamps)

    def test_of_a_fork_sees_what_that_one_saw(self, memory: Memory) -> None:
        fill(memory)
        b = memory.fork("b")
        b.conversation("a").append("user", "b", tokens=1)
        memory.conversation("a").append("user", "main", tokens=1)
        c = b.fork("c")
        c.conversation("a").append("user", "c", tokens=1)
        b.conversation("a").append("user", "b again", tokens=1)
        d = c.fork("d", at=2)
        d.conversation("a").append("user", "d", tokens=1)
        assert said(b) == ["one", "b", "b again"]
        assert said(c) == ["one", "b", "c"]
        assert said(d) == ["one", "d"]
        assert d.profile().items() == []
        for fork in (memory, b, c, d):
            assert fork.state_hash() == fork.replay_hash()

    def test_is_opened_by_its_name(self, memory: Memory) -> None:
        fill(memory)
        memory.fork("b").profile().set("k", "v")
        head = memory.head
        assert memory.fork("b").profile().get("k") == "v"
        assert memory.head == head
        with refused(memory, InvalidInput, "exists already", "at="):
            memory.fork("b", at=1)

    def test_is_found_below_what_it_was_forked_from(self, memory: Memory) -> None:
        b = memory.fork("b")
        b.fork("c")
        d = memory.fork("d")
        assert (memory.forks(), b.forks(), d.forks()) == (["b", "c", "d"], ["c"], [])
        assert memory.fork("c").head == memory.head
        assert memory.forks(after="b", limit=1) == ["c"]
        assert memory.at(1).forks() == ["b"]
        with refused(memory, InvalidInput, "'c'", "main memory"):
            d.fork("c")

    def test_is_at_most_so_deep(self, memory: Memory) -> None:
        with lowered(BASE_DEPTH_MAX=2):
            deepest = memory.fork("1").fork("2")
            with refused(memory, LimitExceeded, "BASE_DEPTH_MAX"):
                deepest.fork("3")
        assert BASE_DEPTH_MAX >= 2

    def test_takes_the_options_of_every_mutation(self, memory: Memory) -> None:
        fill(memory)
        with refused(memory, WrongVersion, str(memory.head)):
            memory.fork("b", expected=3)
        memory.fork("b", expected=memory.head, request_id="r", sources=[1, 2])
        head = memory.head
        assert list(memory.events())[-1].event.sources == (1, 2)
        assert memory.fork("b", at=None, request_id="r").head == head
        with refused(memory, InvalidInput, "request_id"):
            memory.fork("c", request_id="r")

    def test_cannot_be_called_what_an_erased_one_is(self, memory: Memory) -> None:
        with refused(memory, InvalidInput, "erased-3"):
            memory.fork("erased-3")

    def test_of_a_frozen_memory_says_how(self, memory: Memory) -> None:
        fill(memory)
        with refused(memory, ReadOnly, "fork(name, at=2)"):
            memory.at(2).fork("b")


class TestAForkThroughTime:
    @pytest.fixture
    def fork(self, memory: Memory) -> Memory:
        fill(memory)
        fork = memory.fork("b", at=3)
        memory.conversation("a").append("user", "main", tokens=1)
        fork.conversation("a").append("user", "fork", tokens=1)
        fork.profile().set("mine", "x")
        return fork

    def test_has_the_past_of_its_parent(self, memory: Memory, fork: Memory) -> None:
        for seq in range(4):
            frozen = fork.at(seq)
            assert frozen.state_hash() == memory.state_hash(at=seq) == frozen.replay_hash()
            assert frozen.head == seq
            assert frozen.conversations() == memory.at(seq).conversations()
        for seq in range(4, memory.head + 1):
            assert fork.state_hash(at=seq) == fork.replay_hash(at=seq)
        assert fork.state_hash(at=7) == memory.state_hash(at=3)

    def test_lists_its_own_events_behind_those_it_inherited(self, memory: Memory, fork: Memory) -> None:
        seqs = [stamp.seq for _, stamp in fork.events()]
        assert seqs == [1, 2, 3, memory.head - 1, memory.head]
        assert [stamp.seq for _, stamp in fork.events(after=2, until=memory.head - 1)] == [3, memory.head - 1]
        main = [stamp.seq for _, stamp in memory.events()]
        assert sorted(main + seqs[3:]) == list(range(1, memory.head + 1))

    def test_differs_from_its_parent_in_what_was_done_since(self, memory: Memory, fork: Memory) -> None:
        streams = {change.stream for change in memory.diff(fork, memory)}
        assert streams == {"conversation/a", "project/p", "profile/default", "journal/default"}
        assert memory.diff(fork.at(3), memory.at(3)) == []
        assert memory.diff(fork.at(3), fork) == fork.diff(3, fork.head) != []
        assert fork.diff(memory.conversation("a"), fork.conversation("a")) != []
        back = [(change.path, change.after, change.before) for change in memory.diff(memory, fork)]
        assert sorted(map(repr, back)) == sorted(repr((c.path, c.before, c.after)) for c in memory.diff(fork, memory))

    def test_replays_a_conversation_from_its_first_event(self, fork: Memory) -> None:
        steps = list(fork.conversation("a").replay())
        assert [step.event.__class__.__name__ for step in steps] == [
            *("ConversationOpened", "MessageAppended", "ScratchpadSet", "MessageAppended"),
        ]
        assert [message.content for message in steps[-1].after.window()] == ["one", "fork"]
        assert {change.stream for step in steps for change in step.changes} == {"conversation/a"}

    def test_counts_its_own(self, memory: Memory, fork: Memory) -> None:
        fork.conversation("c").scratchpad.note("x")
        assert (fork.stats().conversations, memory.stats().conversations) == (2, 1)
        assert (fork.stats().journals, memory.stats().journals) == (0, 1)
        assert "fork='b'" in repr(fork)
        report = fork.verify()
        assert (report.ok, report.state_hash) == (True, fork.state_hash())


class TestARestore:
    def test_takes_back_what_was_written_while_it_looked(self, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
        """To another stream than those it found changed: it moves no version that the restore has read."""
        memory.conversation("a").append("user", "one", tokens=1)
        whole = memory.snapshot()
        memory.conversation("a").append("user", "two", tokens=1)
        commit = Engine.commit

        def commit_late(engine: Engine, pending: Transaction) -> None:
            monkeypatch.setattr(Engine, "commit", commit)
            memory.conversation("b").append("user", "meanwhile", tokens=1)
            commit(engine, pending)

        monkeypatch.setattr(Engine, "commit", commit_late)
        memory.restore(whole)
        assert [len(memory.conversation(name).window()) for name in "ab"] == [1, 0]

    def test_brings_everything_back_in_one_commit(self, memory: Memory) -> None:
        head = fill(memory)
        whole = memory.snapshot()
        memory.conversation("a").append("user", "two", tokens=10)
        memory.conversation("a").state["project:shared"] = 2
        memory.profile().set("theme", "light")
        memory.profile("other").set("k", "v")
        memory.journal().append("more")
        memory.conversation("b", project="q").scratchpad.note("born later")
        before = memory.head
        memory.restore(whole)
        assert memory.state_hash() == memory.state_hash(at=head) == memory.replay_hash()
        added = list(memory.events(after=before))
        assert {type(event).__name__ for event, _ in added} == {"Restored"}
        assert sorted(stamp.stream for _, stamp in added) == sorted(
            {
                *(
                    "conversation/a",
                    "conversation/b",
                    "journal/default",
                    "profile/default",
                    "profile/other",
                    "project/p",
                ),
            }
        )
        assert len({command_at(memory, stamp.seq) for _, stamp in added}) == 1
        assert memory.conversation("b").scratchpad.notes() == []
        assert memory.conversation("b").project is None

    def test_that_changes_nothing_appends_nothing(self, memory: Memory) -> None:
        fill(memory)
        whole = memory.snapshot()
        memory.profile().set("theme", "light")
        memory.profile().set("theme", "dark")
        memory.restore(whole)
        head = memory.head
        memory.restore(whole)
        assert memory.head == head

    def test_goes_by_name(self, memory: Memory, reopen: Callable[[], Memory]) -> None:
        fill(memory)
        named = memory.snapshot("before")
        assert (named.stream, named.name, named.seq) == ("", "before", memory.head - 1)
        assert memory.snapshot("before") == named
        memory.profile().set("theme", "light")
        with refused(memory, InvalidInput, "another name"):
            memory.snapshot("before")
        memory = reopen()
        assert memory.snapshots() == [named]
        memory.restore("before")
        assert memory.profile().get("theme") == "dark"
        with refused(memory, NotFound, "never named", "snapshots()"):
            memory.restore("never named")

    def test_takes_over_what_a_fork_has_come_to(self, memory: Memory) -> None:
        fill(memory)
        fork = memory.fork("b")
        fork.conversation("a").append("user", "better", tokens=1)
        fork.conversation("c").scratchpad.note("only there")
        memory.profile().set("theme", "light")
        memory.restore(fork.snapshot())
        assert memory.state_hash() == fork.state_hash() == memory.replay_hash()
        fork.conversation("a").append("user", "later", tokens=1)
        memory.conversation("c").scratchpad.note("its own now")
        assert (said(memory), said(fork)) == (["one", "better"], ["one", "better", "later"])
        assert fork.conversation("c").scratchpad.notes() == ["only there"]

    def test_of_a_fork_may_go_back_before_it_was_forked(self, memory: Memory) -> None:
        fill(memory)
        fork = memory.fork("b")
        fork.conversation("a").scratchpad.set("k", "new")
        fork.restore(memory.at(2).snapshot())
        assert fork.state_hash() == memory.state_hash(at=2) == fork.replay_hash()
        assert memory.profile().get("theme") == "dark"

    def test_takes_the_options_of_every_mutation(self, memory: Memory) -> None:
        fill(memory)
        whole = memory.snapshot("w", expected=EXISTS, request_id="name", sources=[1])
        memory.profile().set("theme", "light")
        with refused(memory, WrongVersion):
            memory.restore(whole, expected=NO_STREAM)
        memory.restore(whole, expected=memory.head, request_id="back", sources=[2])
        assert list(memory.events())[-1].event.sources == (2,)
        memory.profile().set("theme", "light")
        head = memory.head
        memory.restore(whole, request_id="back")
        assert (memory.head, memory.snapshot("w", request_id="name")) == (head, whole)
        with refused(memory, InvalidInput, "request_id"):
            memory.restore("w", request_id="back")

    def test_refuses_what_is_no_state_of_this_whole_memory(self, memory: Memory) -> None:
        fill(memory)
        chat = memory.conversation("a")
        with refused(memory, InvalidInput, "conversation/a alone"):
            memory.restore(chat.snapshot())
        with refused(memory, InvalidInput, "by hand"):
            memory.restore(Snapshot("", 1))
        with Memory() as other, refused(memory, InvalidInput, "another memory", "load"):
            memory.restore(other.snapshot())
        with refused(memory, InvalidInput, "memory.restore"):
            chat.restore(memory.snapshot())
        with refused(memory, InvalidInput, "export"):
            memory.snapshot().to_bytes()
        with refused(memory, InvalidInput, "no options"):
            memory.snapshot(expected=3)

    def test_and_forks_and_snapshots_are_no_part_of_a_batch(self, memory: Memory) -> None:
        fill(memory)
        whole = memory.snapshot()
        memory.fork("b")
        with memory.batch():
            memory.profile().set("k", "v")
            for verb in (memory.snapshot, lambda: memory.restore(whole), lambda: memory.fork("c")):
                with pytest.raises(InvalidInput, match="batch"):
                    verb()
            memory.fork("b").profile().set("in", "the same batch")
        assert memory.fork("b").profile().get("in") == "the same batch"
        assert (memory.profile().get("k"), memory.profile().get("in")) == ("v", None)


class TestHandles:
    def test_closing_a_fork_closes_its_handles_alone(self, memory: Memory) -> None:
        fill(memory)
        fork, again = memory.fork("b"), memory.fork("b")
        chat = fork.conversation("a")
        fork.close()
        fork.close()
        for use in (lambda: chat.append("user", "x"), chat.window, fork.conversations, fork.profile().items):
            with pytest.raises(Closed, match=r"memory\.fork"):
                use()
        with pytest.raises(Closed):
            memory.diff(fork, memory)
        assert "closed" in repr(fork)
        assert said(again) == said(memory) == ["one"]
        with memory.fork("b") as third:
            third.conversation("a").append("user", "x", tokens=1)
        assert said(again) == ["one", "x"]

    def test_closing_the_memory_closes_its_forks(self) -> None:
        memory = Memory()
        fill(memory)
        fork = memory.fork("b")
        chat = fork.conversation("a")
        memory.close()
        for use in (chat.window, fork.snapshot, lambda: fork.head, lambda: fork.fork("c")):
            with pytest.raises(Closed):
                use()

    def test_a_frozen_fork_has_nothing_to_close(self, memory: Memory) -> None:
        fork = memory.fork("b")
        fork.at(0).close()
        assert fork.conversations() == []

    def test_a_load_is_into_the_main_memory(self, memory: Memory) -> None:
        fork = memory.fork("b")
        with refused(memory, InvalidInput, "main memory"):
            fork.load("export.jsonl")


def test_what_was_erased_in_the_parent_is_gone_in_the_fork(memory: Memory) -> None:
    fill(memory)
    fork = memory.fork("b")
    fork.conversation("a").append("user", "two", tokens=10)
    assert fork.conversation("a").scratchpad.get("k") == "old"
    events = list(memory.conversation("a").events())
    blank(
        memory, [stamp.seq for event, stamp in events if type(event).__name__ in {"MessageAppended", "ScratchpadSet"}]
    )
    assert [(m.content, m.erased, m.tokens) for m in fork.conversation("a").window()] == [
        (None, True, 10),
        ("two", False, 10),
    ]
    assert fork.conversation("a").scratchpad.get("k") is None
    assert fork.state_hash() == fork.replay_hash()


def test_a_fork_whose_name_was_erased_goes_by_its_number(memory: Memory) -> None:
    fill(memory)
    memory.fork("secret").conversation("a").append("user", "x", tokens=1)
    forked = next(stamp.seq for event, stamp in memory.events() if type(event).__name__ == "BranchForked")
    blank(memory, [forked])
    assert memory.forks() == ["erased-1"]
    assert said(memory.fork("erased-1")) == ["one", "x"]


def test_a_request_that_changed_nothing_is_answered_in_forks_of_later(memory: Memory) -> None:
    profile = memory.profile()
    profile.set("other", "x")
    assert profile.delete("k", request_id="r") is False
    head = memory.head
    profile.set("k", "v")
    earlier, then, later = memory.fork("earlier", at=head - 1), memory.fork("then", at=head), memory.fork("later")
    assert later.profile().delete("k", request_id="r") is False
    assert later.fork("later still").profile().delete("k", request_id="r") is False
    assert later.profile().get("k") == profile.get("k") == "v"
    with refused(memory, InvalidInput, "used for another request"):
        then.profile().delete("other", request_id="r")
    earlier.profile().set("k", "another", request_id="r")
    assert earlier.profile().get("k") == "another"
