"""A shared log on PostgreSQL: one row per commit, and one row for the log with the number of its last commit.

An append is one statement: it increments the last number and inserts the commit, or finds that another machine was
faster.
"""

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, suppress
from threading import RLock
from typing import Any, Final, LiteralString, TypeVar, cast
from urllib.parse import unquote

import psycopg
from psycopg.abc import PQGen
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from psycopg.sql import SQL, Identifier, Literal

from refold.errors import Closed, InvalidInput, RefoldError, StoreCorrupt, StoreError, StoreFull, StoreUnreachable
from refold.limits import CLOCK_SECONDS_MAX
from refold.log.commits import (
    LINK_BYTES,
    MISSING_LOG,
    PAGE_BYTES,
    AppendConflict,
    Check,
    CommitBytes,
    CommitsLost,
    ConnectionLost,
    Replacement,
    hide_password,
    split_address,
)
from refold.text import sha256
from refold.threads import enter_once

_TABLES: Final[Sequence[LiteralString]] = (
    """CREATE TABLE IF NOT EXISTS refold.log (
        id integer GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
        name text NOT NULL UNIQUE,
        head bigint NOT NULL DEFAULT 0)""",
    """CREATE TABLE IF NOT EXISTS refold.commit (
        log integer NOT NULL REFERENCES refold.log,
        number bigint NOT NULL,
        packed bytea NOT NULL,
        PRIMARY KEY (log, number))""",
    # Salted hashes and short texts compress badly, and a commit is always read whole.
    "ALTER TABLE refold.commit ALTER COLUMN packed SET STORAGE EXTERNAL",
)
_HAS_TABLES: Final = "SELECT to_regclass('refold.commit') IS NOT NULL"
_FIND: Final = "SELECT id FROM refold.log WHERE name = %s"
_HEAD: Final = "SELECT head FROM refold.log WHERE id = %s"
_APPEND: Final = """
    WITH moved AS (
            UPDATE refold.log SET head = head + 1
            WHERE id = %(log)s AND head = %(expected)s AND (
                %(before)s::bytea IS NULL OR %(before)s = (
                    SELECT substring(packed FROM octet_length(packed) - %(less)s) FROM refold.commit
                    WHERE log = %(log)s AND number = %(expected)s))
            RETURNING head),
         put AS (INSERT INTO refold.commit SELECT %(log)s, head, %(packed)s FROM moved RETURNING number)
    SELECT number, pg_notify(%(channel)s, number::text) FROM put
"""
_READ: Final = """
    SELECT head, number, packed FROM refold.log LEFT JOIN (
        SELECT number, packed, sum(octet_length(packed)) OVER (ORDER BY number) - octet_length(packed) AS before
        FROM (
            SELECT number, packed FROM refold.commit WHERE log = %(log)s AND number > %(after)s
            ORDER BY number LIMIT %(count)s
        ) AS page
    ) AS counted ON before < %(bytes)s WHERE id = %(log)s ORDER BY number
"""
"""One row without a commit if there is none after the number."""
_REPLACE: Final = "UPDATE refold.commit SET packed = %s WHERE log = %s AND number = %s AND sha256(packed) = %s"
_SIZE: Final = "SELECT coalesce(sum(octet_length(packed)), 0)::bigint FROM refold.commit WHERE log = %s"

_QUEUE: Final = SQL("SET lock_timeout = '2s'; SELECT pg_advisory_lock({}, {}); SET lock_timeout = 0")
_FACTS: Final = """
    SELECT current_setting('server_version') AS version, current_setting('fsync') AS fsync,
           current_setting('synchronous_commit') AS synchronous_commit,
           current_setting('full_page_writes') AS full_page_writes,
           current_setting('data_checksums') AS data_checksums,
           (SELECT count(*) FROM pg_stat_replication WHERE sync_state IN ('sync', 'quorum')) AS standbys,
           (SELECT head FROM refold.log WHERE id = %(log)s) AS head,
           (SELECT count(*) FROM refold.commit WHERE log = %(log)s) AS commits,
           (SELECT coalesce(max(number), 0) FROM refold.commit WHERE log = %(log)s) AS last,
           extract(epoch FROM clock_timestamp())::float8 AS now
"""

