"""The root of the command line: its verbs and their options, stores, output and exit codes."""

import ast
import datetime as dates
import io
import os
import re
import shlex
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import wraps
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, TypeAlias, TypeVar, cast

import click
from click.core import ParameterSource

from refold.cli import EXIT_ERROR, EXIT_INTEGRITY, EXIT_INTERRUPTED
from refold.cli.output import Console, Line, escape_controls, escape_line, print_json, tell
from refold.errors import InvalidInput, NotFound, RefoldError, StoreCorrupt, StoreVersion

if TYPE_CHECKING:
    from refold import Conversation, Memory, Project
    from refold.embedders import Embedder

_SHOWN_COUNT: Final = 5

Moment: TypeAlias = int | dates.datetime | None  # A seq or a time.

_MICROSECOND: Final = dates.timedelta(microseconds=1)
_MICROSECOND_DIGITS: Final = 6
_FRACTION: Final = re.compile(r"[^-+:\d][:\d]+[.,](\d+)")  # Of a second; the zone can have one, too.

# Opening stores, with a fixed clock and random source if REFOLD_CLOCK_NS is set.

CLOCK_VARIABLE: Final = "REFOLD_CLOCK_NS"
_STEP_NS: Final = 1_000_000
_START_NS_MAX: Final = 2**62


class FixedSource:
    """A clock that advances one millisecond at each reading, and a random stream made by hashing."""

    def __init__(self, start_ns: int) -> None:
        self._time_ns = start_ns
        self._seed = str(start_ns)
        self._blocks = 0

    def clock_ns(self) -> int:
        """Advance the clock and read it."""
        self._time_ns += _STEP_NS
        return self._time_ns

    def random_bytes(self, count: int) -> bytes:
        """Return bytes from the SHA-256 of a seed and a counter."""
        drawn = b""
        while len(drawn) < count:
            drawn += sha256(f"{self._seed}/{self._blocks}".encode()).digest()
            self._blocks += 1
        return drawn[:count]

    def reseed(self, head: int) -> None:
        """Start another stream for this head; otherwise all commands on a store would draw the same ids."""
        self._seed, self._blocks = f"{self._seed}@{head}", 0


def _fixed_source() -> FixedSource | None:
    start = os.environ.get(CLOCK_VARIABLE)
    if not start:
        return None
    if not start.isdecimal() or int(start) > _START_NS_MAX:
        raise InvalidInput(f"{CLOCK_VARIABLE} is {start!r}; give nanoseconds from 0 to {_START_NS_MAX}, or unset it")
    return FixedSource(int(start))


def open_memory(
    path: str, *, clock_ns: Callable[[Callable[[], int]], Callable[[], int]] | None = None, **options: Any
) -> "Memory":
    """Open the memory of a store, creating it if needed; `clock_ns` can wrap the clock."""
    from refold import Memory

    source = _fixed_source()
    clock = time.time_ns if source is None else source.clock_ns  # noqa: TID251 - the clock of the user's machine
    if source is not None:
        options["random_bytes"] = source.random_bytes
    memory = Memory(path, clock_ns=clock if clock_ns is None else clock_ns(clock), **options)
    if source is not None:
        source.reseed(memory.head)
    return memory


def draw_bytes(count: int) -> bytes:
    """Draw random bytes for a command's own use."""
    source = _fixed_source()
    return os.urandom(count) if source is None else source.random_bytes(count)


def fixed_options() -> dict[str, Any]:
    """Return the options that fix the clock and the random source of a function, if `REFOLD_CLOCK_NS` is set."""
    source = _fixed_source()
    return {} if source is None else {"clock_ns": source.clock_ns, "random_bytes": source.random_bytes}


@contextmanager
def name_damage(path: str) -> "Generator[None]":
    """Raise `StoreCorrupt` if a directory is no store because the file of the one that was there is damaged."""
    try:
        yield
    except StoreVersion as error:
        from refold.cli.doctor import RESTORE, damage_of

        damage = damage_of(path)
        if not damage:
            raise
        raise StoreCorrupt(f"the store at {path} is damaged ({damage}); {RESTORE}") from error


@contextmanager
def open_for_reading(path: str, *, advice: str | None = None, **options: Any) -> "Generator[Memory]":
    """Open an existing store for reading; `advice` says what to do if there is none."""
    try:
        with name_damage(path):
            memory = open_memory(path, readonly=True, **options)
    except NotFound as error:
        advice = advice or f"`refold import FILE --db {path}` creates one"
        raise NotFound(f"there is no store at {path}; {advice}") from error
    except StoreVersion as error:
        from refold.engine.verify import has_store_traces
        from refold.log.directory import holds_store

        if not Path(path).is_dir() or holds_store(path) or has_store_traces(path):
            raise
        raise NotFound(f"there is no store at {path}, only other files; give the directory of a store") from error
    with memory:
        yield memory


