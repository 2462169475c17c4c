"""The root of the command line: its group of verbs, their options, the stores they open, how errors end a run."""

import io
import os
import sys
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from refold.cli import EXIT_ERROR, EXIT_INTEGRITY, EXIT_INTERRUPTED
from refold.errors import InvalidInput, NotFound, RefoldError, StoreCorrupt

if TYPE_CHECKING:
    import datetime

    from refold import Conversation, Memory
    from refold.embedders import Embedder
    from refold.results import Recovered


# Opening stores for the command line, on a fixed clock and random source where REFOLD_CLOCK_NS asks for them.

CLOCK_VARIABLE: Final = "REFOLD_CLOCK_NS"
_STEP_NS: Final = 1_000_000
_START_NS_MAX: Final = 2**62


class Doors:
    """A clock that advances a millisecond at each reading, and bytes that are a hash of where they are drawn."""

    def __init__(self, start_ns: int) -> None:
        self._time_ns = start_ns
        self._seed = str(start_ns)
        self._blocks = 0

    def clock_ns(self) -> int:
        """Return the next moment."""
        self._time_ns += _STEP_NS
        return self._time_ns

    def random_bytes(self, count: int) -> bytes:
        """Return the next bytes of the stream: SHA-256 of a seed and a counter."""
        drawn = b""
        while len(drawn) < count:
            drawn += sha256(f"{self._seed}/{self._blocks}".encode()).digest()
            self._blocks += 1
        return drawn[:count]

    def reseed(self, head: int) -> None:
        """Go on with bytes of their own for this head: commands on one store would else draw the same ids again."""
        self._seed, self._blocks = f"{self._seed}@{head}", 0


def _doors() -> Doors | None:
    start = os.environ.get(CLOCK_VARIABLE)
    if not start:
        return None
    if not start.isdecimal() or int(start) > _START_NS_MAX:
        raise InvalidInput(f"{CLOCK_VARIABLE} is {start!r}; give nanoseconds from 0 to {_START_NS_MAX}, or unset it")
    return Doors(int(start))


def opened(
    path: str, *, clock_ns: Callable[[Callable[[], int]], Callable[[], int]] | None = None, **options: Any
) -> "Memory":
    """Return the memory of a store; ``clock_ns`` may wrap the clock."""
    from refold import Memory

    doors = _doors()
    clock = time.time_ns if doors is None else doors.clock_ns  # noqa: TID251 - the clock of who runs the command
    if doors is not None:
        options["random_bytes"] = doors.random_bytes
    memory = Memory(path, clock_ns=clock if clock_ns is None else clock_ns(clock), **options)
    if doors is not None:
        doors.reseed(memory.head)
    return memory


def drawn(count: int) -> bytes:
    """Return random bytes for what a command makes itself."""
    doors = _doors()
    return os.urandom(count) if doors is None else doors.random_bytes(count)


def recovered(backup: str, new: str, **options: Any) -> "Recovered":
    """Return what ``recover`` made of a backup."""
    from refold import recover

    doors = _doors()
    if doors is not None:
        options |= {"clock_ns": doors.clock_ns, "random_bytes": doors.random_bytes}
    return recover(backup, new, **options)


@contextmanager
def reading(path: str, **options: Any) -> "Generator[Memory]":
    """Open a store to read it; it must exist."""
    try:
        memory = opened(path, readonly=True, **options)
    except NotFound as error:
        raise NotFound(f"there is no store at {path}; `refold import FILE --db {path}` creates one") from error
    with memory:
        yield memory


@contextmanager
def writing(path: str, **options: Any) -> "Generator[Memory]":
    """Open a store to append to it; it must exist, so that a mistyped path creates nothing."""
    with reading(path):
        pass
    with opened(path, **options) as memory:
        yield memory


# The embedder that a command is given: by its name, or as a model at an endpoint.

FunctionType = TypeVar("FunctionType", bound=Callable[..., Any])

EMBEDDER_VARIABLE: Final = "REFOLD_EMBEDDER"
KEY_VARIABLE: Final = "REFOLD_EMBEDDER_KEY"
_BY_NAME: Final = {"hashed": "HashedEmbedder", "wordllama": "WordLlamaEmbedder", "minilm": "MiniLmEmbedder"}
_HELP: Final = f"hashed (the built-in one), wordllama, minilm, or MODEL:DIM@URL (its key in {KEY_VARIABLE})."


def embedder_option(function: FunctionType) -> FunctionType:
    """Add --embedder, which REFOLD_EMBEDDER may stand in for."""
    option = click.option(
        "--embedder", callback=_embedder, envvar=EMBEDDER_VARIABLE, show_envvar=True, metavar="NAME", help=_HELP
    )
    return option(function)