_PAGE_COUNT: Final = 4_096
"""The maximum number of commits read at a time."""

_LOCK: Final = 0x7265666F
"""The class of the advisory locks; their keys are 0 to create the tables, and a log's number for a turn to append."""

_TRIES: Final = 3
_ANSWER_SECONDS: Final = 15.0
"""How long a statement can wait for an answer from a server that is paused or out of reach."""
_DEFAULT_NAME: Final = "default"
_DEFAULTS: Final = {
    "application_name": "refold",
    "connect_timeout": "10",
    "keepalives_idle": "3",
    "keepalives_interval": "1",
    "keepalives_count": "3",
    "tcp_user_timeout": "6000",
}
"""Options of a connection. An unreachable host is given up after about 6 s, a stopped server after 10 s."""
_NETWORK_THERE: Final = """
    SET tcp_keepalives_idle = 3; SET tcp_keepalives_interval = 1; SET tcp_keepalives_count = 3;
    SET tcp_user_timeout = 6000;
"""
"""The same for the server, which keeps a machine's turn until it gives up the connection."""

T = TypeVar("T")


class _AnswerTimeout(psycopg.OperationalError):
    """The server has not answered a statement in time; it is unknown whether the statement took effect."""


class _PostgresConnection(psycopg.Connection[Any]):
    """A connection that closes itself if a statement gets no answer in time; ``psycopg`` would wait forever."""

    seconds = _ANSWER_SECONDS

    def wait(self, gen: PQGen[T], *args: Any, **kwargs: Any) -> T:
        return super().wait(self._limit_time(gen), *args, **kwargs)

    def _limit_time(self, gen: PQGen[T]) -> PQGen[T]:
        until = time.monotonic() + self.seconds
        try:
            state = next(gen)
            while True:
                ready = yield state
                if self.closed:
                    raise psycopg.OperationalError("the connection is closed")
                if not ready and time.monotonic() > until:
                    self.close()
                    raise _AnswerTimeout(f"no answer within {self.seconds:g} s")
                state = gen.send(ready)
        except StopIteration as end:
            return cast("T", end.value)


_READ_ONLY: Final = psycopg.errors.ReadOnlySqlTransaction
"""The server no longer accepts writes; another host in the address might."""
_LOST: Final = (psycopg.OperationalError, psycopg.InterfaceError, _READ_ONLY)
_FINAL: Final = (_AnswerTimeout, psycopg.errors.ConnectionTimeout, psycopg.errors.DiskFull)
"""Errors after which a call is not retried."""


