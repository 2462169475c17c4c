"""The checks of `refold doctor`: a table of functions, each returning a result and the next step.

They change nothing and take no lock, so they can run on any store in any state.
"""

import os
import shutil
import time
from collections.abc import Callable, Sequence
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from struct import error as StructError  # noqa: N812 - struct's exception has a lowercase name
from typing import Final, NamedTuple, TypeVar

import msgspec

from refold import fold
from refold.cli import EXIT_ERROR, EXIT_INTEGRITY
from refold.cli.root import fixed_options
from refold.engine.manifest import MANIFEST_FILE, read_manifest
from refold.engine.reader import STORE_ID_KEY, TAGS_KEY, warning_of_clock
from refold.engine.streams import APPLIED_KEY
from refold.engine.verify import has_store_traces
from refold.errors import InvalidInput, StoreError
from refold.limits import (
    BALLAST_BYTES_MIN,
    DISK_BYTES_MIN,
    FREE_BYTES_MAX,
    MAP_BYTES,
    OPEN_FILES_MIN,
    READER_COUNT_MAX,
    READERS_MAX,
    TAIL_EVENTS_MAX,
    VALUE_BYTES_MAX,
)
from refold.log import inspect
from refold.log.ballast import bytes_to_reserve, reserved_bytes
from refold.log.commits import Check, hide_password, is_address
from refold.log.directory import holds_store
from refold.log.inspect import StoreFacts
from refold.log.lmdb_file import CLEAN, DATA_FILE
from refold.log.protocol import Table
from refold.log.record import FORMAT, SEQ, Record
from refold.log.replica import connect

OK: Final = "ok"
WARN: Final = "warn"
BAD: Final = "bad"

_Subject = TypeVar("_Subject")
_NETWORK: Final = frozenset(
    ("9p", "afs", "ceph", "cifs", "fuse.glusterfs", "fuse.s3fs", "fuse.sshfs", "gfs2", "lustre", "nfs", "nfs4", "smb3")
)
RESTORE: Final = "restore a backup with `refold recover BACKUP NEW`"
_REBUILT: Final = (
    "run `refold verify`; if the log is sound, `refold recover STORE NEW` rebuilds everything else from it"
)
_COMPILERS: Final = ("c++", "g++", "clang++")
_MIB: Final = 1024 * 1024


class CheckResult(NamedTuple):
    """The result of a check: `ok`, `warn` or `bad`, a message, and the next step, if any."""

    state: str
    message: str
    next_step: str = ""


_ok: Final = partial(CheckResult, OK)
_warn: Final = partial(CheckResult, WARN)
_bad: Final = partial(CheckResult, BAD)


class Diagnosis(msgspec.Struct, frozen=True):
    """The result of a check, with its name."""

    name: str
    state: str
    message: str
    next_step: str


class Examination(msgspec.Struct, frozen=True):
    """The results of all checks; `ok` is true if none is bad."""

    path: str
    ok: bool
    exit_code: int
    checks: list[Diagnosis]


# Checks from the outside.


def _directory(path: str) -> CheckResult:
    place = Path(path)
    if not place.exists():
        step = "give the path of a store; `refold import FILE --db PATH` or Memory(path) creates one"
        return _bad(f"there is nothing at {path}", step)
    if not place.is_dir():
        return _bad(f"{path} is a file, but a store is a directory", "give the directory of the store")
    if not (place / DATA_FILE).is_file():
        if has_store_traces(path):
            return _bad(f"the {DATA_FILE} of the store at {path} is gone", RESTORE)
        return _bad(f"{path} has no {DATA_FILE}, so it is not a store", "give the directory of the store")
    if not os.access(place / DATA_FILE, os.R_OK):
        return _bad(f"this user cannot read {place / DATA_FILE}", "run this as the user who owns the store")
    is_sealed = not os.access(place / DATA_FILE, os.W_OK)
    return _ok(f"{path} is a directory with {DATA_FILE}{', which this user may only read' if is_sealed else ''}")


def _file_system(path: str) -> CheckResult:
    kind = inspect.file_system(path)
    if kind is None:
        return _ok("this system does not report the type of the file system")
    if kind in _NETWORK:
        step = "move the store to a local disk: memory maps and locks are unreliable over a network"
        return _warn(f"the store is on {kind}, a network file system", step)
    return _ok(f"{kind}, a local file system")


