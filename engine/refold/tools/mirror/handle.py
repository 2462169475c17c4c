"""``memory.mirror(directory)``: the handle that keeps files and log in step while it is open, on a thread of its own.

The thread is woken by the log and looks at the files now and then. It takes no lock that a writer of the log waits for,
but for the moments in which it copies the profile and the notes out of the state.
"""

import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from contextvars import Context
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from refold import checks
from refold.engine import batch as batches
from refold.errors import Closed, InvalidInput, ReadOnly, RefoldError
from refold.event import Erased
from refold.limits import POLL_MS
from refold.memory.arguments import checked_path
from refold.memory.door import Door
from refold.store.mirror_files import Seen
from refold.store.threads import Worker
from refold.tools.mirror.limits import MIRROR_POLL_MS, MIRROR_REDO_COUNT_MAX
from refold.tools.mirror.reports import MirrorProblem, MirrorReport
from refold.tools.mirror.rounds import Rounds

if TYPE_CHECKING:
    from refold.engine.loader import Recorded
    from refold.engine.subscriptions import Subscription
    from refold.memory.memory import Memory

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
            message = "this mirror was opened with writes=False; open one that writes, or call check()"
            raise ReadOnly(message)
        with self._lock:
            report, is_due = self._round()
            for _ in range(MIRROR_REDO_COUNT_MAX):
                if not is_due or report.problems:
                    break
                following, is_due = self._round()
                report = joined(report, following)
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
            message = f"this mirror of {self.path} is closed; open another one with memory.mirror(directory)"
            raise Closed(message)
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


def joined(first: MirrorReport, second: MirrorReport) -> MirrorReport:
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
        message = f"edits is {checks.shown(edits)}; give 'take', or 'leave' for a mirror that only follows"
        raise InvalidInput(message)
    door.engine.check_open()
    takes = edits == "take" and not (writes and door.engine.log.readonly)
    path = checked_path(directory, "directory")
    rounds = Rounds(memory, door, path, names, takes=takes, writes=checks.flag(writes, "writes"))
    try:
        return Mirror(memory, door, rounds, on_report)
    except BaseException:
        rounds.close()
        raise