@contextmanager
def open_for_writing(path: str, *, advice: str | None = None, **options: Any) -> "Generator[Memory]":
    """Open a store for writing; it must exist, so that a mistyped path creates nothing."""
    with open_for_reading(path, advice=advice):
        pass
    with open_memory(path, **options) as memory, memory.acting("cli"):
        yield memory


# Verbs.

Function = TypeVar("Function", bound=Callable[..., Any])
Option = Callable[[Function], Function]


# Advice in error messages for Python, and its equivalent on the command line.
_ADVICE: Final = {
    "with close(drop=True)": "in Python with close(drop=True)",
    "forks='erase'": "--forks erase",
    ", or give replace=True": "",
    "or overwrite=True to": "or --overwrite to",
    "give session=..., or project=... and node=...": "give a SESSION, or --project and --node",
    "such as datetime.UTC": "such as a Z at its end",
    "a name of its own in rename": "a name of its own with --rename",
    "rename has ": "--rename has ",
    "rename maps ": "--rename maps ",
    "rename is for exports": "--rename is for exports",
    "give a token that": "give a token, by REFOLD_WEB_TOKEN or --token, that",
}


_RENAME: Final = re.compile(r"\brename=(\{(['\"]).{1,1000}?\2: (['\"]).{1,1000}?\3\})")


def _rename_option(advice: re.Match[str]) -> str:
    try:
        ((old, new),) = ast.literal_eval(advice[1]).items()
    except (SyntaxError, ValueError):  # Names with quotes and colons can be cut anywhere.
        return "--rename OLD=NEW"
    return f"--rename {shlex.quote(f'{old}={new}')}"


class _ErrorGroup(click.Group):
    """A group that reports errors of its verbs in one line on stderr, with an exit code."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            text = f"No such option {error.option_name!r} here."
            text += " Options go after the command, as in `refold list --db PATH`."
            raise click.NoSuchOption(error.option_name, text, ctx=ctx) from None

    def invoke(self, ctx: click.Context) -> Any:
        try:
            super().invoke(ctx)
            sys.stdout.flush()
        except BrokenPipeError:
            # The reader of our output has closed it.
            _discard_stdout()
        except (RefoldError, OSError) as error:
            try:
                sys.stdout.flush()
            except OSError:  # Stdout itself fails: nothing more can be written to it.
                _discard_stdout()
            message = str(error)
            for advice, own in _ADVICE.items():
                message = message.replace(advice, own)
            message = _RENAME.sub(_rename_option, message)
            tell(f"refold: {message}")
            ctx.exit(EXIT_INTEGRITY if isinstance(error, StoreCorrupt) else EXIT_ERROR)


def _discard_stdout() -> None:
    """Prevent the interpreter's final flush of stdout from failing."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        # Not a real file, as in a test: it cannot fail at exit either.
        return


_SETTINGS: Final = {"help_option_names": ["-h", "--help"], "max_content_width": 110, "show_default": True}


@click.group(cls=_ErrorGroup, context_settings=_SETTINGS)
@click.version_option(package_name="refold", message="refold %(version)s")
def cli() -> None:
    """Inspect an agent's memory: import sessions, then show, replay, fork, compare and verify them.

    Name the store with --db PATH or REFOLD_DB. Data goes to stdout, as JSON with --json; everything else goes to
    stderr. Exit codes: 0 success, 1 error, 2 wrong usage, 3 damaged store.
    """