def _disk_space(path: str) -> CheckResult:
    free_bytes = shutil.disk_usage(path).free
    message = f"{_mib(free_bytes)} free"
    if free_bytes < VALUE_BYTES_MAX:
        return _bad(f"{message}, less than a single value can take", "free disk space; reads work meanwhile")
    if free_bytes < DISK_BYTES_MIN:
        return _warn(f"{message}, less than {_mib(DISK_BYTES_MIN)}", "free disk space before writes fail")
    return _ok(message)


def _ballast(path: str) -> CheckResult:
    required = bytes_to_reserve((Path(path) / DATA_FILE).stat().st_size)
    reserved = reserved_bytes(path)
    message = f"{_mib(reserved)} of {_mib(required)} reserved for erasing on a full disk"
    if reserved < min(required, BALLAST_BYTES_MIN):
        if shutil.disk_usage(path).free >= 2 * required:  # A backup, or a store that nobody opened since.
            return _ok(message, "opening the store for writing reserves them")
        step = f"free {_mib(2 * required)} of disk space, then open the store once for writing to reserve them"
        return _warn(message, step)
    return _ok(message)


def _open_files(_: str) -> CheckResult:
    import resource

    limit, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit != resource.RLIM_INFINITY and limit < OPEN_FILES_MIN:
        return _warn(f"a process can open {limit} files", f"raise the limit: `ulimit -n {4 * OPEN_FILES_MIN}`")
    count = "any number of" if limit == resource.RLIM_INFINITY else f"{limit:,}"
    return _ok(f"a process can open {count} files")


def _search(_: str) -> CheckResult:
    if find_spec("hnswlib") is not None:
        return _ok("hnswlib is installed")
    compiler = next(filter(None, map(shutil.which, _COMPILERS)), None)
    if compiler is None:
        step = "nothing needs it yet; to install it with `pip install 'refold[hnsw]'`, install a C++ compiler first"
        return _warn("neither hnswlib nor a C++ compiler is installed", step)
    return _ok(f"hnswlib is not installed; nothing needs it yet, and {compiler} can compile it")


def _writers(path: str) -> CheckResult:
    holders = inspect.holders(path)
    if holders is None:
        return _ok("this system does not report who holds writer.lock")
    if not holders:
        return _ok("no process holds writer.lock: there is no writer")
    processes = ", ".join(str(holder.process) for holder in holders)
    if any(holder.is_alone for holder in holders):
        step = f"to write from here, close the store in process {processes}; reading works meanwhile"
        return _ok(f"process {processes} holds writer.lock alone", step)
    return _ok(f"writer.lock is shared by process {processes}")


def _unfinished(path: str) -> CheckResult:
    sites = inspect.sites(path)
    leftovers = [site.path for site in sites if site.builders == ()]
    if leftovers:
        step = "remove it, or run the same command again, which clears it away"
        return _warn(f"an interrupted creation, backup or recovery has left {', '.join(leftovers)}", step)
    copy = Path(path, CLEAN)
    if copy.is_dir():
        step = "let it finish; if it was interrupted, erase again: opening the store for writing clears this away"
        return _warn(f"an erasure is in progress, or was interrupted and has left {copy}", step)
    if sites:
        places = ", ".join(site.path for site in sites)
        return _ok(f"a store or a backup is being made in {places}", "let it finish")
    return _ok("nothing unfinished beside the store")


# Checks of the files.


def _file(facts: StoreFacts) -> CheckResult:
    if facts.problem:
        message = "the file is damaged"
        if facts.file_bytes < facts.whole_bytes:
            message = f"the file is truncated: it has {facts.file_bytes:,} of {facts.whole_bytes:,} bytes"
        return _bad(f"{message} ({facts.problem})", RESTORE)
    if facts.file_bytes < facts.whole_bytes:
        return _ok(f"the file has {facts.file_bytes:,} bytes, or {facts.whole_bytes:,} with its last free pages")
    return _ok(f"the file has all of its {facts.file_bytes:,} bytes")


def _format(facts: StoreFacts) -> CheckResult:
    try:
        number = None if facts.format is None else msgspec.msgpack.decode(facts.format, type=int)
    except msgspec.DecodeError as error:
        return _bad(f"the format cannot be read ({error})", RESTORE)
    if number is None:
        return _bad("the file names no format, so refold did not write it", "give the directory of a store")
    if number != FORMAT:
        step = (
            "upgrade refold"
            if number > FORMAT
            else "export it with the version of refold that wrote it, and load the export"
        )
        return _bad(f"format {number}, but this refold reads format {FORMAT}", step)
    return _ok(f"format {number}")


