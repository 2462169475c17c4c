"""The mirror handle: keeps files and log in step while it is open, round by round, on a thread of its own.

The thread is woken by the log and looks at the files now and then. It takes no lock that a writer of the log waits for,
but for the moments in which it copies the profile and the notes out of the state.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from msgspec.structs import replace

from refold import checks
from refold.engine import batch as batches
from refold.errors import (
    Closed,
    InvalidInput,
    LimitExceeded,
    ReadOnly,
    RefoldError,
    StoreBusy,
    StoreError,
    WrongVersion,
)
from refold.event import Erased
from refold.limits import MIRROR_FILE_BYTES_MAX, MIRROR_POLL_MS, MIRROR_RECENT_COUNT_MAX, MIRROR_REDO_COUNT_MAX, POLL_MS
from refold.memory.options import Door, checked_path
from refold.mirror.files import KEPT, PROFILE_FILE, STATE_FILE, Found, Seen, Tree
from refold.mirror.merge import (
    Base,
    MirrorConflict,
    MirrorEdit,
    MirrorProblem,
    MirrorReport,
    MirrorState,
    Owner,
    Passed,
    base_of_edits,
    digest,
    join_bases,
    packed,
    replaced,
    unpacked,
)
from refold.mirror.plan import (
    Copies,
    LogSide,
    Plan,
    Side,
    Trail,
    bases_of,
    known_of,
    planned,
    said_by_file,
    told_by_edit,
    were_taken,
)
from refold.threads import Worker

if TYPE_CHECKING:
    from refold.engine.states import Recorded
    from refold.engine.subscriptions import Subscription
    from refold.memory.memory import Memory


# One round of a mirror: files and log looked at, edits taken as events, files written.
#
# The order is what makes a crash at any instant lose nothing. What the log does not take is kept beside its file
# first. Then the edits are one commit, durable before anything is overwritten. Then the state tells what each file
# held and what it is about to hold; then files are replaced; then the state tells what they hold.

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

    def _known(self, owner: Owner) -> tuple[MirrorState, bytes]:
        content = self.tree.read_state()
        state = unpacked(content, owner, self.tree.path)
        return (MirrorState(owner), b"") if state is None else (state, content)

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
        raise StoreBusy(
            f"{self.tree.path}: the log moved {MIRROR_REDO_COUNT_MAX} times while edits were taken; try again"
        )

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
                state.taken[name] = join_bases(state.taken.get(name, Base("")), base)
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


_POLL_SECONDS: Final = MIRROR_POLL_MS / 1_000


class Mirror:
    """A directory whose files are a profile and a journal: ``profile.json`` and ``YYYYMM/YYYYMMDD.md``.

    While it is open, the files follow the log, and what is written into them by hand becomes events. ``sync`` does a
    round at once and returns what it came to; ``check`` tells what it would do; ``close`` does a last one.

    >>> import tempfile
    >>> from pathlib import Path
    >>> from refold import Memory
    >>> memory, directory = Memory(), Path(tempfile.mkdtemp(), "memory")
    >>> with memory.mirror(directory) as mirror:
    ...     (directory / "profile.json").write_text('{"theme": "dark"}') and mirror.sync().edits[0].kind
    'set'
    >>> memory.profile().get("theme")
    'dark'
    """

    __slots__ = (
        "_bell",
        "_door",
        "_following",
        "_hot",
        "_is_due",
        "_is_ended",
        "_last",
        "_lock",
        "_on_report",
        "_rounds",
        "_thread",
        "_told",
        "error",
        "path",
        "report",
        "seq",
    )

    def __init__(
        self, memory: "Memory", door: Door, rounds: Rounds, on_report: Callable[[MirrorReport], Any] | None
    ) -> None:
        self.path = rounds.tree.path
        self.error: BaseException | None = None
        """What ended the thread, ``None`` while it lives and after a ``close``."""
        self.seq = 0
        """The seq of the state that the files were last held against."""
        self._door = door
        self._rounds = rounds
        self._on_report = on_report
        self._lock = threading.RLock()
        """Held during a round."""
        self._told = threading.Condition()
        self._bell = threading.Event()
        self._is_due = True
        """Whether a round is due, whatever the files look like."""
        self._is_ended = False
        self._last: dict[str, Seen] = {}
        self._hot: set[str] = set()
        """Files that changed a moment ago: a second change within one tick of the disk's clock would not show."""
        self.report = self.sync() if rounds.writes else self.check()
        """What the last round came to that had something to tell."""
        self._following: Subscription | None = None
        self._thread: Worker | None = None
        if rounds.writes:
            self._following = memory.subscribe(self._hear, after=self.seq)
            self._thread = Worker(partial(Context().run, self._run), "refold-mirror")
            self._thread.start()

    def __enter__(self) -> Self:
        """Return the mirror; leaving the block closes it."""
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        """Close the mirror."""
        self.close()

    def __repr__(self) -> str:
        """Return the mirror with where it stands."""
        state = f"failed: {self.error!r}" if self.error is not None else "closed" if self._is_ended else "open"
        return f"Mirror({self.path!r}, seq={self.seq}, {state})"

    @property
    def is_alive(self) -> bool:
        """Whether files and log are kept in step."""
        return not (self._is_ended or self.error or self._door.engine.is_closed)

    def sync(self) -> MirrorReport:
        """Take what was edited by hand, write what the log has, and return what was done.

        Raises ``Closed`` after ``close``, ``InvalidInput`` inside a batch, ``ReadOnly`` with ``writes=False``,
        ``StoreError`` where the log cannot be written; what is wrong with single files is in the report.
        """
        batches.refuse(self._door.engine, "a mirror's sync")
        if not self._rounds.writes:
            raise ReadOnly("this mirror was opened with writes=False; open one that writes, or call check()")
        with self._lock:
            report, is_due = self._round()
            for _ in range(MIRROR_REDO_COUNT_MAX):
                if not is_due or report.problems:
                    break
                following, is_due = self._round()
                report = join_reports(report, following)
        self._tell(report)
        return report

    def check(self) -> MirrorReport:
        """Return what ``sync`` would do, without doing any of it."""
        batches.refuse(self._door.engine, "a mirror's check")
        with self._lock:
            self._check_open()
            return self._rounds.check()

    def wait(self, seq: int | None = None, timeout_seconds: float | None = None) -> bool:
        """Wait until the files were held against a state at ``seq`` or later, by default the last one; return whether.

        It ends early when the mirror does.
        """
        wanted = self._door.engine.current_head() if seq is None else checks.count(seq, "seq")
        self._ring()
        with self._told:
            self._told.wait_for(lambda: self.seq >= wanted or not self.is_alive, timeout_seconds)
        return self.seq >= wanted

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the mirror has ended, and return whether it has: it was closed, its memory was, or it failed."""
        until = None if timeout_seconds is None else time.monotonic() + timeout_seconds
        while self._thread is not None and not self._thread.is_over:
            if until is not None and time.monotonic() >= until:
                return False
            time.sleep(POLL_MS / 1_000)
        return True

    def close(self) -> None:
        """Do a last round and let go of the directory; a second call does nothing.

        Raises ``StoreError`` where that round could not be done; the directory is let go of all the same.
        """
        with self._lock:
            if self._is_ended:
                return
            try:
                if self._rounds.writes and self.is_alive:
                    self.sync()
            finally:
                self._end()
        if self._following is not None:
            self._following.close()
        self.join()

    def _end(self) -> None:
        self._is_ended = True
        try:
            self._tell(MirrorReport(self.seq, conflicts=self._rounds.close()))
        finally:
            self._bell.set()

    def _check_open(self) -> None:
        if self._is_ended:
            raise Closed(f"this mirror of {self.path} is closed; open another one with memory.mirror(directory)")
        self._door.engine.check_open()

    def _round(self, **options: Any) -> tuple[MirrorReport, bool]:
        """Do a round; return what it came to, and whether another one is due."""
        self._check_open()
        self._is_due, is_due = False, True  # Lowered before: who rings meanwhile wants another one.
        try:
            report, is_due = self._rounds.run(**options)
        finally:
            if is_due:
                self._is_due = True
        if not is_due:
            self.seq = report.seq
        return report, is_due

    def _tell(self, report: MirrorReport) -> None:
        """Hand out a report that has something to tell, and wake who waits."""
        is_new = bool(report) and (report.has_changed or report.problems != getattr(self, "report", report).problems)
        if is_new or not hasattr(self, "report"):
            self.report = report
        with self._told:
            self._told.notify_all()
        if is_new and self._on_report is not None:
            self._on_report(report)

    # What the thread does.

    def _hear(self, recorded: "Recorded") -> None:
        """Ring when an event may concern the files."""
        if isinstance(recorded.event, Erased) or recorded.stamp.stream in self._rounds.streams:
            self._ring()

    def _ring(self) -> None:
        self._is_due = True
        self._bell.set()

    def _run(self) -> None:
        try:
            while not (self._is_ended or self._door.engine.is_closed):
                self._bell.wait(_POLL_SECONDS)
                self._bell.clear()
                with self._lock:
                    if not self._is_ended:
                        self._look()
        except Closed:
            pass  # The memory was closed before its mirror.
        except BaseException as error:  # noqa: BLE001 - those who rely on the files are told why nothing comes
            self.error = error
            _report_failure(error)
        with self._lock:
            if not self._is_ended:
                self._end()

    def _look(self) -> None:
        """Look at the files, and do a round if one of them or the log has changed."""
        try:
            report = self._look_once()
        except Closed:
            raise
        except RefoldError as error:
            report = MirrorReport(self.seq, problems=(MirrorProblem("", str(error)),))
        if report is not None:
            self._tell(report)

    def _look_once(self) -> MirrorReport | None:
        now, seen = self._rounds.tree.walk(), self._rounds.seen
        changed = {name for name in now.keys() | seen.keys() if now.get(name) != seen.get(name, (None, ""))[0]}
        moving = {name for name in changed if now.get(name) != self._last.get(name)}
        hot, self._hot, self._last = self._hot, changed, now
        # A fork does not hear of erasures, which are events of the whole store.
        is_elsewhere = bool(self._door.branch) and self._door.engine.current_head() != self.seq
        if not (self._is_due or changed - moving or hot or is_elsewhere):
            return None
        return self._round(trusted=now.keys() - changed - hot, skipped=moving)[0]


def join_reports(first: MirrorReport, second: MirrorReport) -> MirrorReport:
    """Return two rounds as one; problems are those of the second."""
    return MirrorReport(
        seq=second.seq,
        written=tuple(dict.fromkeys((*first.written, *second.written))),
        edits=(*first.edits, *second.edits),
        conflicts=(*first.conflicts, *second.conflicts),
        problems=second.problems,
    )


def _report_failure(error: BaseException) -> None:
    """Say in the log of the program that the files are not kept in step any more."""
    import logging  # noqa: PLC0415 - only a failure needs it

    with suppress(Exception):
        logging.getLogger("refold").error("a mirror failed; its files do not follow the log any more", exc_info=error)


def mirror_of(
    memory: "Memory",
    door: Door,
    directory: "str | os.PathLike[str]",
    *,
    profile: str = "default",
    journal: str = "default",
    edits: str = "take",
    writes: bool = True,
    on_report: Callable[[MirrorReport], Any] | None = None,
) -> Mirror:
    """Return a mirror of a profile and a journal in a directory, in step with the log; it is created if need be.

    ``edits="leave"``, which is what a read-only memory does, takes nothing: a file that was edited is reported and left
    as it is. With ``writes=False`` it does nothing but ``check``, and holds nothing. ``on_report`` is called with every
    report that has something to tell. Raises ``NotFound`` for a missing parent directory, ``StoreBusy`` while another
    mirror holds it, ``InvalidInput`` for the directory of another memory, ``StoreError`` where it cannot be written.
    """
    names = checks.name(profile, "profile"), checks.name(journal, "journal")
    if edits not in {"take", "leave"}:
        raise InvalidInput(f"edits is {checks.shown(edits)}; give 'take', or 'leave' for a mirror that only follows")
    door.engine.check_open()
    takes = edits == "take" and not (writes and door.engine.log.readonly)
    path = checked_path(directory, "directory")
    rounds = Rounds(memory, door, path, names, takes=takes, writes=checks.flag(writes, "writes"))
    try:
        return Mirror(memory, door, rounds, on_report)
    except BaseException:
        rounds.close()
        raise
