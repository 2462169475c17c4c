"""Through time: any seq or moment of a memory, what differs between two, and the snapshots that were named."""

import datetime
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from refold import Change, Conversation, InvalidInput, Memory, ReadOnly, Snapshot
from tests.support.memories import BEGIN_NS, Clock, refused, remembering

BEGIN = datetime.datetime.fromtimestamp(BEGIN_NS // 10**9, datetime.UTC)
SECOND = datetime.timedelta(seconds=1)


def said(chat: Conversation) -> list[Any]:
    return [message.content for message in chat.window()]


def ticking(memory: Memory, clock: Clock) -> Conversation:
    """Append three messages, one a second: seqs 1 and 2 at 0 s, 3 at 1 s, 4 at 2 s."""
    chat = memory.conversation("chat")
    for text in ("one", "two", "three"):
        chat.append("user", text, tokens=1)
        clock.advance(1)
    return chat


class TestAt:
    def test_every_seq_shows_what_was_then(self) -> None:
        with remembering(window_tokens=2) as memory:
            chat = ticking(memory, Clock())
            chat.scratchpad.set("k", "v")
            chat.clear_window()
            shown = [
                (said(chat.at(seq)), chat.at(seq).scratchpad.get("k"), chat.at(seq).token_count()) for seq in range(7)
            ]
            assert shown == [
                ([], None, 0),
                ([], None, 0),
                (["one"], None, 1),
                (["one", "two"], None, 2),
                (["two", "three"], None, 2),
                (["two", "three"], "v", 2),
                ([], "v", 0),
            ]

    def test_zero_is_the_empty_state(self) -> None:
        with remembering() as memory:
            chat = ticking(memory, Clock())
            memory.profile().set("k", "v")
            start = memory.at(0)
            assert (start.head, start.conversations(), start.profile().items(), start.snapshots()) == (0, [], [], [])
            assert (said(chat.at(0)), chat.at(0).version, chat.at(0).project) == ([], 0, None)
            assert start.state_hash() == Memory().state_hash()
            assert start.stats().events == 0

    def test_moves_everything_together(self) -> None:
        with remembering(clock_ns=Clock()) as memory:
            chat = memory.conversation("chat", project="p")
            chat.append("user", "x", tokens=1)
            chat.state["project:k"] = 1
            memory.profile().set("k", "v")
            memory.journal().append("note", day="2026-01-01")
            seq = memory.head
            chat.state["project:k"] = 2
            memory.profile().set("k", "w")
            memory.journal().append("more", day="2026-01-01")
            memory.conversation("new").scratchpad.set("a", "b")
            then = memory.at(seq)
            assert then.conversation("chat").state["project:k"] == 1
            assert then.profile().items() == [("k", "v")]
            assert [note.text for note in then.journal().day("2026-01-01")] == ["note"]
            assert then.conversations() == ["chat"]
            assert then.head == seq
            assert then.state_hash() == memory.state_hash(seq) != memory.state_hash()

    def test_of_at_goes_further_back_and_not_forward(self) -> None:
        with remembering() as memory:
            chat = ticking(memory, Clock())
            then = memory.at(3)
            assert said(then.conversation("chat").at(2)) == ["one"]
            assert said(chat.at(3).at(2)) == ["one"]
            assert then.at(2).head == 2
            for handle in (then, then.conversation("chat"), chat.at(3)):
                with pytest.raises(InvalidInput, match=r"seq 4 is not in this log, which runs from 0 \(empty\) to 3"):
                    handle.at(4)

    @pytest.mark.parametrize("seq", [5, 2**63, 10**30, -1], ids=str)
    def test_a_seq_that_has_not_happened_is_refused(self, seq: int) -> None:
        memory = Memory()
        chat = ticking(memory, Clock())
        for ask in (memory.at, chat.at, memory.state_hash, memory.replay_hash, lambda at: memory.diff(0, at)):
            with refused(memory, InvalidInput, "give a seq that has happened"):
                ask(seq)

    def test_stays_where_it_is_while_the_memory_goes_on(self) -> None:
        with remembering() as memory:
            chat = ticking(memory, Clock())
            frozen, then = chat.at(memory.head), memory.at(memory.head)
            hashed = then.state_hash()
            chat.append("user", "four", tokens=1)
            memory.conversation("new").scratchpad.set("k", "v")
            assert said(frozen) == said(then.conversation("chat")) == ["one", "two", "three"]
            assert (then.conversations(), then.state_hash()) == (["chat"], hashed)
            assert [stamp.seq for _, stamp in frozen.events()] == [1, 2, 3, 4]

    def test_is_the_same_after_reopening_at_every_seq(self, tmp_path: Path) -> None:
        with Memory(tmp_path / "store", window_tokens=20) as memory:
            chat = memory.conversation("chat")
            for number in range(700):
                chat.append("user", str(number), tokens=number % 7)
                if number % 10 == 0:
                    chat.scratchpad.set(f"k{number % 3}", str(number))
            shown = {seq: (said(chat.at(seq)), chat.at(seq).scratchpad.keys()) for seq in range(0, memory.head + 1, 37)}
        with remembering(tmp_path / "store") as memory:
            chat = memory.conversation("chat")
            for seq in reversed(shown):
                assert (said(chat.at(seq)), chat.at(seq).scratchpad.keys()) == shown[seq]

    def test_a_frozen_handle_changes_nothing(self) -> None:
        memory = Memory()
        chat = ticking(memory, Clock()).at(3)
        then = memory.at(3)
        calls = (
            lambda: chat.append("user", "x"),
            lambda: chat.scratchpad.set("k", "v"),
            lambda: chat.scratchpad.delete("k"),
            lambda: chat.scratchpad.note("x"),
            chat.scratchpad.clear,
            chat.clear_window,
            lambda: chat.set_window_tokens(5),
            lambda: chat.state.set("k", 1),
            lambda: chat.state.delete("k"),
            chat.end,
            chat.end_round,
            lambda: chat.fork("fork"),
            lambda: chat.snapshot("name"),
            lambda: chat.restore(chat.snapshot()),
            lambda: then.conversation("new").scratchpad.set("k", "v"),
            lambda: then.profile().set("k", "v"),
            lambda: then.profile().delete("k"),
            lambda: then.journal().append("x"),
            then.batch,
        )
        for call in calls:
            with refused(memory, ReadOnly, "frozen at seq 3"):
                call()

    def test_closing_a_frozen_memory_closes_nothing(self) -> None:
        with remembering() as memory:
            ticking(memory, Clock())
            with memory.at(2) as then:
                assert then.head == 2
            memory.at(2).close()
            memory.at(2).flush()
            assert memory.head == 4


ZONELESS: datetime.tzinfo = type("Zoneless", (datetime.tzinfo,), {"utcoffset": lambda *_: None})()
"""A zone that knows no offset, which leaves a moment naive."""


class TestMoments:
    def test_mean_the_last_event_at_or_before(self) -> None:
        clock = Clock()
        with remembering(clock_ns=clock) as memory:
            chat = ticking(memory, clock)
            microsecond = datetime.timedelta(microseconds=1)
            moments = {
                BEGIN - microsecond: 0,
                BEGIN: 2,
                BEGIN + SECOND - microsecond: 2,
                BEGIN + SECOND: 3,
                BEGIN + 2 * SECOND: 4,
                BEGIN + datetime.timedelta(days=36_500): 4,
                datetime.datetime.min.replace(tzinfo=datetime.UTC): 0,
                datetime.datetime.max.replace(tzinfo=datetime.UTC): 4,
            }
            for moment, seq in moments.items():
                assert memory.at(moment).head == seq
                assert said(chat.at(moment)) == ["one", "two", "three"][: max(seq - 1, 0)]
                assert memory.state_hash(moment) == memory.state_hash(seq)

    @pytest.mark.parametrize("zone", ["Asia/Tokyo", "America/New_York", "Pacific/Kiritimati"])
    def test_of_any_zone_mean_the_same_instant(self, zone: str) -> None:
        clock = Clock()
        with remembering(clock_ns=clock) as memory:
            ticking(memory, clock)
            assert memory.at((BEGIN + SECOND).astimezone(ZoneInfo(zone))).head == 3

    def test_on_a_frozen_memory_stay_behind_it(self) -> None:
        clock = Clock()
        with remembering(clock_ns=clock) as memory:
            ticking(memory, clock)
            assert memory.at(2).at(BEGIN + 2 * SECOND).head == 2

    def test_reach_to_the_end_of_their_microsecond(self) -> None:
        """A datetime knows no shorter time; a commit 999 ns behind it happened at it."""
        for late_ns, head in ((999, 2), (1_000, 0)):
            with remembering(clock_ns=Clock(BEGIN_NS + late_ns)) as memory:
                memory.conversation("chat").append("user", "one", tokens=1)
                assert memory.at(BEGIN).head == head

    def test_that_are_naive_are_refused(self) -> None:
        memory = Memory()
        chat = ticking(memory, Clock())
        for moment in (BEGIN.replace(tzinfo=None), BEGIN.replace(tzinfo=ZONELESS)):
            for ask in (memory.at, chat.at, memory.state_hash):
                with refused(memory, InvalidInput, "naive datetime", "datetime.UTC"):
                    ask(moment)
            with refused(memory, InvalidInput, "naive"):
                chat.append("user", "x", tokens=1, occurred=moment)

    def test_of_one_commit_are_never_between_its_events(self) -> None:
        clock = Clock()
        with remembering(clock_ns=clock) as memory:
            with memory.batch():
                ticking(memory, clock)
            heads = {memory.at(BEGIN + step * SECOND).head for step in range(-1, 9)}
            assert heads == {0, 4}

    def test_when_the_clock_goes_back_the_log_does_not(self) -> None:
        clock = Clock()
        with remembering(clock_ns=clock) as memory:
            chat = memory.conversation("chat")
            chat.append("user", "one", tokens=1)
            clock.advance(-3_600)
            chat.append("user", "two", tokens=1)
            assert [message.time_ns for message in chat.window()] == [BEGIN_NS, BEGIN_NS]
            assert memory.at(BEGIN).head == 3
            assert memory.at(BEGIN - SECOND).head == 0

    def test_said_to_have_happened_do_not_count(self) -> None:
        clock = Clock()
        with remembering(clock_ns=clock) as memory:
            chat = memory.conversation("chat")
            message = chat.append("user", "long ago", tokens=1, occurred=BEGIN - 365 * 86_400 * SECOND)
            assert (message.time_ns, message.occurred_ns) == (BEGIN_NS, BEGIN_NS - 365 * 86_400 * 10**9)
            assert memory.at(BEGIN - SECOND).head == 0


class TestDiff:
    def test_names_stream_view_and_path(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat", project="p")
            chat.scratchpad.set("k", "one")
            before = memory.head
            chat.scratchpad.set("k", "two")
            chat.scratchpad.note("n")
            chat.state["s"] = {"a": [1, 2]}
            memory.profile().set("x", "y")
            assert memory.diff(before, memory.head) == [
                Change("conversation/chat", "scratch", ("entries", "k"), "one", "two"),
                Change("conversation/chat", "scratch", ("notes", 0), None, "n"),
                Change("conversation/chat", "state", ("s",), None, {"a": [1, 2]}),
                Change("profile/default", "profile", ("x",), None, "y"),
            ]

    def test_of_the_same_is_nothing(self) -> None:
        with remembering() as memory:
            chat = ticking(memory, Clock())
            for side in (0, 3, memory.head, memory, memory.at(2), chat, chat.at(3), chat.snapshot()):
                assert memory.diff(side, side) == []

    def test_turned_round_turns_before_and_after(self) -> None:
        with remembering() as memory:
            ticking(memory, Clock())
            forward, back = memory.diff(2, 4), memory.diff(4, 2)
            assert [(c.path, c.before, c.after) for c in forward] == [(c.path, c.after, c.before) for c in back]
            assert forward

    def test_takes_seqs_moments_memories_conversations_and_snapshots(self) -> None:
        clock = Clock()
        with remembering(clock_ns=clock) as memory:
            chat = ticking(memory, clock)
            expected = memory.diff(2, 4)
            assert memory.diff(memory.at(2), memory) == expected
            assert memory.diff(BEGIN, BEGIN + 2 * SECOND) == expected
            assert memory.diff(chat.at(2), chat) == expected
            assert memory.diff(chat.at(2).snapshot(), chat.snapshot()) == expected
            assert memory.diff(chat.at(2), 4) == expected

    def test_of_a_fork_shows_where_it_went(self) -> None:
        with remembering() as memory:
            chat = ticking(memory, Clock())
            fork = chat.fork("fork")
            assert memory.diff(chat, fork) == []
            fork.scratchpad.set("k", "v")
            assert memory.diff(chat, fork) == [
                Change("conversation/fork", "scratch", ("entries", "k"), None, "v"),
            ]

    def test_of_two_frozen_memories_leaves_out_what_neither_shows(self) -> None:
        with remembering() as memory:
            memory.conversation("a").scratchpad.set("k", "v")
            memory.conversation("a").snapshot("named")
            memory.conversation("b").scratchpad.set("k", "v")
            streams = {change.stream for change in memory.diff(2, memory.head)}
            assert streams == {"conversation/b"}

    def test_applied_to_the_one_side_gives_the_other(self) -> None:
        with remembering(window_tokens=3) as memory:
            chat = ticking(memory, Clock())
            for number in range(5):
                chat.scratchpad.set(f"k{number % 2}", str(number))
                chat.append("user", str(number), tokens=1)
            for a in range(memory.head + 1):
                changed = {change.path for change in memory.diff(a, memory.head) if change.view == "scratch"}
                then = dict(chat.at(a).scratchpad.items())
                now = dict(chat.scratchpad.items())
                assert changed == {("entries", key) for key in then | now if then.get(key) != now.get(key)}

    @pytest.mark.parametrize("side", [None, "1", 1.0, ..., -1, 99], ids=repr)
    def test_of_what_is_no_state_is_refused(self, side: Any) -> None:
        memory = Memory()
        ticking(memory, Clock())
        with refused(memory, InvalidInput):
            memory.diff(side, 0)

    def test_of_what_belongs_to_another_memory_is_refused(self) -> None:
        memory, other = Memory(), Memory()
        ticking(memory, Clock())
        theirs = ticking(other, Clock())
        for side in (other, other.at(1), theirs, theirs.at(2), theirs.snapshot()):
            with refused(memory, InvalidInput, "another memory"):
                memory.diff(side, 0)
            with refused(memory, InvalidInput, "another memory"):
                memory.diff(0, side)


class TestSnapshots:
    def test_are_listed_in_the_order_of_their_seqs(self) -> None:
        with remembering() as memory:
            chat = memory.conversation("chat")
            chat.append("user", "one", tokens=1)
            chat.snapshot("b")
            other = memory.conversation("other")
            other.scratchpad.set("k", "v")
            other.snapshot("a")
            chat.append("user", "two", tokens=1)
            chat.snapshot("c")
            listed = [(s.name, s.stream, s.seq) for s in memory.snapshots()]
            assert listed == [
                ("b", "conversation/chat", 2),
                ("a", "conversation/other", 5),
                ("c", "conversation/chat", 7),
            ]
            assert [s.name for s in memory.at(6).snapshots()] == ["b", "a"]

    def test_unnamed_ones_write_nothing(self) -> None:
        with remembering() as memory:
            chat = ticking(memory, Clock())
            head = memory.head
            assert chat.snapshot() == chat.snapshot() == Snapshot("conversation/chat", head)
            assert chat.at(2).snapshot().seq == 2
            assert memory.conversation("new").snapshot().seq == 0
            assert (memory.head, memory.snapshots()) == (head, [])

    def test_the_same_name_for_the_same_state_is_the_same(self) -> None:
        with remembering() as memory:
            chat = ticking(memory, Clock())
            first = chat.snapshot("name")
            head = memory.head
            assert chat.snapshot("name") == first
            assert memory.head == head

    def test_a_name_is_given_once(self) -> None:
        memory = Memory()
        chat = ticking(memory, Clock())
        chat.snapshot("name")
        chat.append("user", "more", tokens=1)
        with refused(memory, InvalidInput, "'name'", "already exists at seq 4", "another name"):
            chat.snapshot("name")

    def test_a_name_belongs_to_its_conversation(self) -> None:
        with remembering() as memory:
            chat = ticking(memory, Clock())
            chat.snapshot("name")
            memory.conversation("other").scratchpad.set("k", "v")
            memory.conversation("other").snapshot("name")
            memory.conversation("other").scratchpad.clear()
            memory.conversation("other").restore("name")
            assert memory.conversation("other").scratchpad.get("k") == "v"

    def test_are_no_state(self) -> None:
        with remembering() as memory:
            chat = ticking(memory, Clock())
            hashed = memory.state_hash()
            chat.snapshot("name")
            assert memory.state_hash() == hashed


def test_nothing_is_read_after_a_seq_that_has_not_happened(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory, Memory(tmp_path / "store", readonly=True) as other:
        chat = ticking(memory, Clock())
        memory.project("p").add("a fact")
        board = memory.board(session="chat")
        for frozen in (None, 3):
            head = memory.head if frozen is None else frozen
            handles = (memory, chat, memory.project("p"), board)
            for handle in handles if frozen is None else [each.at(frozen) for each in handles]:
                assert list(handle.events(after=head)) == []
                with pytest.raises(InvalidInput, match=f"after is {head + 1}, and the last event has seq {head}"):
                    handle.events(after=head + 1)
            there = chat if frozen is None else chat.at(frozen)
            assert (there.history(after=head), list(there.replay(after=head))) == ([], [])
            for read in (there.history, there.replay):
                with pytest.raises(InvalidInput, match=f"the last event has seq {head}"):
                    read(after=head + 1)
        chat.append("user", "four", tokens=1)
        assert list(other.events(after=memory.head)) == []
