"""A profile and a journal as files, kept in step with the log, round by round, while their mirror is open.

The mirror's thread is woken by the log and checks the files from time to time. It takes no lock that a writer of the
log waits for, except for the moments in which it copies the profile and the notes out of the state.
"""

import os
import threading
import time
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager, suppress
from contextvars import Context
from functools import partial
from typing import Any, Final, Self

from msgspec.structs import replace

from refold import checks
from refold.engine import batch as batches
from refold.engine.streams import STORE_STREAM
from refold.engine.subscriptions import Subscription
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
from refold.event import Erased, Recorded
from refold.limits import MIRROR_FILE_BYTES_MAX, MIRROR_POLL_MS, MIRROR_RECENT_COUNT_MAX, MIRROR_REDO_COUNT_MAX, POLL_MS
from refold.memory.core import Core
from refold.memory.memory import Memory
from refold.memory.options import check_path
from refold.mirror.files import CONFLICT, PROFILE_FILE, STATE_FILE, FileContent, FileVersion, MirrorDirectory
from refold.mirror.merge import (
    FileHistory,
    FilePlan,
    LogState,
    MirrorConflict,
    MirrorProblem,
    MirrorReport,
    MirrorState,
    Owner,
    PageBase,
    base_of_content,
    base_of_day,
    base_of_edits,
    base_of_profile,
    digest,
    edit_digest,
    file_of,
    hand_side,
    has_commit,
    plan_file,
    profile_change,
    state_of,
)
from refold.mirror.notes import note_digest
from refold.threads import LOOK_SECONDS, Bell, Worker
from refold.views.profile import JOURNAL, PROFILE
from refold.views.store import SETTINGS

# One round of a mirror: it looks at files and log, takes edits as events, and writes files.
#
# Because of the order, a crash at any moment loses nothing. First, an edit that the log does not take is copied next to
# its file. Then the edits are one commit, durable before anything is overwritten. Then the state records the old and
# the new content of each file; then files are replaced; then the state records the new contents alone.

_LATE: Final = "it was written to while it was being replaced"
_LEFTOVER: Final = "a crash left it next to the file"
_STRAY: Final = "is no day's file by its name or its place, and is not read; one of a day is YYYYMM/YYYYMMDD.md"
_LEAVES: Final = "was edited by hand, and this mirror takes no edits; `refold mirror` takes them"


@contextmanager
def _collect(name: str, problems: list[MirrorProblem]) -> Generator[None]:
    try:
        yield
    except StoreError as error:
        problems.append(MirrorProblem(name, str(error)))


class LogReader:
    """Reads the durable state of the log, and caches the base of each file as long as its notes stay the same."""

    def __init__(self, core: Core, profile: str, journal: str) -> None:
        self._core = core
        self._streams = (profile, journal)
        self._bases: dict[str, tuple[tuple[int, ...], PageBase]] = {}

    def read(self) -> LogState:
        """Return the log's side as it is now, or as it is on the disk if the log delays its writes."""
        engine = self._core.engine
        engine.reader.check_open()
        seq = engine.reader.current_head()
        state = self._read(seq, None)
        head = engine.reader.head
        durable = engine.reader.log.durability.durable_until(head)
        return state if durable == head else self._read(durable, durable)

    def _read(self, seq: int, at: int | None) -> LogState:
        profile, journal = self._streams
        erased_count = len(self.erased_seqs(at))
        facts = self._core.read_written(profile, lambda state: dict(state.part(PROFILE).entries.values), at)
        pages: dict[str, list[tuple[int, Any]]] = self._core.read_written(
            journal, lambda state: {day: list(notes) for day, notes in state.part(JOURNAL).days.items()}, at
        )
        names = {day: file_of(day) for day in pages}
        days = {
            name: tuple((seq, note.text) for seq, note in pages[day]) for day, name in names.items() if name is not None
        }
        if len(self.erased_seqs(at)) != erased_count:
            return self._read(seq, at)  # It is unknown which of these are in the data that was read.
        nameless = tuple(day for day, name in names.items() if name is None)
        return LogState(seq, facts, {name: notes for name, notes in days.items() if notes}, nameless, erased_count)

    def erased_seqs(self, at: int | None = None) -> list[int]:
        """Return the seqs of all erased events of the store, in the order of their erasure."""
        return self._core.engine.reader.read(STORE_STREAM, lambda state: list(state.part(SETTINGS).erased), at)

    def base(self, state: LogState, name: str) -> PageBase | None:
        """Return the base that a file would have if the log wrote it; ``None`` if it should not exist."""
        if name == PROFILE_FILE:
            return base_of_profile(state.facts)
        notes = state.days.get(name)
        if not notes:
            self._bases.pop(name, None)
            return None
        seqs = tuple(seq for seq, _ in notes)
        cached = self._bases.get(name)
        if cached is None or cached[0] != seqs:
            content = state.content(name)
            assert content is not None, name
            cached = self._bases[name] = (seqs, base_of_day(content, (note_digest(text) for _, text in notes)))
        return cached[1]


