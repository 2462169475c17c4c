"""One round of a mirror: files and log looked at, edits taken as events, files written.

The order is what makes a crash at any instant lose nothing. What the log does not take is kept beside its file first.
Then the edits are one commit, durable before anything is overwritten. Then the state tells what each file held and what
it is about to hold; then files are replaced; then the state tells what they hold.
"""

from collections.abc import Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from refold.errors import InvalidInput, LimitExceeded, StoreBusy, StoreError, WrongVersion
from refold.memory.door import Door
from refold.store.limits import MIRROR_FILE_BYTES_MAX
from refold.store.mirror_files import KEPT, PROFILE_FILE, STATE_FILE, Found, Seen, Tree
from refold.tools.mirror.copies import Copies, bases_of, known_of
from refold.tools.mirror.forgetting import said_by_file
from refold.tools.mirror.limits import MIRROR_RECENT_COUNT_MAX, MIRROR_REDO_COUNT_MAX
from refold.tools.mirror.merging import Passed, replaced
from refold.tools.mirror.pages import digest
from refold.tools.mirror.planning import Plan, Trail, planned
from refold.tools.mirror.reports import MirrorConflict, MirrorEdit, MirrorProblem, MirrorReport
from refold.tools.mirror.sides import LogSide, Side
from refold.tools.mirror.state import Base, Owner, State, base_of_edits, joined, packed, unpacked
from refold.tools.mirror.taking import told_by_edit, were_taken

if TYPE_CHECKING:
    from refold.memory.memory import Memory

_LATE: Final = "it was written to while it was being replaced"
_LEFT: Final = "a crash left it beside the file"
_UNTAKEN: Final = "was edited by hand, and this mirror takes no edits; `refold mirror` takes them"


@contextmanager
def _noting(name: str, failed: list[MirrorProblem]) -> Generator[None]:
    """Note what the disk refuses to do with a file; the others go on."""
    try:
        yield
    except StoreError as error:
        failed.append(MirrorProblem(name, str(error)))


class _Moved(Exception):
    """The log moved on while a round was decided."""


