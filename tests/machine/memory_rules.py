"""The rules of the state machine for a whole memory: forks of it, snapshots, restores, and going from fork to fork."""

from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import rule

from refold import Closed, InvalidInput, Memory, ReadOnly, RefoldError, Snapshot
from tests.machine.chat_rules import GIVEN, ChatRules, drawn_rule
from tests.machine.driver import DEPTH_MAX, Drawn, drawn_options
from tests.machine.model import Options

TWINS = ("x", "y/\u00e9", "z", "erased")
places = st.integers(0, 1_000)

GIVEN |= {
    "fork_whole": {
        "twin": st.sampled_from(TWINS),
        "place": st.one_of(st.none(), st.none(), places),
        "drawn": drawn_options,
    },
    "go": {"place": places},
    "keep_whole": {"label": st.sampled_from([None, None, "one", "two"]), "drawn": drawn_options},
    "restore_whole": {
        "place": places,
        "label": st.sampled_from([None, None, None, "one", "two"]),
        "drawn": drawn_options,
    },
}


class WholeRules(ChatRules):
    """``self.store`` is the main memory; ``self.memory`` is the one whose handle the rules drive now."""

    def __init__(self) -> None:
        super().__init__()
        self.store = self.memory
        self.wholes: list[Snapshot] = []

    def branch_of(self, store: Memory, branch: int | None = None) -> Memory:
        """The handle on a branch, by default the one that is driven now, of a store."""
        branch = self.model.branch if branch is None else branch
        return store.fork(self.model.forks()[branch - 1][2]) if branch else store

    def branches(self) -> range:
        """The numbers of all branches that are committed."""
        return range(len(self.model.forks(self.model.committed)) + 1)

    def go_to(self, branch: int) -> None:
        """Drive another branch from here on."""
        self.model.branch = branch
        self.memory, self.asked = self.branch_of(self.store), None

    @drawn_rule("fork_whole")
    def fork_whole(self, twin: str, place: int | None, drawn: Drawn) -> None:
        at = None if place is None else place % (self.model.committed + 1)
        options, head = self._whole_options(drawn), self.memory.head

        def plan() -> int:
            if at is None and options == Options() and twin in [name for *_, name in self.model.forks()]:
                return self.model.opened(twin)
            if self.model.batch is not None:
                raise InvalidInput(twin)
            return self.model.fork_whole(twin, at, DEPTH_MAX, options)

        try:
            fork = self.memory.fork(twin, at=at, **vars(options))
        except RefoldError as error:
            with pytest.raises(type(error)):
                plan()
            assert self.memory.head == head
            return
        self.model.branch = plan()
        assert fork.head == self.model.committed
        self.memory, self.asked = fork, None
        self._is_what_it_was_forked_from()

    def _is_what_it_was_forked_from(self) -> None:
        parent, seq, _ = self.model.forks()[self.model.branch - 1]
        if all(entry.branch != self.model.branch for entry in self.model.log):
            assert self.memory.state_hash() == self.branch_of(self.store, parent).state_hash(at=seq)

    def _whole_options(self, drawn: Drawn) -> Options:
        """The options of a verb of the whole memory: a version is its head."""
        expected = drawn.expected
        if isinstance(expected, int):
            expected = max(self.model.committed + expected, 0)
        head = self.model.committed
        return Options(expected, drawn.request_id, tuple(1 + place % head for place in drawn.sources if head))

    @drawn_rule("go")
    def go(self, place: int) -> None:
        """Goes to another branch; the handle that was used is closed, and the store stays open."""
        branch = place % len(self.branches())
        if self.model.branch and place % 3 == 0:
            self.memory.close()
            with pytest.raises(Closed):
                self.memory.profile().items()
            assert "closed" in repr(self.memory)
        self.go_to(branch)
        assert self.memory.head == self.model.committed

    @drawn_rule("keep_whole")
    def keep_whole(self, label: str | None, drawn: Drawn) -> None:
        if label is None:
            if self.model.batch is None:
                self.wholes.append(self.memory.snapshot())
                assert self.wholes[-1].seq == self.model.committed
            return

        def plan(options: Options, _: Any) -> None:
            self.refuse_in_batch()
            self.model.keep_whole(label, options)
            self.model.named("", label)  # A request that was answered names nothing any more once that was erased.

        self._drive_whole(drawn, lambda **options: self.memory.snapshot(label, **options), plan)

    @drawn_rule("restore_whole")
    def restore_whole(self, place: int, label: str | None, drawn: Drawn) -> None:
        known = self.wholes[place % len(self.wholes)] if self.wholes and place % 2 else None
        if known is None and label is None and self.model.batch is None:
            known = self.memory.at(place % (self.model.committed + 1)).snapshot()
        target = label if known is None else known

        def plan(options: Options, _: Any) -> None:
            self.refuse_in_batch()
            if isinstance(target, Snapshot):
                place = (target.branch, target.seq)
                self.model.restore_whole(*place, ("restore", *place), options)
            else:
                seq = self.model.named("", str(target))
                self.model.restore_whole(self.model.branch, seq, ("restore", target), options)

        if target is not None:
            given = self._drive_whole(drawn, lambda **options: self.memory.restore(target, **options), plan)
            if given is not None and isinstance(target, Snapshot) and drawn.request_id is None:
                there = self.branch_of(self.store, target.branch).state_hash(at=target.seq)
                assert self.memory.state_hash() == there

    def _drive_whole(self, drawn: Drawn, call: Any, plan: Any) -> Any:
        """Calls a verb of the whole memory and lets the model follow."""
        options, head = self._whole_options(drawn), self.memory.head
        try:
            result = call(**vars(options))
        except RefoldError as error:
            with pytest.raises(type(error)):
                plan(options, None)
            assert self.memory.head == head
            return None
        plan(options, result)
        assert self.memory.head == self.model.committed
        return (result,)

    @rule(place=places)
    def refuse_whole(self, place: int) -> None:
        """A frozen memory has no future; a snapshot that was made by hand, a name that is given to what was erased."""
        frozen = self.memory.at(place % (self.model.committed + 1))
        with pytest.raises(ReadOnly):
            frozen.fork("of the past")
        with pytest.raises((ReadOnly, InvalidInput)):
            frozen.snapshot("of the past")
        with pytest.raises(InvalidInput):
            self.memory.restore(Snapshot("", 0))
        with pytest.raises(InvalidInput):
            self.memory.fork("erased-7")