class _LogConflict(Exception):
    """The log changed while a round was being decided."""


class Rounds:
    """The rounds of one mirror: the directory, the log's side, and the record of the files."""

    def __init__(
        self, memory: Memory, core: Core, path: str, names: tuple[str, str], *, takes: bool, writes: bool
    ) -> None:
        self._memory = memory
        self._core = core
        self._profile, self._journal = names
        self._takes = takes
        self.writes = writes
        self.streams = f"profile/{self._profile}", f"journal/{self._journal}"
        self._log = LogReader(core, *self.streams)
        self.directory = MirrorDirectory(path, locks=writes)
        try:
            owner = Owner(core.engine.reader.store_id.hex(), core.branch, *names)
            self._stored = self.directory.read_state()
            state = state_of(self._stored, owner, self.directory.path)
            # Without a record, it is unknown which copies an earlier erasure reached.
            count = len(self._log.erased_seqs())
            self._state = state or MirrorState(owner, erased_count=count, copies_erased_count=count)
            self._conflicts: list[MirrorConflict] = []
            """Conflicts outside of rounds, which the next round reports."""
            for name, content in self.directory.leftovers() if writes else ():
                if digest(content) not in {base.digest for base in self._state.bases_of(name)}:
                    copy = self.directory.copy(name, content)
                    self._conflicts.append(MirrorConflict(name, "", None, None, copy, _LEFTOVER))
        except BaseException:
            self.directory.close()
            raise
        self._erased_count = -1  # The number of erased events when the copies were last checked.
        self._erased_bases: dict[str, list[PageBase]] = {}
        """The bases of the files that an erasure reached, from before the erasure."""
        self._problems: list[MirrorProblem] = []  # Copies that could not be deleted.
        self.seen: dict[str, tuple[FileVersion | None, str]] = {}
        """The version of each file when it was last seen, and its digest; empty for a file that could not be read."""

    def strays(self) -> tuple[MirrorProblem, ...]:
        """Return the problems of files that look like days but are not, and that no round reads."""
        return tuple(MirrorProblem(name, _STRAY) for name in self.directory.strays)

    def close(self) -> tuple[MirrorConflict, ...]:
        """Release the directory; return the conflicts of files that were written to while they were replaced."""
        try:
            self._copy_late_changes()
            return tuple(self._conflicts)
        finally:
            self.directory.close()

    # A round.

    def check(self) -> MirrorReport:
        """Return the report of a round without running it."""
        log = self._log.read()
        plans = self._plans(log, self.directory.walk(), ())
        return self._report(log, plans, [plan.name for plan in plans if self._is_behind(log, plan)])

    def run(self, trusted: Collection[str] = (), skipped: Collection[str] = ()) -> tuple[MirrorReport, bool]:
        """Run a round; return its report, and whether something changed meanwhile, so that another one is due.

        Files in ``trusted`` are as they were when last seen, and are read only if necessary; files in ``skipped`` are
        left alone. Raises ``StoreError`` if the log cannot be written.
        """
        deleted: list[str] = []
        for _ in range(MIRROR_REDO_COUNT_MAX):
            log = self._log.read()
            self._copy_late_changes()
            names = self.directory.walk()
            deleted += self._forget(log)
            plans = [plan for plan in self._plans(log, names, trusted) if plan.name not in skipped]
            self._copy_conflicts(plans)
            try:
                has_taken = self._take(plans, log)
            except _LogConflict:
                continue
            if has_taken:
                log = self._log.read()
                deleted += self._forget(log)
                known = {*names, *skipped, *(plan.name for plan in plans)}
                plans += [
                    # Days that began meanwhile, and for which no user has created a file.
                    FilePlan(name, FileContent(None), None)
                    for name in sorted(log.names - known)
                    if self.directory.read(name) == FileContent(None)
                ]
            report, is_whole = self._write(log, plans)
            report = replace(report, conflicts=(*self._conflicts, *report.conflicts), deleted=tuple(deleted))
            self._conflicts = []
            # Files that were left out may lack recent writes of the log.
            return report, has_taken or bool(skipped) or not is_whole
        raise StoreBusy(
            f"{self.directory.path}: the log moved {MIRROR_REDO_COUNT_MAX} times while edits were taken; try again"
        )

    def _copy_late_changes(self) -> None:
        for replaced in self.directory.replaced:
            if replaced.name in self._erased_bases:
                # Its content until now is in the log or in a copy, and may be the erased text.
                base = base_of_content(replaced.name, replaced.content)
                replaced.erased = [*(replaced.erased or ()), *self._erased_bases[replaced.name], base]
        for replaced, content in self.directory.late_changes():
            name, before = replaced.name, replaced.content
            hand = content if replaced.erased is None else hand_side(name, content, replaced.erased)
            copy = self.directory.copy(name, hand) if hand else ""
            if copy and replaced.copy not in {"", copy} and content.startswith(before):
                self.directory.supersede_copy(replaced.copy)
            replaced.copy = copy
            self._conflicts.append(MirrorConflict(name, "", None, None, copy, _LATE))

    def _forget(self, log: LogState) -> list[str]:
        """Delete the copies of files that an erasure reached since the last round; return their names.

        A copy has texts of the log next to those of a user, and once they are erased, it is unknown which is which.
        """
        state = self._state
        if state.erased_count == state.copies_erased_count == log.erased_count:
            self._erased_count, self._erased_bases = log.erased_count, {}
            return []
        if self._erased_count == log.erased_count and not self._problems:
            return []
        reached = self._erasure_flags(state.erased_count)
        # Also of files from which a round took edits before it was interrupted: the edits are in the log, and may be
        # erased there.
        pending = (state.taking, state.taken)
        files = {*state.files, *state.coming, *state.taking, *state.taken}
        files.update(replaced.name for replaced in self.directory.replaced)
        self._erased_bases = {
            name: [*state.bases_of(name), *(bases[name] for bases in pending if name in bases)]
            for name in files
            if reached[name != PROFILE_FILE]
        }
        self._erased_count, self._problems = log.erased_count, []
        reached = self._erasure_flags(state.copies_erased_count)
        deleted: list[str] = []
        for copy in self.directory.copies():
            if reached[copy.partition(CONFLICT)[0] != PROFILE_FILE]:
                with _collect(copy, self._problems):
                    self.directory.delete_copy(copy)
                    deleted.append(copy)
        if not self._problems:
            # Before this round writes new ones, which stay even if it is interrupted.
            state.copies_erased_count = log.erased_count
            self._store()
        return deleted

    def _erasure_flags(self, erased_count: int) -> list[bool]:
        erased = set(self._log.erased_seqs()[erased_count:])
        streams = {stamp.stream for _, stamp in self._memory.events() if stamp.seq in erased} if erased else set[str]()
        return [stream in streams for stream in self.streams]

    def _plans(self, log: LogState, versions: Mapping[str, FileVersion], trusted: Collection[str]) -> list[FilePlan]:
        # Find out whether the log got the edits of an interrupted round.
        state = self._state
        recorded = self._memory.events(after=state.taking_after) if state.taking else ()
        if has_commit(state.taking_edits, recorded, self.streams[1]):
            for name, base in state.taking.items():
                taken = state.taken.get(name, PageBase(""))
                state.taken[name] = PageBase("", facts=taken.facts | base.facts, notes=(*taken.notes, *base.notes))
        state.taking, state.taking_edits = {}, ()
        plans = [self._plan(log, name, versions.get(name), trusted) for name in sorted({*versions, *log.names})]
        return [plan for plan in plans if plan is not None]

    def _plan(self, log: LogState, name: str, version: FileVersion | None, trusted: Collection[str]) -> FilePlan | None:
        log_base = self._log.base(log, name)
        if name in trusted and log_base is not None and self.seen.get(name) == (version, log_base.digest):
            return None
        bases = self._state.bases_of(name)
        # A file that the mirror wrote itself may be larger than those that it takes from a user.
        sizes = [base.size for base in (log_base, *bases) if base is not None]
        read = self.directory.read(name, max(MIRROR_FILE_BYTES_MAX, *sizes, 0))
        taken = self._state.taken.get(name, PageBase(""))
        past = FileHistory(bases, taken, self._state.recent, name in self._erased_bases)
        plan = plan_file(name, read, log, log_base, past)
        self.seen[name] = (read.version, "" if plan.problem else digest(read.content))
        if plan.is_edited and not self._takes:
            return FilePlan(name, read, None, problem=_LEAVES)
        return plan

    def _is_behind(self, log: LogState, plan: FilePlan) -> bool:
        if plan.problem:
            return False
        base = self._log.base(log, plan.name)
        if base is None:
            # A file that a user has just begun, and that says nothing yet, is the user's own.
            return plan.read.version is not None and self._is_known(plan.name)
        return plan.read.version is None or digest(plan.read.content) != base.digest

    def _is_known(self, name: str) -> bool:
        return bool(self._state.bases_of(name)) or name in self._state.taken

    # The user's changes.

    def _copy_conflicts(self, plans: Iterable[FilePlan]) -> None:
        for plan in plans:
            if plan.conflicts and plan.copy:
                try:
                    copy = self.directory.copy(plan.name, plan.copy)
                except StoreError as error:
                    plan.leave(str(error))
                else:
                    plan.conflicts = [replace(conflict, kept=copy) for conflict in plan.conflicts]

    def _take(self, plans: Sequence[FilePlan], log: LogState) -> bool:
        """Append all edits in one commit, durable when this returns; return whether there were any.

        Raises ``_LogConflict`` if the log is no longer the one with which they were compared.
        """
        edits = [edit for plan in plans for edit in plan.edits]
        if not edits:
            return False
        edited = [plan for plan in plans if plan.edits]
        self._state.taking = {plan.name: base_of_edits(plan.edits, plan.read.content) for plan in edited}
        self._state.taking_edits = tuple(map(edit_digest, edits))
        self._state.taking_after = self._core.engine.reader.current_head()
        self._store()
        try:
            with self._memory.acting("mirror"), self._memory.batch():
                profile, journal = self._memory.profile(self._profile), self._memory.journal(self._journal)
                for edit in edits:
                    if edit.kind == "append":
                        journal.append(edit.text or "", day=edit.name)
                    elif profile.get(edit.name) != log.facts.get(edit.name):  # The commit checks this read again.
                        raise _LogConflict
                    elif edit.text is None:
                        profile.delete(edit.name)
                    else:
                        profile.set(edit.name, edit.text)
        except WrongVersion as error:
            raise _LogConflict from error
        except (InvalidInput, LimitExceeded) as error:
            for plan in edited:
                plan.leave(f"cannot be taken: {error}")
        self._core.engine.reader.log.durability.flush()
        return True

    # Files.

    def _write(self, log: LogState, plans: Sequence[FilePlan]) -> tuple[MirrorReport, bool]:
        """Write the files that are behind; return the report, and whether nothing changed meanwhile."""
        behind = [plan for plan in plans if self._is_behind(log, plan)]
        written: list[str] = []
        problems: list[MirrorProblem] = []
        with _collect(STATE_FILE, problems):
            self._announce(log, plans, behind)
            for plan in behind:
                with _collect(plan.name, problems):
                    if self._place(log, plan):
                        written.append(plan.name)
            self._conclude(log, written)
        report = self._report(log, plans, written)
        problems += self._problems
        return replace(report, problems=(*report.problems, *problems)), not problems and len(written) == len(behind)

    def _announce(self, log: LogState, plans: Iterable[FilePlan], behind: Collection[FilePlan]) -> None:
        state = self._state
        bases = {plan.name: self._log.base(log, plan.name) for plan in behind}
        for plan in plans:
            if plan.name == PROFILE_FILE:
                # Recorded to recognize an older copy of the profile when it is saved.
                pages = state.files.get(PROFILE_FILE), plan.base, bases.get(plan.name)
                for is_written, before, after in ((False, *pages[:2]), (True, *pages[1:])):
                    if before is not None and after is not None and before.facts != after.facts:
                        state.recent.append(profile_change(before.facts, after.facts, is_written=is_written))
                state.recent = state.recent[-MIRROR_RECENT_COUNT_MAX:]
            if plan.base is not None and (self._is_known(plan.name) or plan.name in log.names):
                state.files[plan.name] = plan.base
        state.taking, state.taking_edits, state.taken = {}, (), {}
        state.coming = {name: base for name, base in bases.items() if base is not None}
        if behind:
            self._store()

    def _place(self, log: LogState, plan: FilePlan) -> bool:
        content = log.content(plan.name)
        if content is None:
            self.seen.pop(plan.name, None)
            return self.directory.remove(plan.name, plan.read)
        version = self.directory.replace(plan.name, content, plan.read)
        if version is not None:
            self.seen[plan.name] = (version, digest(content))
        return version is not None

    def _conclude(self, log: LogState, written: Collection[str]) -> None:
        state = self._state
        for name in written:
            base = state.coming.get(name)
            if base is None:
                state.files.pop(name, None)
            else:
                state.files[name] = base
        state.coming = {}
        if written:
            state.seq = log.seq
        if state.erased_count != self._erased_count:
            state.erased_count, state.recent = self._erased_count, []
        self._store()

    def _store(self) -> None:
        content = self._state.to_bytes()
        if content != self._stored:
            self.directory.write_state(content)
            self._stored = content

    def _report(self, log: LogState, plans: Iterable[FilePlan], written: Sequence[str]) -> MirrorReport:
        plans = list(plans)
        return MirrorReport(
            seq=log.seq,
            written=tuple(written),
            edits=tuple(edit for plan in plans for edit in plan.edits),
            conflicts=tuple(conflict for plan in plans for conflict in plan.conflicts),
            problems=(
                *(MirrorProblem(plan.name, plan.problem) for plan in plans if plan.problem),
                *(MirrorProblem("", f"the journal has a day {day!r} that names no file") for day in log.nameless),
            ),
        )