def run() -> int:
    """Run the command line on the arguments of this process and return its exit code."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # A terminal without a character shows its code instead, which is no reason to stop.
            stream.reconfigure(errors="backslashreplace")
    try:
        # Without standalone mode, click returns exit codes and leaves errors to us.
        code = cli.main(prog_name="refold", standalone_mode=False)
    except click.Abort as error:
        if isinstance(error.__cause__, KeyboardInterrupt):
            raise error.__cause__ from None
        return EXIT_INTERRUPTED
    except click.ClickException as error:
        message = io.StringIO()
        error.show(message)
        tell(message.getvalue().removesuffix("\n"))
        return error.exit_code
    return code if isinstance(code, int) else 0


def confirm(question: str) -> None:
    """Ask the user, and end the command if the answer is no, or if nobody is there to answer."""
    try:
        is_agreed = click.confirm(escape_controls(question), err=True)
    except click.Abort as abort:
        if not isinstance(abort.__context__, EOFError):
            raise
        raise click.ClickException("nothing was changed, as the input ended without an answer; give --yes") from abort
    if not is_agreed:
        raise click.ClickException("nothing was changed")


class Output(NamedTuple):
    """The output of a verb: a document for --json, lines for people, and the exit code."""

    document: Any
    lines: Iterable[Line] = ()
    exit_code: int = 0


def verb(
    name: str, *options: Option[Any], opens: Literal["reading", "writing"] | None = "reading", group: click.Group = cli
) -> Callable[[Function], Function]:
    """Add a verb with its options, with --json and, if it opens a store, with --db.

    The function takes the memory, if one is opened, and the options; an option named `embedder` is used for the memory.
    It returns an `Output`, or yields several; each is printed before the next is made.
    """

    def decorate(function: Function) -> Function:
        @wraps(function)
        def command(*, as_json: bool, **given: Any) -> None:
            with ExitStack() as stack:
                memory: list[Memory] = []
                if opens is not None:
                    embedding = {"embedder": given.pop("embedder")} if "embedder" in given else {}
                    store = (open_for_reading if opens == "reading" else open_for_writing)(given.pop("db"), **embedding)
                    memory = [stack.enter_context(store)]
                occurred = given.pop("at_occurred", None)
                if occurred is not None:
                    memory = [each.at(occurred=occurred) for each in memory]
                output = function(*memory, **given)
                if isinstance(output, Iterator):
                    for shown in cast("Iterator[Output]", output):
                        _print(shown, as_json=as_json)
                    return
                if not as_json:
                    # The lines can read the memory; nothing is printed if the store cannot be closed.
                    output = output._replace(lines=list(output.lines))
            _print(output, as_json=as_json)
            if output.exit_code:
                click.get_current_context().exit(output.exit_code)

        wrapped = cast("Any", command)
        for option in reversed((*options, *([db_option] if opens else []), json_option)):
            wrapped = cast("Any", option)(wrapped)
        group.command(name)(wrapped)
        return function

    return decorate


def _print(shown: Output, *, as_json: bool) -> None:
    if as_json:
        print_json(shown.document)
        return
    console = Console()
    for line in shown.lines:
        console.line(*line)


# Options.

db_option = click.option(
    "--db", envvar="REFOLD_DB", show_envvar=True, required=True, metavar="PATH", help="The directory of the store."
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of text.")

EMBEDDER_VARIABLE: Final = "REFOLD_EMBEDDER"
KEY_VARIABLE: Final = "REFOLD_EMBEDDER_KEY"
_EMBEDDERS: Final = {"hashed": "HashedEmbedder", "wordllama": "WordLlamaEmbedder", "minilm": "MiniLmEmbedder"}


def _embedder(_: click.Context, parameter: click.Parameter, value: str | None) -> "Embedder | None":
    if value is None:
        return None
    name, _at, url = value.partition("@")
    model, _colon, dim = name.rpartition(":")
    if value not in _EMBEDDERS and not (model and url and dim.isdecimal()):
        raise click.BadParameter(
            f"{value!r} is unknown; give {', '.join(_EMBEDDERS)}, or MODEL:DIM@URL for an OpenAI-compatible endpoint",
            param=parameter,
        )
    from refold import embedders

    if value in _EMBEDDERS:
        embedder: Embedder = getattr(embedders, _EMBEDDERS[value])()
        return embedder
    return embedders.OpenAIEmbedder(base_url=url, model=model, dim=int(dim), api_key=os.environ.get(KEY_VARIABLE))


embedder_option = click.option(
    "--embedder",
    callback=_embedder,
    envvar=EMBEDDER_VARIABLE,
    show_envvar=True,
    metavar="NAME",
    help=f"The embedder: hashed (built in), wordllama, minilm, or MODEL:DIM@URL with its key in {KEY_VARIABLE}.",
)


def moment_option(
    *names: str,
    help: str,  # noqa: A002 - click's name
    default: int | None = None,
    is_begin: bool = False,
) -> Option[Any]:
    """Return an option for a seq, or for a time in ISO 8601 with its zone.

    A time means all of its last digit: with `is_begin` what follows begins with it, otherwise it ends with it. So a
    time that a command prints, which is cut, includes the event beside it.
    """
    return click.option(
        *names,
        callback=_parse_begin if is_begin else _parse_moment,
        type=click.UNPROCESSED,  # Otherwise click takes the type of the default.
        default=default,
        show_default=False,
        metavar="SEQ|TIME",
        help=help,
    )


def past_options(help: str) -> Option[Any]:  # noqa: A002 - click's name
    """Return the two options of a verb that can show an earlier state: by seq or time, and by when things happened."""
    at = moment_option("--at", help=help)
    occurred = click.option(
        "--at-occurred",
        callback=_parse_time,
        metavar="TIME",
        help="Leave out everything that happened after this time, whenever it was recorded.",
    )
    return lambda function: at(occurred(function))


def _parse_time(_: click.Context, parameter: click.Parameter, value: str | None) -> dates.datetime | None:
    if value is None:
        return None
    moment = moment_of(value)
    if not isinstance(moment, dates.datetime):
        raise click.BadParameter(f"{value!r} is not a time such as 2026-11-21T16:00:00Z", param=parameter)
    return moment


def _parse_moment(_: click.Context, parameter: click.Parameter, value: Any) -> Moment:
    if value is None or isinstance(value, int):
        return value
    moment = moment_of(value)
    if moment is None:
        raise click.BadParameter(f"{value!r} is neither a seq nor a time such as 2026-11-21T16:00:00Z", param=parameter)
    return moment


def _parse_begin(context: click.Context, parameter: click.Parameter, value: Any) -> Moment:
    """Parse a seq, or a time into the last moment before it."""
    end = _parse_moment(context, parameter, value)
    if not isinstance(end, dates.datetime) or end.tzinfo is None:
        return end
    try:
        return dates.datetime.fromisoformat(value) - _MICROSECOND
    except OverflowError:  # The first time that there is: no event is older.
        return end


def moment_of(text: str) -> Moment:
    """Parse a seq, or a time into the end of its last digit; return `None` for any other text."""
    try:
        if text.removeprefix("-").isdecimal():
            return int(text)
        moment = dates.datetime.fromisoformat(text)
    except ValueError:  # A number with thousands of digits is not one either.
        return None
    if moment.tzinfo is None:
        return moment  # A time without a zone is refused, as it was given, by whatever looks it up.
    fraction = _FRACTION.search(text)
    digits = 0 if fraction is None else len(fraction[1])
    return moment.replace(microsecond=moment.microsecond + 10 ** max(_MICROSECOND_DIGITS - digits, 0) - 1)


def seq_of(memory: "Memory", moment: Moment) -> int:
    """Return the seq of a moment, or of the head for `None`."""
    return memory.head if moment is None else memory.at(moment).head


def memory_at(memory: "Memory", moment: Moment) -> "Memory":
    """Return the memory as of a moment, or the live memory for `None`."""
    return memory if moment is None else memory.at(moment)


def find_conversation(memory: "Memory", conversation_id: str) -> "Conversation":
    """Return a conversation that exists; raises `NotFound` otherwise."""
    from refold.memory.core import core_of

    chat = memory.conversation(conversation_id)
    if not chat.version:
        chat = memory.conversation(_find_escaped_name(conversation_id, memory.conversations))
    if not chat.version and conversation_id in memory.forks():
        raise NotFound(
            f"{conversation_id!r} is a fork of the memory; memory.fork({conversation_id!r}) in Python opens it"
        )
    if not chat.version:
        then = "" if core_of(memory)[0].moment_ns is None else " that had begun by the time of --at-occurred"
        close = suggest_name(conversation_id, memory.conversations())
        raise NotFound(
            f"there is no conversation {conversation_id!r}{then}{close}; `refold list` shows the existing ones"
        )
    return chat


def _find_escaped_name(name: str, known: Callable[[], list[str]]) -> str:
    """Return the name that is printed like this, with escapes for terminal control characters and line breaks."""
    return next((each for each in known() if escape_line(each) == name), name) if "\\" in name else name


def find_project(memory: "Memory", name: str) -> "Project":
    """Return an existing project or the default one; raises `NotFound` for any other."""
    known = memory.projects()
    if name not in known:
        name = _find_escaped_name(name, lambda: known)
    if name not in known:
        if click.get_current_context().get_parameter_source("project") is ParameterSource.COMMANDLINE:
            close = suggest_name(name, known)
            raise NotFound(f"there is no project {name!r}{close}; `refold list` shows the existing ones")
        tell_empty("project", name, known)
    return memory.project(name)


def tell_empty(noun: str, name: str, known: Sequence[str]) -> None:
    """Say that nothing is under a name, and which other names there are."""
    option = "--project" if noun == "project" else "--name"
    names = [each for each in known if each != name][:_SHOWN_COUNT]
    none = f"there are no {'other ' * (name in known)}{noun}s"
    others = f"{option} selects another: {', '.join(names)}" if names else none
    tell(f"{noun} {name} is empty; {others}")


def suggest_name(name: str, known: Iterable[str]) -> str:
    """Return a question that suggests the known name most similar to another, or an empty string."""
    from difflib import get_close_matches

    names = list(known)
    alike = get_close_matches(name, names, 1) or [other for other in names if name and name in other]
    return f"; did you mean {alike[0]!r}?" if alike else ""