def _map(facts: StoreFacts) -> CheckResult:
    message = f"the file uses {_mib(facts.file_bytes)} of a map of {_mib(facts.map_bytes)}"
    if 2 * facts.file_bytes > facts.map_bytes:
        is_limited = facts.map_bytes < MAP_BYTES
        step = "the system grants no more address space: raise `ulimit -v`, or" if is_limited else "before it is full,"
        return _warn(message, f"{step} start a new store")
    return _ok(message)


def _readers(facts: StoreFacts) -> CheckResult:
    stale = sorted({reader.process for reader in facts.readers if not inspect.is_running(reader.process)})
    message = f"{len(facts.readers)} of {READERS_MAX} slots are taken"
    if stale:
        dead = ", ".join(map(str, stale))
        return _warn(f"{message}, some by processes that have ended: {dead}", "open the store once to clear them")
    if 2 * len(facts.readers) > READERS_MAX:
        return _warn(message, "close the store in processes that do not need it")
    return _ok(message)


def _log(facts: StoreFacts) -> CheckResult:
    damaged = f"run `refold verify` to see what was changed, then {RESTORE}"
    if facts.last_record is None:
        return _ok("no events yet")
    key, packed = facts.last_record
    try:
        record = Record(packed)
    except (LookupError, ValueError, StructError) as error:
        return _bad(f"the last record is damaged ({error})", damaged)
    if SEQ.pack(record.last_seq) != key:
        return _bad(f"the last record ends at seq {record.last_seq}, but its key says otherwise", damaged)
    message = f"the head is seq {record.last_seq:,}"
    clock_ns: Callable[[], int] = fixed_options().get("clock_ns", time.time_ns)  # noqa: TID251 - it is not recorded
    if warning := warning_of_clock(record.time_ns, clock_ns()):
        ahead, _, step = warning.partition("; ")
        return _warn(f"{message}; {ahead}", step)
    return _ok(message)


def _tail(facts: StoreFacts) -> CheckResult:
    head = 0 if facts.last_record is None else SEQ.unpack(facts.last_record[0])[0]
    applied = facts.rows[_ROWS.index(("checkpoints", APPLIED_KEY))]
    try:
        tail = head - (SEQ.unpack(applied)[0] if applied else 0)
    except StructError:
        return _bad("the row of the last checkpoint is damaged", _REBUILT)
    if tail < 0:
        return _bad(f"checkpoint rows are marked as reaching {-tail:,} events past the head", _REBUILT)
    message = f"opening scans {tail:,} events"
    if tail > TAIL_EVENTS_MAX:
        step = "open it once for writing and close it, which stores the missing checkpoints"
        return _warn(f"{message}, over {TAIL_EVENTS_MAX = :,}", step)
    return _ok(message)


def _pages(facts: StoreFacts) -> CheckResult:
    free = facts.pages - facts.used_pages
    message = f"{free:,} of {facts.pages:,} pages are free"
    reading = [(reader.transaction, reader.process) for reader in facts.readers if reader.transaction is not None]
    oldest, process = min(reading, default=(facts.transaction, 0))
    behind = facts.transaction - oldest
    if behind > READER_COUNT_MAX:
        step = f"end process {process}: until then the file grows, because pages freed meanwhile cannot be reused"
        return _warn(f"{message}; process {process} started reading {behind:,} commits ago and still is", step)
    if free * facts.page_bytes > FREE_BYTES_MAX and 2 * free > facts.pages:
        return _warn(
            message, "they will be reused; to shrink the file, export the store and load the export into a new one"
        )
    return _ok(message)


def _event_kinds(facts: StoreFacts) -> CheckResult:
    packed = facts.rows[_ROWS.index(("meta", TAGS_KEY))] or b"\x90"
    try:
        tags = msgspec.msgpack.decode(packed, type=list[int])
    except msgspec.DecodeError as error:
        return _bad(f"the list of tags cannot be read ({error})", _REBUILT)
    unknown = [tag for tag in tags if not fold.is_known(tag)]
    if unknown:
        step = "upgrade refold; until then the store opens read-only"
        return _warn(f"the store has events with the tags {unknown}, which this refold does not know", step)
    return _ok(f"all {len(tags)} kinds of events are known")


def _manifest(path: str) -> CheckResult:
    """Check that a backup holds the log that it was made of."""
    manifest = read_manifest(path)
    assert manifest is not None, f"{MANIFEST_FILE} is there"
    facts = inspect.look(path, (("meta", STORE_ID_KEY), ("log", SEQ.pack(manifest.head))))
    manifest.check(path, *facts.rows)
    return _ok(f"it holds the log of its {MANIFEST_FILE}, up to seq {manifest.head:,}")


