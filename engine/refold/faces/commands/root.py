"""The root of the command line: its group of verbs, the options that they share, and how errors end a run."""

import io
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

from refold.errors import NotFound, RefoldError, StoreCorrupt
from refold.faces.exits import EXIT_ERROR, EXIT_INTEGRITY, EXIT_INTERRUPTED

if TYPE_CHECKING:
    import datetime

    from refold import Conversation, Memory

FunctionType = TypeVar("FunctionType", bound=Callable[..., Any])


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
        message = f"{value!r} is neither a seq nor a time such as 2026-11-21T16:00:00Z"
        raise click.BadParameter(message, param=parameter)
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
        message = f"there is no conversation {conversation_id!r}; `refold list` shows those that there are"
        raise NotFound(message)
    return chat