def _embedder(_context: click.Context, parameter: click.Parameter, value: str | None) -> "Embedder | None":
    if value is None:
        return None
    name, _, url = value.partition("@")
    model, _, dim = name.rpartition(":")
    if value not in _BY_NAME and not (model and url and dim.isdecimal()):
        raise click.BadParameter(
            f"{value!r} is none; give {', '.join(_BY_NAME)}, or MODEL:DIM@URL for an OpenAI-compatible endpoint",
            param=parameter,
        )
    from refold import embedders

    if value in _BY_NAME:
        chosen: Embedder = getattr(embedders, _BY_NAME[value])()
        return chosen
    return embedders.OpenAIEmbedder(base_url=url, model=model, dim=int(dim), api_key=os.environ.get(KEY_VARIABLE))


class _Guarded(click.Group):
    """A group that ends its verbs' errors as one line on stderr and an exit code."""

    def invoke(self, ctx: click.Context) -> Any:
        """Run the verb."""
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # Whoever read our output has seen enough.
            _discard_stdout()
        except (RefoldError, OSError) as error:
            _settle_stdout()
            click.echo(f"refold: {error}", err=True)
            ctx.exit(EXIT_INTEGRITY if isinstance(error, StoreCorrupt) else EXIT_ERROR)


def _settle_stdout() -> None:
    """Write what stdout still holds; if it is stdout that fails, nothing more can be written there."""
    try:
        sys.stdout.flush()
    except OSError:
        _discard_stdout()


def _discard_stdout() -> None:
    """Let nothing fail when the interpreter flushes stdout once more at its end."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        # Not a real file, as in a test: it cannot fail at exit either.
        return


@click.group(cls=_Guarded, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110})
@click.version_option(package_name="refold", message="refold %(version)s")
def cli() -> None:
    """Look into an agent's memory: import sessions, show, replay, fork, compare and verify them.

    A store is named with --db PATH or by REFOLD_DB. Data goes to stdout, as JSON with --json; everything else goes to
    stderr. Exit codes: 0 fine, 1 error, 2 wrong usage, 3 damaged store.
    """


def run() -> int:
    """Run the command line on the arguments of this process and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal that lacks a character shows its number; it is no reason to stop.
            stream.reconfigure(errors="backslashreplace")
    try:
        # Without standalone mode click returns the code of an exit, and leaves errors to us.
        code = cli.main(prog_name="refold", standalone_mode=False)
    except click.Abort:
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        error.show()
        return error.exit_code
    return code if isinstance(code, int) else 0


def db_option(function: FunctionType) -> FunctionType:
    """Add --db, which REFOLD_DB may stand in for."""
    option = click.option(
        "--db", envvar="REFOLD_DB", show_envvar=True, required=True, metavar="PATH", help="The directory of the store."
    )
    return option(function)


def json_option(function: FunctionType) -> FunctionType:
    """Add --json."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON, for programs.")(function)


def moment_option(*names: str, help: str, default: int | None = None) -> Callable[[FunctionType], FunctionType]:  # noqa: A002 - as click says
    """Add an option that takes a seq, or a time in ISO 8601 with its zone."""
    return click.option(*names, callback=_moment, default=default, metavar="SEQ|TIME", help=help)


def _moment(_: click.Context, parameter: click.Parameter, value: Any) -> "int | datetime.datetime | None":
    if value is None or isinstance(value, int):
        return value
    moment = moment_of(value)
    if moment is None:
        raise click.BadParameter(f"{value!r} is neither a seq nor a time such as 2026-11-21T16:00:00Z", param=parameter)
    return moment


def moment_of(text: str) -> "int | datetime.datetime | None":
    """Return the seq or the time that a text stands for, ``None`` if it is neither."""
    import datetime

    if text.removeprefix("-").isdecimal():
        return int(text)
    try:
        return datetime.datetime.fromisoformat(text)
    except ValueError:
        return None


def seq_of(memory: "Memory", moment: "int | datetime.datetime | None") -> int:
    """Return the seq of a moment, that of the head for none."""
    return memory.head if moment is None else memory.at(moment).head


def known_conversation(memory: "Memory", conversation_id: str) -> "Conversation":
    """Return a conversation that exists; reading one that does not would show nothing and say nothing."""
    chat = memory.conversation(conversation_id)
    if not chat.version:
        raise NotFound(f"there is no conversation {conversation_id!r}; `refold list` shows those that there are")
    return chat
