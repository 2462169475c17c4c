"""The machine of a mirror, with all that may carry an erased text along: older copies, late writes, restores, crashes.

After each round no byte of the directory tells what was erased, and no word of a hand is lost.
"""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from refold.mirror.mirror import Rounds
from tests.mirror.files import everything, facts_in, held, kept, put_facts, rendered, texts_of
from tests.mirror.machine import DAYS, MirrorMachine, keys

STEPS = ["_copy_conflicts", "_take", "_write", "_announce", "_place", "_conclude"]


class Killed(BaseException):
    """Stands for the end of a process."""


class ForgettingMachine(MirrorMachine):
    """A mirror whose rounds are cut off, and whose files are saved by programs that read them long ago."""

    def __init__(self) -> None:
        super().__init__()
        self.older: list[dict[str, str]] = []
        """Profiles as their file held them since something was erased."""
        self.names = 0
        self.erased_count = 0
        self.hand_values: set[str] = set()
        """Values that a hand has put into the profile since the last round, each under a key of its own."""
        self.deleted = ""
        """The copies that were deleted since the last round, because something was erased."""

    # The log.

    @rule()
    def log_names_a_state(self) -> None:
        self.names += 1
        self.memory.snapshot(f"state {self.names}")

    @precondition(lambda self: self.names)
    @rule(place=st.integers(min_value=0, max_value=99))
    def log_restores(self, place: int) -> None:
        self.memory.restore(f"state {place % self.names + 1}")

    @precondition(lambda self: self.memory.head)
    @rule(place=st.integers(min_value=0, max_value=99))
    def erase(self, place: int) -> None:
        """Erase what was said once, whether it still stands or not."""
        said = [
            (event, stamp)
            for event, stamp in self.memory.events()
            if not stamp.erased and (hasattr(event, "text") or hasattr(event, "value"))
        ]
        if said:
            event, stamp = said[place % len(said)]
            self.memory.erase([stamp.seq])
            words = str(getattr(event, "text", getattr(event, "value", ""))).split()
            self.erased |= {word for word in words if word.startswith("word")}

    # The hand.

    @precondition(lambda self: self.older)
    @rule(place=st.integers(min_value=0, max_value=9))
    def hand_saves_older(self, place: int) -> None:
        """Edit and save a copy that was read before; with an edit of its own, that is what it is known by."""
        older = self.older[place % len(self.older)]
        if self.erased.isdisjoint(older.values()):
            value = self.word()
            self.hand_values = {value}
            put_facts(self.directory, older | {"own": value})

    @rule(key=keys, value=st.just("new"))
    def hand_sets(self, key: str, value: str) -> None:
        word = self.value(value)
        facts = facts_in(self.directory)
        self.hand_values = {word} | (self.hand_values - {facts.get(key)})
        put_facts(self.directory, facts | {key: word})

    @rule(key=keys)
    def hand_deletes(self, key: str) -> None:
        self.hand_values -= {facts_in(self.directory).get(key)}
        super().hand_deletes(key)

    # Rounds.

    @rule(step=st.sampled_from(STEPS))
    def round_is_cut_off(self, step: str) -> None:
        def die(*_: object, **__: object) -> None:
            raise Killed

        copies = kept(self.directory)
        with patch.object(Rounds, step, die), suppress(Killed):
            self.rounds.run()
        self.note_deleted(copies)
        self.begin_anew()

    @rule(has_late=st.booleans())
    def round(self, *, has_late: bool = False) -> None:
        hand = facts_in(self.directory)
        before = {day: texts_of(self.memory, day) for day in DAYS}
        editors = self.opened_files() if has_late else {}
        copies = kept(self.directory)
        self.settle()
        self.note_deleted(copies)
        late = self.write_late(editors)
        kept_before = set(kept(self.directory))
        if late:
            self.settle()
        beside = "".join(text for name, text in kept(self.directory).items() if name not in kept_before)
        assert all(word in beside for word in late), (late, beside)
        self.check_nothing_lost(before)
        self.older = [] if self.has_erased else [*self.older, hand, facts_in(self.directory)][-4:]
        self.erased_count = self.count_erased()
        self.hand_values, self.deleted = set(), ""
        self.written_by_hand = {day: set() for day in DAYS}

    def note_deleted(self, copies: dict[str, str]) -> None:
        """Remember the copies that are gone: an erasure takes the words of a hand in them along."""
        gone = copies.keys() - kept(self.directory).keys()
        assert not gone or self.has_erased
        self.deleted += "".join(copies[name] for name in gone)

    def count_erased(self) -> int:
        return sum(stamp.erased for _, stamp in self.memory.events())

    @property
    def has_erased(self) -> bool:
        """Whether something was erased since the last round; who reads older copies then reads what nobody knows."""
        return self.count_erased() != self.erased_count

    def settle(self) -> None:
        report, _ = self.rounds.run()
        assert report.problems == ()
        files, expected = held(self.directory), rendered(self.memory, DAYS)
        assert {name: text for name, text in files.items() if text.strip() or name in expected} == expected
        found = everything(self.directory)
        assert [word for word in self.erased if word.encode() in found] == [], kept(self.directory)

    def opened_files(self) -> dict[Path, Any]:
        paths = [path for path in self.directory.rglob("*") if path.suffix in {".md", ".json"}]
        return {path: path.open("a", encoding="utf-8") for path in paths}

    def write_late(self, editors: dict[Path, Any]) -> list[str]:
        """Write into the files that were replaced, as programs do that have them open; return the words."""
        late = []
        for path, editor in editors.items():
            with editor:
                if not path.exists() or os.fstat(editor.fileno()).st_ino != path.stat().st_ino:
                    word = self.word()
                    editor.write(f"- {word} is said\n")
                    if path.suffix == ".md" or not self.has_erased:
                        late.append(word)  # A profile that is no JSON any more cannot be told from what was erased.
        return late

    def check_nothing_lost(self, before: dict[str, list[str]]) -> None:
        beside = str(kept(self.directory)) + self.deleted
        said = [event for event, stamp in self.memory.events() if not stamp.erased]
        values = {getattr(event, "value", "") for event in said}
        notes = " ".join(getattr(event, "text", "") for event in said)
        for value in self.hand_values - self.erased:
            assert value in values or value in beside, (value, values, beside)
        for day in DAYS:
            after = texts_of(self.memory, day)
            assert after[: len(before[day])] == before[day]
            for word in self.written_by_hand[day] - self.erased:
                assert word in notes or word in beside, (word, after, beside)