class Rounds:
    """What the rounds of one mirror share: the directory, the log's side, and what is known of the files."""

    def __init__(
        self, memory: "Memory", door: Door, path: str, names: tuple[str, str], *, takes: bool, writes: bool
    ) -> None:
        self._memory = memory
        self._door = door
        self._profile, self._journal = names
        self._takes = takes
        self.writes = writes
        self._log = LogSide(door, *self.streams)
        self.tree = Tree(path, holds=writes)
        try:
            self._state, self._stored = self._known(Owner(door.engine.store_id.hex(), door.branch, *names))
            self._copies = Copies(memory, self.streams, self.tree, self._state, self._store)
            self._kept = [*self._leftovers()] if writes else []
            """What was kept beside files and is to be reported by the next round."""
            self._forgotten_count = self._state.erased_count
            self._unforgotten: list[MirrorProblem] = []
            """Copies that what was erased could not be taken out of."""
        except BaseException:
            self.tree.close()
            raise
        self.seen: dict[str, tuple[Seen | None, str]] = {}
        """Of each file, how it was seen last and the digest of what it held; empty for what could not be read."""

    def _known(self, owner: Owner) -> tuple[State, bytes]:
        content = self.tree.read_state()
        state = unpacked(content, owner, self.tree.path)
        return (State(owner), b"") if state is None else (state, content)

    def _leftovers(self) -> Iterable[MirrorConflict]:
        """Keep what a crash left of replaced files, unless it is known what it was; copies get their name again."""
        for name, content in self.tree.leftovers():
            of, is_copy, _ = name.partition(KEPT)
            if is_copy:
                self.tree.keep(of, content)
                continue
            bases = bases_of(self._state, name)
            if digest(content) not in {base.digest for base in bases}:
                yield MirrorConflict(name, "", None, None, self._copies.keep(name, content), _LEFT)

    def _bases(self, name: str) -> list[Base]:
        return known_of(self._state, name)

    @property
    def streams(self) -> tuple[str, str]:
        """The streams that the files hold."""
        return f"profile/{self._profile}", f"journal/{self._journal}"

    def close(self) -> tuple[MirrorConflict, ...]:
        """Let go of the directory; return what was kept of files that were written to while they were replaced."""
        try:
            self._note_late()
            return tuple(self._kept)
        finally:
            self.tree.close()

    # A round.

    def check(self) -> MirrorReport:
        """Return what a round would do."""
        side = self._log.read()
        plans = self._plans(side, self.tree.walk(), ())
        return self._report(side, plans, [plan.name for plan in plans if self._is_behind(side, plan)])

    def run(self, trusted: Collection[str] = (), skipped: Collection[str] = ()) -> tuple[MirrorReport, bool]:
        """Do a round; return what it came to, and whether something moved meanwhile, so that another one is due.

        Files in ``trusted`` are what they were when they were seen last and are not read if there is no need to; those
        in ``skipped`` are left alone. Raises ``StoreError`` where the log cannot be written.
        """
        for _ in range(MIRROR_REDO_COUNT_MAX):
            side = self._read()
            self._note_late()
            names = self.tree.walk()
            plans = [plan for plan in self._plans(side, names, trusted) if plan.name not in skipped]
            self._forget(side)
            self._keep(plans)
            try:
                has_taken = self._take(plans, side)
            except _Moved:
                continue
            if has_taken:
                side = self._read()
                self._forget(side)
                plans = [*plans, *self._unplanned(side, {*names, *skipped, *(plan.name for plan in plans)})]
            report, is_whole = self._write(side, plans)
            report = replace(report, conflicts=(*self._kept, *report.conflicts))
            self._kept = []
            # Files that were left out may lack what the log has by now.
            return report, has_taken or bool(skipped) or not is_whole
        message = f"{self.tree.path}: the log moved {MIRROR_REDO_COUNT_MAX} times while edits were taken; try again"
        raise StoreBusy(message)

    def _read(self) -> Side:
        self._copies.side = side = self._log.read()
        return side

    def _note_late(self) -> None:
        """Keep what was written into replaced files after they had been read; it is reported by the next round."""
        for found, content, known in self.tree.late():
            name = found.partition(KEPT)[0]
            kept = self._copies.keep(name, content, said_by_file(name, known))
            self._kept.append(MirrorConflict(name, "", None, None, kept, _LATE))

    def _plans(self, side: Side, names: Mapping[str, Seen], trusted: Collection[str]) -> list[Plan]:
        self._settle_taking()
        plans = [self._plan(side, name, names.get(name), trusted) for name in sorted({*names, *side.names})]
        return [plan for plan in plans if plan is not None]

    def _settle_taking(self) -> None:
        """Find out whether the log got what a round was about to take when it was cut off."""
        state = self._state
        recorded = self._memory.events(after=state.taking_after) if state.taking else ()
        if were_taken(state.taking_edits, recorded, self.streams[1]):
            for name, base in state.taking.items():
                state.taken[name] = joined(state.taken.get(name, Base("")), base)
        state.taking, state.taking_edits = {}, ()

    def _plan(self, side: Side, name: str, seen: Seen | None, trusted: Collection[str]) -> Plan | None:
        wanted = self._log.base(side, name)
        known = self.seen.get(name)
        if name in trusted and wanted is not None and known == (seen, wanted.digest):
            return None
        bases = self._bases(name)
        # What a mirror wrote itself may be larger than what it takes from a hand.
        sizes = [base.size for base in (wanted, *bases) if base is not None]
        found = self.tree.read(name, max(MIRROR_FILE_BYTES_MAX, *sizes, 0))
        trail = Trail(self._state.taken.get(name, Base("")), self._state.recent)
        plan = planned(name, found, side, wanted, bases, trail=trail)
        self.seen[name] = (found.seen, "" if plan.problem else digest(found.content))
        if plan.is_edited and not self._takes:
            return Plan(name, found, None, problem=_UNTAKEN)
        return plan

    def _is_behind(self, side: Side, plan: Plan) -> bool:
        """Return whether a file is to be written."""
        if plan.problem:
            return False
        wanted = self._log.base(side, plan.name)
        if wanted is None:
            # A file that a hand has just begun, and that says nothing yet, is its own.
            return plan.found.seen is not None and self._is_known(plan.name)
        return plan.found.seen is None or digest(plan.found.content) != wanted.digest

    def _is_known(self, name: str) -> bool:
        """Return whether something of a file was the log's once."""
        return bool(self._bases(name)) or name in self._state.taken

    # What a hand changed.

    def _forget(self, side: Side) -> None:
        """Take what was erased out of the copies beside files, before the digests of it are forgotten, too."""
        if self._unforgotten or self._forgotten_count != side.erased_count:
            self._unforgotten = self._copies.forget(side)
            self._forgotten_count = side.erased_count

    def _keep(self, plans: Iterable[Plan]) -> None:
        """Keep the hand's side of conflicts beside the files, before anything is overwritten."""
        for plan in plans:
            if plan.conflicts and plan.beside:
                try:
                    kept = self._copies.keep(plan.name, plan.beside)
                except StoreError as error:
                    plan.leave(str(error))
                else:
                    plan.conflicts = [replace(conflict, kept=kept) for conflict in plan.conflicts]

    def _take(self, plans: Sequence[Plan], side: Side) -> bool:
        """Append all edits in one commit, durable when this returns; return whether there were any.

        Raises ``_Moved`` where the log is not any more what they were held against.
        """
        edits = [edit for plan in plans for edit in plan.edits]
        if not edits:
            return False
        edited = [plan for plan in plans if plan.edits]
        self._state.taking = {plan.name: base_of_edits(plan.edits, plan.found.content) for plan in edited}
        self._state.taking_edits = tuple(map(told_by_edit, edits))
        self._state.taking_after = self._door.engine.current_head()
        self._store()
        try:
            with self._memory.batch():
                self._append(edits, side)
        except WrongVersion as error:
            raise _Moved from error
        except (InvalidInput, LimitExceeded) as error:
            for plan in edited:
                plan.leave(f"cannot be taken: {error}")
        self._door.engine.log.flush()
        return True

    def _append(self, edits: Sequence[MirrorEdit], side: Side) -> None:
        """Add edits to the open batch; what they read of the profile is checked again by the commit."""
        profile, journal = self._memory.profile(self._profile), self._memory.journal(self._journal)
        for edit in edits:
            if edit.kind == "append":
                journal.append(edit.text or "", day=edit.name)
            elif profile.get(edit.name) != side.facts.get(edit.name):
                raise _Moved
            elif edit.text is None:
                profile.delete(edit.name)
            else:
                profile.set(edit.name, edit.text)

    # Files.

    def _write(self, side: Side, plans: Sequence[Plan]) -> tuple[MirrorReport, bool]:
        """Write what is behind; return what that came to, and whether nothing moved meanwhile."""
        behind = [plan for plan in plans if self._is_behind(side, plan)]
        written: list[str] = []
        failed: list[MirrorProblem] = []
        with _noting(STATE_FILE, failed):
            self._announce(side, plans, behind)
            for plan in behind:
                with _noting(plan.name, failed):
                    if self._placed(side, plan):
                        written.append(plan.name)
            self._conclude(side, written)
        report = self._report(side, plans, written)
        failed += self._unforgotten
        return replace(report, problems=(*report.problems, *failed)), not failed and len(written) == len(behind)

    def _unplanned(self, side: Side, known: Collection[str]) -> Iterable[Plan]:
        """Return plans for the files of days that began meanwhile, and that nobody has put there."""
        for name in sorted(side.names - set(known)):
            if self.tree.read(name) == Found(None):
                yield Plan(name, Found(None), None)

    def _announce(self, side: Side, plans: Iterable[Plan], behind: Collection[Plan]) -> None:
        """Say what the files held when they were read, and what is about to be in them."""
        bases = {plan.name: self._log.base(side, plan.name) for plan in behind}
        for plan in plans:
            if plan.name == PROFILE_FILE:
                self._note_passed(plan.base, bases.get(plan.name))
            if plan.base is not None and (self._is_known(plan.name) or plan.name in side.names):
                self._note_former(plan.name)
                self._state.files[plan.name] = plan.base
        self._state.taking, self._state.taking_edits, self._state.taken = {}, (), {}
        self._state.coming = {name: base for name, base in bases.items() if base is not None}
        if behind:
            self._store()

    def _note_former(self, name: str) -> None:
        """Note what a file was known to hold before an erasure; copies of it may still come, also after a crash."""
        if self._state.erased_count != self._forgotten_count:
            self._state.former[name] = tuple(bases_of(self._state, name))

    def _note_passed(self, held: Base | None, coming: Base | None) -> None:
        """Note how the profile's file changes, so that an older copy of it is known when it is saved."""
        known = self._state.files.get(PROFILE_FILE)
        for is_written, before, after in ((False, known, held), (True, held, coming)):
            if before is not None and after is not None and before.facts != after.facts:
                self._state.recent.append(Passed(is_written, replaced(before.facts, after.facts), before.own))
        self._state.recent = self._state.recent[-MIRROR_RECENT_COUNT_MAX:]

    def _placed(self, side: Side, plan: Plan) -> bool:
        """Write a file; return whether it could be: whatever else is there by now stays."""
        content = side.content(plan.name)
        if content is None:
            self.seen.pop(plan.name, None)
            return self.tree.remove(plan.name, plan.found)
        ours = self.tree.replace(plan.name, content, plan.found)
        if ours is not None:
            self.seen[plan.name] = (ours, digest(content))
        return ours is not None

    def _conclude(self, side: Side, written: Collection[str]) -> None:
        """Say what the files hold."""
        for name in written:
            base = self._state.coming.get(name)
            if base is None:
                self._state.files.pop(name, None)
            else:
                self._state.files[name] = base
        self._state.coming = {}
        if written:
            self._state.seq = side.seq
        self._copies.pass_on(is_rid=self._state.erased_count != self._forgotten_count)
        if not self._unforgotten:
            self._state.erased_count = self._forgotten_count
        self._store()

    def _store(self) -> None:
        content = packed(self._state)
        if content != self._stored:
            self.tree.write_state(content)
            self._stored = content

    def _report(self, side: Side, plans: Iterable[Plan], written: Sequence[str]) -> MirrorReport:
        plans = list(plans)
        problems = [MirrorProblem(plan.name, plan.problem) for plan in plans if plan.problem]
        odd = [MirrorProblem("", f"the journal has a day {day!r} that names no file") for day in side.nameless]
        return MirrorReport(
            seq=side.seq,
            written=tuple(written),
            edits=tuple(edit for plan in plans for edit in plan.edits),
            conflicts=tuple(conflict for plan in plans for conflict in plan.conflicts),
            problems=(*problems, *odd),
        )