_ROWS: Final[tuple[tuple[Table, bytes], ...]] = (
    ("checkpoints", APPLIED_KEY),
    ("meta", TAGS_KEY),
)


def _by_name(*functions: Callable[[_Subject], CheckResult]) -> dict[str, Callable[[_Subject], CheckResult]]:
    return {function.__name__.strip("_").replace("_", " "): function for function in functions}


# Checks of the environment of a store.
_OUTSIDE: Final = _by_name(_file_system, _disk_space, _ballast, _writers, _open_files, _search, _unfinished)

# Checks of the file that must pass before the others make sense.
_GATES: Final = _by_name(_file, _format)

# Checks of the content of the file.
_INSIDE: Final = _by_name(_map, _readers, _log, _tail, _pages, _event_kinds)

# Checks whose bad result is damage, which has its own exit code.
_DAMAGE: Final = frozenset({"file", "log", "tail", "event kinds", "manifest"})


def _examine_server(address: str, monitors: Sequence[str]) -> Examination:
    """Ask the servers of a log for its state; writes nothing there and makes no copy."""
    path = hide_password(address)
    try:
        commits = connect(address, readonly=True)
        try:
            checks = commits.checks()
        finally:
            commits.close()
    except StoreError as error:
        checks = [Check("server", BAD, str(error))]
    if monitors:
        from refold.log.jetstream import stream_of  # Its client is an extra, which is installed at this point.
        from refold.log.monitors import compare  # Only this needs an HTTP client.

        checks += compare(monitors, stream_of(address))
    is_ok = all(check.state != BAD for check in checks)
    return Examination(path, is_ok, 0 if is_ok else EXIT_ERROR, [Diagnosis(*check) for check in checks])


def examine(path: str, monitors: Sequence[str] = ()) -> Examination:
    """Run all checks that the store at a path allows; ``monitors`` are the monitoring URLs of its log's servers."""
    if monitors and not path.startswith(("nats://", "tls://")):
        raise InvalidInput(f"{hide_password(path)} has no monitors; leave --monitor out, or name a log on NATS")
    if is_address(path):
        return _examine_server(path, monitors)
    checks: list[Diagnosis] = []
    codes = [0]

    def passes(name: str, result: CheckResult, code: int | None = None) -> bool:
        checks.append(Diagnosis(name, *result))
        if result.state == BAD:
            codes.append(code or (EXIT_INTEGRITY if name in _DAMAGE else EXIT_ERROR))
        return result.state != BAD

    directory = _run(_directory, path)
    is_gone = not holds_store(path) and has_store_traces(path)
    if passes(
        "directory",
        directory if directory.state == OK else directory._replace(state=BAD),
        EXIT_INTEGRITY if is_gone else EXIT_ERROR,
    ):
        for name, outside in _OUTSIDE.items():
            passes(name, _run(outside, path))
        try:
            facts = inspect.look(path, _ROWS)
        except (StoreError, OSError) as error:
            damage = damage_of(path)
            result = _bad(f"the file is damaged ({damage})", RESTORE) if damage else _of_error(error)
            passes("file", result, EXIT_INTEGRITY if damage else EXIT_ERROR)
        else:
            if all(passes(name, _run(gate, facts)) for name, gate in _GATES.items()):
                for name, inside in _INSIDE.items():
                    passes(name, _run(inside, facts))
                if os.path.lexists(Path(path, MANIFEST_FILE)):
                    try:
                        passes("manifest", _manifest(path))
                    except StoreError as error:
                        passes("manifest", _of_error(error))
    return Examination(path, not any(codes), max(codes), checks)


def damage_of(path: str) -> str:
    """Return what is wrong with the file of the store that was made at a path; empty if nothing is, or none was."""
    if not has_store_traces(path):
        return ""
    return inspect.problem(path) if holds_store(path) else f"its {DATA_FILE} is gone"


def _of_error(error: StoreError | OSError) -> CheckResult:
    """Return a bad result for an error of refold, which ends with the next step, or for one of the system."""
    message, _, step = str(error).rpartition("; ")
    return _bad(message, step) if message else _bad(step, "give the directory of a store")


def _run(check: Callable[[_Subject], CheckResult], subject: _Subject) -> CheckResult:
    try:
        return check(subject)
    except OSError as error:
        return _warn(f"cannot be determined: {error}", "run this as the user who owns the store")


def _mib(size_bytes: int) -> str:
    return f"{size_bytes / _MIB:,.1f} MiB"