_POLL_SECONDS: Final = MIRROR_POLL_MS / 1_000


class Mirror:
    """A directory whose files are a profile and a journal: ``profile.json`` and ``YYYYMM/YYYYMMDD.md``.

    While it is open, the files follow the log, and edits by hand become events. ``sync`` runs a round at once and
    returns its report; ``check`` reports what it would do; ``close`` runs a last one.

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
        *("error", "path", "report", "seq"),
        *("_bell", "_core", "_hot", "_is_due", "_is_ended", "_last", "_lock", "_on_report", "_rounds"),
        *("_subscription", "_thread"),
    )

    def __init__(
        self, memory: Memory, core: Core, rounds: Rounds, on_report: Callable[[MirrorReport], Any] | None
    ) -> None:
        self.path = rounds.directory.path
        self.error: BaseException | None = None
        """The error that ended the thread, ``None`` while it lives and after ``close``."""
        self.seq = 0  # The seq of the state with which the files were last compared.
        self.report = MirrorReport(0)  # The last report that is not empty, or the first one.
        self._core = core
        self._rounds = rounds
        self._on_report = on_report
        self._lock = threading.RLock()  # Held during a round.
        self._bell = Bell()
        self._is_due = True  # Whether a round is due, even if no file has changed.
        self._is_ended = False
        self._last: dict[str, FileVersion] = {}
        self._hot: set[str] = set()
        """Files that changed a moment ago: a second change within one tick of the disk's clock would not show."""
        self._subscription: Subscription | None = None
        self._thread: Worker | None = None
        self.report = self.sync() if rounds.writes else self.check()
        if rounds.writes:
            self._subscription = memory.subscribe(self._on_event, after=self.seq)
            self._thread = Worker(partial(Context().run, self._run), "refold-mirror")
            self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = f"failed: {self.error!r}" if self.error is not None else "closed" if self._is_ended else "open"
        return f"Mirror({self.path!r}, seq={self.seq}, {state})"

    @property
    def is_alive(self) -> bool:
        """Whether the mirror keeps files and log in step."""
        return not (self._is_ended or self.error or self._core.engine.reader.is_closed)

    def sync(self) -> MirrorReport:
        """Take the edits made by hand, write the log's changes to the files, and return a report.

        Raises ``Closed`` after ``close``, ``InvalidInput`` inside a batch, ``ReadOnly`` with ``writes=False``,
        ``StoreError`` if the log cannot be written; problems of single files are in the report.
        """
        batches.check_no_batch(self._core.engine, "a mirror's sync")
        if not self._rounds.writes:
            raise ReadOnly("this mirror was opened with writes=False; open one that writes, or call check()")
        with self._lock:
            report, is_due = self._round()
            for _ in range(MIRROR_REDO_COUNT_MAX):
                if not is_due or report.problems:
                    break
                following, is_due = self._round()
                report = _join(report, following)
        return self._publish_with_strays(report)

    def check(self) -> MirrorReport:
        """Return the changes that ``sync`` would make, without making them."""
        batches.check_no_batch(self._core.engine, "a mirror's check")
        with self._lock:
            self._check_open()
            report = self._rounds.check()
            return replace(report, problems=(*report.problems, *self._rounds.strays()))

    def wait(self, seq: int | None = None, timeout_seconds: float | None = None) -> bool:
        """Wait until the files were compared with a state at ``seq`` or later, by default the head; return whether.

        It returns early if the mirror ends.
        """
        seq = self._core.engine.reader.current_head() if seq is None else checks.count(seq, "seq")
        self._ring()
        self._wait_until(lambda: self.seq >= seq or not self.is_alive, timeout_seconds)
        return self.seq >= seq

    def join(self, timeout_seconds: float | None = None) -> bool:
        """Wait until the mirror has ended, and return whether it has: it or its memory was closed, or it failed."""
        return self._wait_until(lambda: self._thread is None or self._thread.is_over, timeout_seconds)

    @staticmethod
    def _wait_until(is_so: Callable[[], bool], timeout_seconds: float | None) -> bool:
        seconds = checks.wait_seconds(timeout_seconds, "timeout_seconds")
        until = None if seconds is None else time.monotonic() + seconds
        pause = LOOK_SECONDS
        while not is_so():
            if until is not None and time.monotonic() >= until:
                return False
            time.sleep(pause)
            pause = min(2 * pause, POLL_MS / 1_000)
        return True

    def close(self) -> None:
        """Run a last round and release the directory; a second call does nothing.

        Raises ``StoreError`` if that round failed; the directory is released in any case.
        """
        with self._lock:
            if self._is_ended:
                return
            try:
                if self._rounds.writes and self.is_alive:
                    self.sync()
            finally:
                self._end()
        if self._subscription is not None:
            self._subscription.close()
        self.join()

    def _end(self) -> None:
        self._is_ended = True
        try:
            self._publish(MirrorReport(self.seq, conflicts=self._rounds.close()))
        finally:
            self._bell.ring()

    def _check_open(self) -> None:
        if self._is_ended:
            raise Closed(f"this mirror of {self.path} is closed; open another one with memory.mirror(directory)")
        self._core.engine.reader.check_open()

    def _round(self, **options: Any) -> tuple[MirrorReport, bool]:
        """Run a round; return its report, and whether another one is due."""
        self._check_open()
        self._is_due, is_due = False, True  # Reset before the round, because a ring during it asks for another one.
        try:
            report, is_due = self._rounds.run(**options)
        finally:
            if is_due:
                self._is_due = True
        if not is_due:
            self.seq = report.seq
        return report, is_due

    def _publish_with_strays(self, report: MirrorReport) -> MirrorReport:
        """Add the files that only look like days to a report, publish the report if it is new, and return it."""
        report = replace(report, problems=(*report.problems, *self._rounds.strays()))
        self._publish(report)
        return report

    def _publish(self, report: MirrorReport) -> None:
        is_new = bool(report) and (report.has_changed or report.problems != self.report.problems)
        if is_new:
            self.report = report
        if is_new and self._on_report is not None:
            self._on_report(report)

    # The thread.

    def _on_event(self, recorded: Recorded) -> None:
        if isinstance(recorded.event, Erased) or recorded.stamp.stream in self._rounds.streams:
            self._ring()

    def _ring(self) -> None:
        self._is_due = True
        self._bell.ring()

    def _run(self) -> None:
        try:
            while not (self._is_ended or self._core.engine.reader.is_closed):
                self._bell.wait(_POLL_SECONDS)
                with self._lock:
                    if not self._is_ended:
                        self._poll()
        except Closed:
            pass  # The memory was closed before its mirror.
        except BaseException as error:
            import logging  # noqa: PLC0415 - only a failure needs it

            self.error = error
            with suppress(Exception):
                logging.getLogger("refold").exception("a mirror failed; its files do not follow the log any more")
        with self._lock:
            if not self._is_ended:
                self._end()

    def _poll(self) -> None:
        """Run a round if a file or the log has changed."""
        try:
            now, seen = self._rounds.directory.walk(), self._rounds.seen
            changed = {name for name in now.keys() | seen.keys() if now.get(name) != seen.get(name, (None, ""))[0]}
            moving = {name for name in changed if now.get(name) != self._last.get(name)}
            hot, self._hot, self._last = self._hot, changed, now
            # A fork is not notified of erasures, which are events of the whole store.
            is_elsewhere = bool(self._core.branch) and self._core.engine.reader.current_head() != self.seq
            has_late = self._rounds.directory.has_late_changes()
            are_reported = set(self._rounds.strays()).issubset(self.report.problems)
            if are_reported and not (self._is_due or changed - moving or hot or is_elsewhere or has_late):
                return
            report, _ = self._round(trusted=now.keys() - changed - hot, skipped=moving)
        except Closed:
            raise
        except RefoldError as error:
            report = MirrorReport(self.seq, problems=(MirrorProblem("", str(error)),))
        self._publish_with_strays(report)


