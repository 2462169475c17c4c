"""What is kept beside the files of a mirror: written down, and rid of what was erased, then and later."""

from collections.abc import Callable, Collection
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from refold.errors import Closed
from refold.store.mirror_files import KEPT, Tree, kept_name
from refold.tools.mirror.forgetting import said_by_bases, said_by_event, said_by_log, standing, without
from refold.tools.mirror.reports import MirrorProblem
from refold.tools.mirror.sides import Side
from refold.tools.mirror.state import Base, State

if TYPE_CHECKING:
    from refold.memory.memory import Memory

_UNSWEPT: Final = "it may hold what was erased, and it"


class Copies:
    """The copies beside the files of one mirror, and what in them was the log's."""

    def __init__(
        self, memory: "Memory", streams: tuple[str, str], tree: Tree, state: State, store: Callable[[], None]
    ) -> None:
        self._memory = memory
        self._streams = streams
        self._tree = tree
        self._state = state
        self._store = store
        self._past: dict[str, set[str]] = {}
        """What replaced files had held before an erasure: who has them open may still write to them."""
        self.side: Side | None = None
        """The log's side as it was read last."""

    def keep(self, name: str, content: bytes, said: Collection[str] = ()) -> str:
        """Write what would be lost beside a file; return its name, empty if nothing of it is left to be kept.

        ``said`` is what in it may be the log's, beside what is known of the file; what of that was erased is left out.
        """
        found = standing(name, content, self._known(name).union(said))
        if self.side is not None and self.side.erased_count:
            gone = self._gone({name: found}, self.side)[name]
            content, found = without(name, content, gone), found - gone
            if gone and not content:
                return ""
        return self._kept(name, content, found)

    def _kept(self, name: str, content: bytes, found: Collection[str]) -> str:
        """Note what in a copy is the log's, and write it: nobody may know that any more after a crash."""
        if found:
            known = set(self._tree.kept())
            kept = kept_name(name, content)
            left = {copy: told for copy, told in self._state.beside.items() if copy in known}
            self._state.beside = left | {kept: tuple(sorted({*found, *left.get(kept, ())}))}
            self._store()
        return self._tree.keep(name, content)

    def forget(self, side: Side) -> list[MirrorProblem]:
        """Take what was erased out of all copies; return which of them could not be read."""
        found = {kept: self._tree.read(kept, bytes_max=None) for kept in self._tree.kept()}
        said = {
            kept: standing(name, found[kept].content, self._known(name).union(self._state.beside.get(kept, ())))
            for kept, name in ((kept, kept.partition(KEPT)[0]) for kept in found)
        }
        for kept, gone in self._gone(said, side).items():
            name = kept.partition(KEPT)[0]
            content = found[kept].content
            left = without(name, content, gone)
            if left != content:
                if left:
                    self._kept(name, left, said[kept] - gone)
                self._tree.remove(kept, found[kept])
        left_there = set(self._tree.kept())
        self._state.beside = {kept: told for kept, told in self._state.beside.items() if kept in left_there}
        return [MirrorProblem(kept, f"{_UNSWEPT} {copy.problem}") for kept, copy in found.items() if copy.problem]

    def pass_on(self, *, is_rid: bool) -> None:
        """Forget what was known of erased texts if the files are rid of them, but for what may be written late."""
        state = self._state
        self._past = {name: self._known(name) for name in state.former}
        if is_rid:
            state.former, state.recent = {}, []

    def _known(self, name: str) -> set[str]:
        return said_by_bases(name, bases_of(self._state, name), self._state.recent) | self._past.get(name, set())

    def _gone(self, said: dict[str, set[str]], side: Side) -> dict[str, set[str]]:
        """Return what of the said the log has no more, in no event that is not erased; by names of files or copies."""
        gone = {kept: told - said_by_log(kept.partition(KEPT)[0], side) for kept, told in said.items()}
        if any(gone.values()):
            # Of a memory that is closed nobody knows more than how the log's side was.
            with suppress(Closed):
                self._leave_unerased(gone)
        return gone

    def _leave_unerased(self, gone: dict[str, set[str]]) -> None:
        waiting: dict[str, list[set[str]]] = {}
        for kept, told in gone.items():
            waiting.setdefault(kept.partition(KEPT)[0], []).append(told)
        for event, stamp in self._memory.events():
            if stamp.stream in self._streams and not stamp.erased:
                name, told = said_by_event(event)
                for each in waiting.get(name, ()):
                    each.difference_update(told)


def bases_of(state: State, name: str) -> list[Base]:
    """Return what a file may hold, what was taken from it, and what it held before an erasure that is not concluded."""
    taken = [state.taken[name]] if name in state.taken else []
    return [*known_of(state, name), *taken, *state.former.get(name, ())]


def known_of(state: State, name: str) -> list[Base]:
    """Return what a file may hold by now."""
    return [base for base in (state.coming.get(name), state.files.get(name)) if base is not None]
