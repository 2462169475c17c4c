"""A state machine of embedders: whatever happens, each vector is that of its text by the embedder of its project."""

from collections.abc import Callable
from typing import Any

import numpy
import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from refold import Entry, Memory, RefoldError
from refold.index.project import exact_cosine, unit
from refold.views.facts import FACTS
from tests.memory.test_reembed import Letters
from tests.support.bounds import Clock, seeded_bytes

CONTENTS = ["cab", "cab cab", "bead", "a bead", "feed", "hag", "hag bead", "fab"]
LETTERS = [("abcdefgh", "eight"), ("abcd", "four"), ("hgfe", "other four")]
contents = st.sampled_from(CONTENTS)
places = st.integers(0, 100)


class ReembeddingMachine(RuleBasedStateMachine):
    """One project that is written to and embedded anew, now and then cut off in the middle of it."""

    def __init__(self) -> None:
        super().__init__()
        self.opened = 0
        self.clock = Clock()
        self.current = 0
        self.memory = self._open()
        self.heads = [0]

    def _open(self) -> Memory:
        self.opened += 1
        embedder = Letters(*LETTERS[self.current])
        return Memory(clock_ns=self.clock, random_bytes=seeded_bytes(self.opened), embedder=embedder)

    @property
    def project(self) -> Any:
        return self.memory.project("p")

    def _entry(self, place: int) -> Entry | None:
        entries = self.project.list()
        return entries[place % len(entries)] if entries else None

    @initialize(learned=st.lists(contents, min_size=2, max_size=4))
    def learn(self, learned: list[str]) -> None:
        for content in learned:
            self.project.add(content)

    @rule(content=contents)
    def add(self, content: str) -> None:
        self.project.add(content)

    @rule(content=contents, threshold=st.sampled_from([0.5, 0.9]))
    def upsert(self, content: str, threshold: float) -> None:
        self.project.upsert(content, threshold=threshold)

    @rule(threshold=st.sampled_from([0.6, 0.95]))
    def compact(self, threshold: float) -> None:
        self.project.compact(threshold)

    @rule(place=places, content=contents)
    def update(self, place: int, content: str) -> None:
        entry = self._entry(place)
        if entry is not None and content not in [other.content for other in self.project.list()]:
            self.project.update(entry, content=content)

    @rule(place=places)
    def delete(self, place: int) -> None:
        entry = self._entry(place)
        if entry is not None:
            self.project.delete(entry)

    @rule(place=places)
    def unmerge(self, place: int) -> None:
        merges = [recorded.stamp.seq for recorded in self.memory.events() if "Merged" in type(recorded.event).__name__]
        if merges:
            self._try(lambda: self.project.unmerge(merges[place % len(merges)]))

    @rule(place=places)
    def erase(self, place: int) -> None:
        """But for a vector alone: the one that it took the place of may be that of another text."""
        seqs = [r.stamp.seq for r in self.memory.events() if getattr(r.event, "changed", ()) != ("vector",)]
        if seqs:
            self._try(lambda: self.memory.erase([seqs[place % len(seqs)]]))

    @rule(place=places)
    def restore(self, place: int) -> None:
        """To where a verb had ended, under the same embedder: another one's vectors would need that embedder."""
        whole = self.memory.at(self.heads[place % len(self.heads)])
        model = whole._core.read("project/p", lambda state: state.part(FACTS).model, whole._at)
        if model in ("", LETTERS[self.current][1]):
            self.memory.restore(whole.snapshot())

    def _try(self, call: Callable[[], Any]) -> None:
        """Calls a verb that may refuse; then it has written nothing."""
        head = self.memory.head
        try:
            call()
        except RefoldError:
            assert self.memory.head == head

    @rule(chosen=st.sampled_from(range(len(LETTERS))), is_cut_off=st.booleans())
    def reembed(self, chosen: int, is_cut_off: bool) -> None:
        embedder = Letters(*LETTERS[chosen])
        if is_cut_off:
            seen, model = self._seen(), self.current
            self._cut_off(embedder)
            assert self.current != model or self._seen() == seen
            return
        self.memory.reembed(embedder)
        self.current = chosen
        head = self.memory.head
        assert self.memory.reembed(embedder).vectors == 0
        assert self.memory.head == head

    def _cut_off(self, embedder: Letters) -> None:
        """Begins to embed anew, and is stopped behind the first page, before anything counts."""

        class Stopped(Exception):
            pass

        def progress(_made: int, _whole: int) -> None:
            raise Stopped

        if self.project.count() and embedder.id != LETTERS[self.current][1]:
            try:
                self.memory.reembed(embedder, progress=progress)
            except Stopped:
                return
            self.current = [name for _, name in LETTERS].index(embedder.id)

    def _seen(self) -> list[tuple[str, float]]:
        return [(hit.entry.id, hit.score) for hit in self.project.search("bead", now=0)]

    @invariant()
    def each_vector_is_that_of_its_text(self) -> None:
        assert self.memory.state_hash() == self.memory.replay_hash()
        self.heads.append(self.memory.head)
        vectors = {r.stamp.seq: getattr(r.event, "vector", b"") for r in self.memory.events()}
        embedder = Letters(*LETTERS[self.current])
        units = {}
        for entry in self.project.list():
            if vectors.get(entry.vector_seq):
                units[entry.id] = unit(vectors[entry.vector_seq])
                own = unit(packed(embedder.embed([entry.content])[0]))
                assert exact_cosine(own, units[entry.id]) == 1.0, (entry, len(units[entry.id]))
        self._check_search(units)

    def _check_search(self, units: dict[str, Any]) -> None:
        embedder = Letters(*LETTERS[self.current])
        asked = unit(packed(embedder.embed(["hag"])[0]))
        for hit in self.project.search("hag", now=0):
            own = units.get(hit.entry.id)
            assert hit.parts["cosine"] == pytest.approx(0.0 if own is None else exact_cosine(own, asked), abs=2e-6)


def packed(numbers: list[float]) -> bytes:
    """Raw float32, as events hold vectors."""
    return bytes(numpy.array(numbers, dtype="<f4").tobytes())


def test_each_vector_is_that_of_its_text() -> None:
    profile = settings(
        max_examples=60,
        phases=(Phase.generate,),
        stateful_step_count=25,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    run_state_machine_as_test(ReembeddingMachine, settings=profile)