class PostgresCommits:
    """The commits of one log in a database; ``commits.CommitLog`` documents each method.

    The address is a libpq URI, ``postgresql://user@host/database``, with ``?log=NAME`` if the database has several
    logs. Passwords, certificates and so on are configured as usual for libpq: ``.pgpass``, ``PGSSLMODE``, a service.
    """

    def __init__(self, address: str, *, readonly: bool) -> None:
        self._address, name = _split_log_name(address)
        self._options = _options(self._address)
        self.name = hide_password(address)
        self.connections = 0
        self._lock = RLock()
        self._connection: _PostgresConnection | None = None
        self._listener: _PostgresConnection | None = None
        self._is_closed = False
        self._is_in_turn = False
        try:
            self._log = self._call(lambda connection: self._find_log(connection, name, readonly=readonly))
        except BaseException:
            self.close()
            raise
        self._channel = f"refold_{self._log}"

    def _find_log(self, connection: _PostgresConnection, name: str, *, readonly: bool) -> int:
        """Return the log's number in the database, 0 if it is missing; unless ``readonly``, create what is missing."""
        if not readonly:
            self._make_tables(connection)
        elif connection.execute(_HAS_TABLES).fetchone() != (True,):
            return 0
        if not readonly and connection.execute(_FIND, (name,)).fetchone() is None:
            connection.execute("INSERT INTO refold.log (name) VALUES (%s) ON CONFLICT DO NOTHING", (name,))
        found = connection.execute(_FIND, (name,)).fetchone()
        if found is None:
            return 0
        return int(found[0])

    def _make_tables(self, connection: _PostgresConnection) -> None:
        """Create the schema and its tables if they are missing: all of them or, if the connection is lost, none."""
        if connection.execute(_HAS_TABLES).fetchone() == (True,):
            return
        with connection.transaction():
            # One at a time: even `IF NOT EXISTS` fails for one of two connections that create a table simultaneously.
            connection.execute("SELECT pg_advisory_xact_lock(%s, 0)", (_LOCK,))
            # Even if an administrator created the schema, `IF NOT EXISTS` requires the right to create it.
            if connection.execute("SELECT to_regnamespace('refold')").fetchone() == (None,):
                connection.execute("CREATE SCHEMA refold")
            for statement in _TABLES:
                connection.execute(statement)

    # Connections.

    def _check_open(self) -> None:
        if self._is_closed:
            raise Closed(f"{self.name} is closed; open it again")

    def _ensure_connection(self) -> _PostgresConnection:
        self._check_open()
        if self._connection is None or self._connection.closed:
            self._is_in_turn = False
            self.connections += 1
            self._connection = self._connect()
        return self._connection

    def _connect(self) -> _PostgresConnection:
        connection = _PostgresConnection.connect(self._address, autocommit=True, **self._options)
        with ExitStack() as failing:
            failing.callback(connection.close)
            if self._options:
                connection.execute(_NETWORK_THERE)
            self._check_open()  # It may have been closed meanwhile.
            failing.pop_all()
        return connection

    def _call_once(self, use: Callable[[_PostgresConnection], T]) -> T:
        """Call ``use`` with a connection; close it if the server is read-only, or did not report the error itself.

        It might otherwise stay open in the middle of a statement, and refuse every other statement forever.
        """
        with enter_once(self._lock):
            connection = self._ensure_connection()
            try:
                return use(connection)
            except psycopg.Error as error:
                if error.sqlstate is None or isinstance(error, _READ_ONLY):
                    connection.close()
                raise

    def _call(self, use: Callable[[_PostgresConnection], T]) -> T:
        """Call ``use`` with a connection, retrying with a new one if it was lost, and return the result."""
        tries = _TRIES
        while True:
            try:
                return self._call_once(use)
            except psycopg.errors.LockNotAvailable:
                raise
            except _LOST as error:
                tries -= 1
                if not tries or self._is_closed or isinstance(error, _FINAL):
                    raise self._store_error(error) from error
            except psycopg.Error as error:
                raise self._store_error(error) from error

    def _store_error(self, error: psycopg.Error) -> RefoldError:
        if self._is_closed:  # A connection that is closed during use can raise anything.
            return Closed(f"{self.name} is closed; open it again")
        reason = " ".join(str(error).split())
        if isinstance(error, psycopg.errors.DiskFull):
            return StoreFull(f"{self.name}: {reason}; free space on the server, and call again")
        if isinstance(error, psycopg.errors.DataCorrupted):
            return StoreCorrupt(f"{self.name}: {reason}; restore the server from its backup")
        if isinstance(error, _LOST):
            return StoreUnreachable(
                f"{self.name} does not answer: {reason}; see that it runs and can be reached, and lets this user in"
            )
        return StoreError(f"{self.name}: {reason}; see that its user may use the schema refold")

    # Commits.

    def head(self) -> int:
        """Return the number of the last commit."""
        found = self._call(lambda connection: connection.execute(_HEAD, (self._log,)).fetchone())
        return 0 if found is None else int(found[0])

    def read(self, after: int) -> list[CommitBytes]:
        """Return the first commits after a number, in order and without a gap."""
        if not self._log:
            return []
        bounds = {"log": self._log, "after": after, "count": _PAGE_COUNT, "bytes": PAGE_BYTES}
        rows = self._call(lambda connection: connection.execute(_READ, bounds, binary=True).fetchall())
        if not rows or rows[0][0] < after:
            raise CommitsLost
        found = [CommitBytes(number, bytes(packed)) for _, number, packed in rows if number is not None]
        for place, (number, _) in enumerate(found, after + 1):
            if number != place:
                raise StoreCorrupt(f"commit {place} of {self.name} is missing; restore the server from its backup")
        return found

    def append(self, expected: int, packed: bytes, before: bytes | None = None) -> int:
        """Append a commit, if the last one is ``expected`` and has the link ``before``."""
        values = {
            "log": self._log,
            "expected": expected,
            "packed": packed,
            "before": before or None,
            "less": LINK_BYTES - 1,
            "channel": self._channel,
        }
        try:
            found = self._call_once(lambda connection: connection.execute(_APPEND, values).fetchone())
        except _LOST as error:
            if self._is_closed or isinstance(error, psycopg.errors.DiskFull):
                raise self._store_error(error) from error
            raise ConnectionLost(" ".join(str(error).split())) from error
        except psycopg.Error as error:
            raise self._store_error(error) from error
        if found is None:
            raise AppendConflict
        return int(found[0])

    def replace(self, commits: Sequence[Replacement]) -> bool:
        """Replace the bytes of the commits that have not changed, in one transaction."""
        values = [(each.after, self._log, each.number, sha256(each.before)) for each in commits]

        def use(connection: _PostgresConnection) -> bool:
            with connection.transaction(), connection.cursor() as cursor:
                cursor.executemany(_REPLACE, values)
                return cursor.rowcount == len(values)

        return self._call(use)

    def sweep(self) -> None:
        """Have the server drop replaced rows; its WAL and backups retain them as long as they retain any data.

        If another connection is already doing so, it is left to that one. A vacuum that takes long continues on the
        server after the call.
        """

        def use(connection: _PostgresConnection) -> None:
            with suppress(_AnswerTimeout):
                connection.execute("VACUUM (SKIP_LOCKED) refold.commit")

        self._call(use)

    # Turns.

    def queue(self) -> None:
        """Wait for this machine's turn, but not so long that a paused machine stops the others."""

        def use(connection: _PostgresConnection) -> None:
            # One transaction: if the lock is not available in time, the timeout setting is undone as well.
            connection.execute(_QUEUE.format(Literal(_LOCK), Literal(self._log)))
            self._is_in_turn = True

        with suppress(psycopg.errors.LockNotAvailable):
            self._call(use)

    def leave(self) -> None:
        """Release the turn; if the connection was lost, the server has released it already."""
        connection = self._connection
        if self._is_in_turn and connection is not None:
            self._is_in_turn = False
            with suppress(psycopg.Error), self._lock:
                connection.execute("SELECT pg_advisory_unlock(%s, %s)", (_LOCK, self._log))

    def wait(self, seconds: float) -> int | None:
        """Return the number of the last commit that the server announces within ``seconds``."""
        try:
            listener = self._listener
            if listener is None or listener.closed:
                listener = self._listener = self._connect()
                listener.execute(SQL("LISTEN {}").format(Identifier(self._channel)))
                return None  # It does not announce earlier commits.
            return max((int(each.payload) for each in listener.notifies(timeout=seconds, stop_after=1)), default=None)
        except psycopg.Error as error:
            if self._listener is not None:
                self._listener.close()
            raise self._store_error(error) from error
        finally:
            if self._is_closed:  # The listener may be too late for `close` to close it.
                self._disconnect()

    def size_bytes(self) -> int:
        """Return the size of all commits in bytes."""
        found = self._call(lambda connection: connection.execute(_SIZE, (self._log,)).fetchone())
        return int(found[0]) if found else 0

    def checks(self) -> list[Check]:
        """Check the settings, standbys, commits and clock of the server."""

        def ask(connection: _PostgresConnection) -> dict[str, Any]:
            with connection.cursor(row_factory=dict_row) as cursor:
                return dict(cursor.execute(_FACTS, {"log": self._log}).fetchone() or {})

        if not self._log:
            return [MISSING_LOG]
        facts = self._call(ask)
        apart = abs(facts["now"] - time.time())  # noqa: TID251 - compared with the server's, and never recorded
        found = [Check("server", "ok", f"PostgreSQL {facts['version']}")]
        for name in ("fsync", "synchronous_commit", "full_page_writes"):
            step = f"set {name} = on: without it a crash of the server loses acknowledged commits"
            found.append(
                Check(name, "bad", f"{name} is off", step) if facts[name] == "off" else Check(name, "ok", facts[name])
            )
        if facts["data_checksums"] == "off":
            step = "stop the server and run pg_checksums --enable; without it, corruption on its disk goes unnoticed"
            found.append(Check("checksums", "warn", "data_checksums is off", step))
        else:
            found.append(Check("checksums", "ok", "on"))
        if facts["standbys"]:
            found.append(Check("standbys", "ok", f"{facts['standbys']} are synchronous"))
        else:
            step = "set up a synchronous standby; without one, the log is lost with this server's disk"
            found.append(Check("standbys", "warn", "no standby is synchronous", step))
        if (facts["commits"], facts["last"]) == (facts["head"], facts["head"]):
            found.append(Check("commits", "ok", f"all {facts['head']:,} are there"))
        else:
            message = f"{facts['commits']:,} of {facts['head']:,} are there, and the last is {facts['last']:,}"
            found.append(Check("commits", "bad", message, "restore the server from its backup"))
        if apart > CLOCK_SECONDS_MAX:
            step = "sync both clocks with NTP: the times of events come from the machines that write them"
            found.append(Check("clock", "warn", f"the server's clock is {apart:,.1f} s off this machine's", step))
        else:
            found.append(Check("clock", "ok", f"within {CLOCK_SECONDS_MAX} s of this machine's"))
        return found

    def close(self) -> None:
        """Close both connections."""
        self._is_closed = True
        self._disconnect()

    def _disconnect(self) -> None:
        for connection in (self._connection, self._listener):
            if connection is not None:
                with suppress(psycopg.Error):
                    connection.close()


def _split_log_name(address: str) -> tuple[str, str]:
    """Split an address into one that libpq accepts, and the name of the log."""
    split_address(address)
    place, _, query = address.partition("?")
    options = query.split("&") if query else []
    names = [unquote(option.removeprefix("log=")) for option in options if option.startswith("log=")]
    if len(names) > 1 or "" in names:
        raise InvalidInput(f"the address {hide_password(address)} names no one log; give one log=NAME, or none")
    rest = "&".join(option for option in options if not option.startswith("log="))
    return f"{place}?{rest}" if rest else place, names[0] if names else _DEFAULT_NAME


def _options(address: str) -> dict[str, Any]:
    """Return the ``_DEFAULTS`` that the address does not set, or nothing if a service may set them."""
    try:
        given = conninfo_to_dict(address)
    except psycopg.ProgrammingError:
        raise InvalidInput(
            f"libpq cannot read the address {hide_password(address)}; see that its options are libpq's, and that a "
            f"password has % as %25"
        ) from None  # psycopg's message quotes the password.
    if "service" in given or "PGSERVICE" in os.environ:
        return {}
    return {name: value for name, value in _DEFAULTS.items() if name not in given}