def _join(first: MirrorReport, second: MirrorReport) -> MirrorReport:
    """Combine the reports of two rounds; the problems are those of the second."""
    return MirrorReport(
        seq=second.seq,
        written=tuple(dict.fromkeys((*first.written, *second.written))),
        edits=(*first.edits, *second.edits),
        conflicts=(*first.conflicts, *second.conflicts),
        problems=second.problems,
        deleted=(*first.deleted, *second.deleted),
    )


def mirror_of(
    memory: Memory,
    core: Core,
    directory: "str | os.PathLike[str]",
    *,
    profile: str = "default",
    journal: str = "default",
    edits: str = "take",
    writes: bool = True,
    on_report: Callable[[MirrorReport], Any] | None = None,
) -> Mirror:
    """Mirror a profile and a journal in a directory, which is created if necessary.

    ``edits="leave"``, which also applies to a read-only memory, takes nothing: an edited file is reported and left as
    it is. With ``writes=False`` the mirror does nothing but ``check``, and takes no lock. ``on_report`` is called with
    every report that is not empty. Raises ``NotFound`` for a missing parent directory, ``StoreBusy`` while another
    mirror holds the directory, ``InvalidInput`` for the directory of another memory, ``StoreError`` if it cannot be
    written.
    """
    names = checks.name(profile, "profile"), checks.name(journal, "journal")
    if edits not in {"take", "leave"}:
        raise InvalidInput(f"edits is {checks.brief(edits)}; give 'take', or 'leave' for a mirror that only follows")
    core.engine.reader.check_open()
    takes = edits == "take" and not (writes and core.engine.reader.log.readonly)
    path = check_path(directory, "directory")
    rounds = Rounds(memory, core, path, names, takes=takes, writes=checks.flag(writes, "writes"))
    try:
        return Mirror(memory, core, rounds, on_report)
    except BaseException:
        rounds.close()
        raise
