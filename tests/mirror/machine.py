"""A state machine that edits the files of a mirror and the log behind it, and holds each round against a plain model.

The model of the profile is a three-way merge of whole values. Of days it knows what must not be lost: every text has a
word of its own, which after a round is in the journal once, or beside the file.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from refold import Memory
from refold.mirror.mirror import Rounds
from tests.mirror.files import day_path, everything, facts_in, held, kept, put, put_facts, rendered, texts_of
from tests.support.memories import Clock, assert_sound

DAYS = ["2026-11-21", "2026-11-22"]
keys = st.sampled_from(["theme", "user", "city"])
NEW = "new"
"""Stands for a value that nobody has said before."""

values = st.sampled_from(["", "dark", "light", 'with "quotes"\nand lines', "f\u00f8rst", NEW, NEW])
days = st.sampled_from(DAYS)
places = st.integers(min_value=0, max_value=9)
heights = st.integers(min_value=1, max_value=3)


class MirrorMachine(RuleBasedStateMachine):
    """A memory, the directory that mirrors it, and what both were when they were last the same."""

    def __init__(self) -> None:
        super().__init__()
        self.room = tempfile.TemporaryDirectory(prefix="mirror-")
        self.directory = Path(self.room.name) / "memory"
        self.memory = Memory(clock_ns=Clock())
        self.rounds = self.opened()
        self.rounds.run()
        self.words = 0
        self.base: dict[str, str] = {}
        self.past: list[dict[str, str]] = [{}]
        """What the profile's file was at first, and before and after each round."""
        self.written_by_hand: dict[str, set[str]] = {day: set() for day in DAYS}
        """Words that a hand put into a day's file since the last round, and that still stand there."""
        self.notes: dict[str, list[list[str]]] = {day: [] for day in DAYS}
        """The lines of each note that a day's file had after the last round."""
        self.changed: set[str] = set()
        """Days of which a hand changed or removed something that was there."""
        self.erased: set[str] = set()
        self.was_erased_from = False

    def opened(self) -> Rounds:
        """Open the directory as a process would that starts anew."""
        return Rounds(
            self.memory, self.memory._core, str(self.directory), ("default", "default"), takes=True, writes=True
        )

    def teardown(self) -> None:
        with self.room, self.memory:
            try:
                self.round()
            finally:
                self.rounds.close()
            assert_sound(self.memory)

    def word(self) -> str:
        """A word that stands nowhere else."""
        self.words += 1
        return f"word{self.words:04}x"

    def text(self, height: int) -> str:
        """A text of some lines, each with a word of its own."""
        return "\n".join(f"- {self.word()} is said" for _ in range(height))

    def value(self, drawn: str) -> str:
        """A value, or one that stands nowhere else."""
        return self.word() if drawn == NEW else drawn

    # The log.

    @rule(key=keys, value=values)
    def log_sets(self, key: str, value: str) -> None:
        self.memory.profile().set(key, self.value(value))

    @rule(key=keys)
    def log_deletes(self, key: str) -> None:
        self.memory.profile().delete(key)

    @rule(day=days, height=heights)
    def log_appends(self, day: str, height: int) -> None:
        self.memory.journal().append(self.text(height), day=day)

    @precondition(lambda self: self.memory.head)
    @rule(place=st.integers(min_value=0, max_value=99))
    def erase(self, place: int) -> None:
        """Erase an event for ever."""
        events = [(event, stamp) for event, stamp in self.memory.events() if not stamp.erased]
        event, stamp = events[place % len(events)]
        if hasattr(event, "seqs"):
            return  # That is an erasure itself.
        self.memory.erase([stamp.seq])
        self.was_erased_from = True
        words = str(getattr(event, "text", getattr(event, "value", ""))).split()
        self.erased |= {word for word in words if word.startswith("word")}

    # The hand.

    def put_lines(self, day: str, lines: list[str], *, ends: str = "\n") -> None:
        put(day_path(self.directory, day), ends.join(lines) + ends)

    def lines(self, day: str) -> list[str]:
        path = day_path(self.directory, day)
        return path.read_text(encoding="utf-8").splitlines() if path.exists() else []

    def hand_wrote(self, day: str, text: str) -> None:
        self.written_by_hand[day] |= {word for word in text.split() if word.startswith("word")}

    @rule(key=keys, value=values)
    def hand_sets(self, key: str, value: str) -> None:
        put_facts(self.directory, facts_in(self.directory) | {key: self.value(value)})

    @rule(key=keys)
    def hand_deletes(self, key: str) -> None:
        put_facts(self.directory, {name: value for name, value in facts_in(self.directory).items() if name != key})

    @rule(day=days, height=heights, gap=st.integers(min_value=0, max_value=2), is_windows=st.booleans())
    def hand_appends(self, day: str, height: int, gap: int, *, is_windows: bool) -> None:
        text = self.text(height)
        self.hand_wrote(day, text)
        self.put_lines(day, [*self.lines(day), *[""] * gap, *text.split("\n")], ends="\r\n" if is_windows else "\n")

    @rule(day=days, place=places)
    def hand_inserts(self, day: str, place: int) -> None:
        """Insert a line anywhere; inside of a note that is a change of that note."""
        lines = self.lines(day)
        at = place % (len(lines) + 1)
        text = self.text(1)
        self.hand_wrote(day, text)
        self.put_lines(day, [*lines[:at], text, *lines[at:]])
        self.changed.add(day)

    @rule(day=days, place=places, is_removed=st.booleans())
    def hand_changes(self, day: str, place: int, *, is_removed: bool) -> None:
        """Change a line, or remove it."""
        lines = self.lines(day)
        if not lines:
            return
        at = place % len(lines)
        self.written_by_hand[day] -= set(lines[at].split())
        text = self.text(1)
        if not is_removed:
            self.hand_wrote(day, text)
        self.put_lines(day, [*lines[:at], *([] if is_removed else [text]), *lines[at + 1 :]])
        self.changed.add(day)

    # Rounds.

    @rule()
    def begin_anew(self) -> None:
        """End without a round, as a process that is killed between two of them."""
        self.rounds.close()
        self.rounds = self.opened()

    @rule()
    def round(self) -> None:
        log, hand = dict(self.memory.profile().items()), facts_in(self.directory)
        before = {day: texts_of(self.memory, day) for day in DAYS}
        inserted = {day: self.inserted(day) for day in DAYS}
        report, is_due = self.rounds.run()
        assert report.problems == ()
        assert is_due == bool(report.edits)
        self.check_facts(log, hand, report)
        for day in DAYS:
            self.check_day(day, before[day], inserted[day], report)
        expected = rendered(self.memory, DAYS)
        files = held(self.directory)
        # A file that a hand has begun and that says nothing yet stays as it is.
        assert {name: text for name, text in files.items() if text.strip() or name in expected} == expected
        assert not any(word.encode() in everything(self.directory) for word in self.erased)
        again, is_due = self.rounds.run()
        assert not again
        assert not is_due
        self.base = dict(self.memory.profile().items())
        self.past += [hand, self.base]
        self.changed = set()
        self.written_by_hand = {day: set() for day in DAYS}
        self.notes = {day: [text.split("\n") for text in texts_of(self.memory, day)] for day in DAYS}

    def inserted(self, day: str) -> set[str]:
        """The words of a hand between two notes whose nearest lines are left, or before or behind all."""
        notes = self.notes[day]
        if any(word in self.erased for note in notes for line in note for word in line.split()):
            return set()
        known = {line for note in notes for line in note}
        ends = ["", *(note[-1] for note in notes)]
        borders = set(zip(ends, [*(note[0] for note in notes), ""], strict=True))
        lines = [line for line in self.lines(day) if line.strip() and line != f"# {day}"]
        words, waiting, last = set[str](), set[str](), ""
        for line in [*lines, ""]:
            if line and line not in known:
                waiting |= set(line.split())
                continue
            words |= waiting if (last, line) in borders else set()
            last, waiting = line, set()
        return words & self.written_by_hand[day]

    def check_facts(self, log: dict[str, str], hand: dict[str, str], report: Any) -> None:
        """Every key went where a three-way merge of values sends it."""
        expected, conflicts = dict(log), dict[str, str | None]()
        for key in {*log, *hand, *self.base}:
            base, ours, theirs = self.base.get(key), log.get(key), hand.get(key)
            if theirs in {base, ours}:
                continue
            if ours != base:
                conflicts[key] = theirs
            elif theirs is None:
                del expected[key]
            else:
                expected[key] = theirs
        for conflict in report.conflicts:
            if "older copy" in conflict.reason:
                self.check_older(conflict, hand)
                conflicts[conflict.name] = conflict.hand
                expected.pop(conflict.name, None)
                expected |= {key: value for key, value in log.items() if key == conflict.name}
        assert dict(self.memory.profile().items()) == expected
        told = {conflict.name: conflict for conflict in report.conflicts if conflict.file == "profile.json"}
        assert {key: conflict.hand for key, conflict in told.items()} == conflicts
        for key, conflict in told.items():
            assert conflict.log == log.get(key)
            side = json.loads(kept(self.directory)[conflict.kept]) if conflict.kept else {}
            if self.was_erased_from and key not in side:  # What was there before may be what was erased.
                assert conflict.hand in {None, *(facts.get(key) for facts in self.past)}
            else:
                assert side[key] == conflict.hand

    def check_older(self, conflict: Any, hand: dict[str, str]) -> None:
        """Only what was there before is taken for an older copy, and only beside another edit."""
        assert conflict.hand in {facts.get(conflict.name) for facts in self.past}
        assert any(hand.get(key) != self.base.get(key) for key in {*hand, *self.base} - {conflict.name})

    def check_day(self, day: str, before: list[str], inserted: set[str], report: Any) -> None:
        """Nothing of the log moved, and every word that a hand wrote is in the journal once, or beside the file.

        What it inserted between notes is in the journal, whatever it changed elsewhere.
        """
        after = texts_of(self.memory, day)
        assert after[: len(before)] == before
        journal, beside = " ".join(after).split(), " ".join(kept(self.directory).values()).split()
        conflicts = [conflict for conflict in report.conflicts if day.replace("-", "") in conflict.file]
        assert len(conflicts) <= (day in self.changed)
        for word in self.written_by_hand[day]:
            assert journal.count(word) + (word in beside) == 1, (word, after, kept(self.directory))
            assert conflicts or word in journal
        assert inserted <= set(journal)
