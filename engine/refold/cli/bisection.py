"""The verb that finds the event at which something changed: bisect."""

from collections.abc import Callable
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click
from click.core import ParameterSource

from refold.cli import output
from refold.cli.output import Line
from refold.cli.root import Moment, Output, find_conversation, find_project, moment_option, seq_of, verb
from refold.errors import InvalidInput, NotFound
from refold.text import pluralize

if TYPE_CHECKING:
    from refold import Conversation, Memory

_LINES_COUNT_MAX: Final = 20  # Of the event that was found; an output of a tool can have thousands.

Predicate: TypeAlias = Callable[["Memory"], object]


@verb(
    "bisect",
    click.argument("conversation", required=False),
    click.option("--window-lacks", metavar="TEXT", help="No message in CONVERSATION's window contains TEXT any more."),
    click.option(
        "--key",
        metavar="KEY=VALUE",
        help="KEY has this VALUE in CONVERSATION's scratchpad or state, or without CONVERSATION in the profile.",
    ),
    click.option("--memory-lost", metavar="TEXT", help="No memory of the project contains TEXT any more."),
    click.option(
        "--python",
        "file",
        type=click.File(encoding="utf-8"),
        metavar="FILE",
        help="The Python expression in FILE is true; it is run with `memory` and `chat` as they were at each state.",
    ),
    click.option(
        "--project",
        default="default",
        metavar="NAME",
        help="With --memory-lost, the project.  [default: that of CONVERSATION]",
    ),
    moment_option(
        "--after",
        is_begin=True,
        help="Consider only events after this seq, or from this time on.  [default: where TEXT was last present, or 0]",
    ),
    moment_option("--until", help="Consider only events up to this seq or time.  [default: the head]"),
)
def bisect(
    memory: "Memory",
    conversation: str | None,
    window_lacks: str | None,
    key: str | None,
    memory_lost: str | None,
    file: Any,
    project: str,
    after: Moment,
    until: Moment,
) -> Output:
    """Find the event that made something true.

    Give one of --window-lacks, --key, --memory-lost and --python. Searches by bisection, so it looks at few states,
    however long the log is. If the condition became true more than once, finds one of these events.
    """
    conditions = [value for value in (window_lacks, key, memory_lost, file) if value is not None]
    if len(conditions) != 1:
        raise click.UsageError("give one of --window-lacks, --key, --memory-lost and --python")
    chat = None if conversation is None else find_conversation(memory, conversation)
    last = seq_of(memory, until)
    first = None if after is None else seq_of(memory, after)
    if window_lacks is not None:
        if chat is None:
            raise click.UsageError("--window-lacks needs a CONVERSATION")
        predicate = _lacks_message(chat, window_lacks)
        first = _last_with(memory, chat.place[0], window_lacks, last, predicate) if first is None else first
    elif memory_lost is not None:
        is_given = click.get_current_context().get_parameter_source("project") is ParameterSource.COMMANDLINE
        project = project if is_given or chat is None else chat.project or project
        stream = find_project(memory, project).place[0]
        predicate = _lacks_memory(project, memory_lost)
        first = _last_with(memory, stream, memory_lost, last, predicate) if first is None else first
    elif key is not None:
        predicate = _has_value(chat, key)
    else:
        predicate = _expression(file, chat)
    recorded = memory.bisect(predicate, after=first or 0, until=last)
    if recorded is None:
        last_chat = None if chat is None else memory.at(last).conversation(chat.id)
        holder = "" if last_chat is None or window_lacks is None else _holder(last_chat, window_lacks)
        raise NotFound(f"it is not true at seq {last}{holder}; give another --until, or see `refold log`")
    from refold.importers.values import event_json

    return Output(event_json(memory, recorded, full=True), _lines(memory, recorded))


def _lines(memory: "Memory", recorded: Any) -> list[Line]:
    from refold.importers.values import event_name

    stamp = recorded.stamp
    head = f"seq {stamp.seq}  {output.time_text(stamp.time_ns)}  {output.shorten(stamp.stream)}  "
    lines = list(output.event_lines(memory, recorded))
    more = len(lines) - _LINES_COUNT_MAX
    if more > 0:
        lines[_LINES_COUNT_MAX:] = [((f"  {pluralize(more, 'more line')}; `refold show --seq {stamp.seq}`", "dim"),)]
    return [((head, "cyan"), (event_name(recorded), "bold"), (output.origin_text(stamp), "dim")), *lines]


def _lacks_message(chat: "Conversation", text: str) -> Predicate:
    from refold.message import text_of

    return lambda memory: not any(text in text_of(each) for each in memory.conversation(chat.id).window())


def _holder(chat: "Conversation", text: str) -> str:
    """Return a note that names the oldest message of a window that contains a text, or an empty string."""
    from refold.message import text_of

    return next((f": message {each.seq} still holds it" for each in chat.window() if text in text_of(each)), "")


def _lacks_memory(project: str, text: str) -> Predicate:
    return lambda memory: not any(text in (entry.content or "") for entry in memory.project(project).list())


def _has_value(chat: "Conversation | None", pair: str) -> Predicate:
    key, sign, value = pair.partition("=")
    if not sign:
        raise click.UsageError(f"--key is {pair!r}; give KEY=VALUE")
    if chat is None:
        return lambda memory: memory.profile().get(key) == value

    def has_value(memory: "Memory") -> bool:
        then = memory.conversation(chat.id)
        values = then.scratchpad.get(key), dict(then.state.items()).get(key)
        return any(own == value or (own is not None and output.json_text(own) == value) for own in values)

    return has_value


def _expression(file: Any, chat: "Conversation | None") -> Predicate:
    try:
        code = compile(file.read().strip(), file.name, "eval")
    except (SyntaxError, ValueError) as error:
        raise InvalidInput(
            f"{file.name} is not a Python expression ({error}); write one that uses `memory` and `chat`"
        ) from error

    def holds(memory: "Memory") -> object:
        names = {"memory": memory, "chat": None if chat is None else memory.conversation(chat.id)}
        try:
            return eval(code, names)  # noqa: S307 - the file comes from the user
        except Exception as error:
            chatless = "; without a CONVERSATION, `chat` is None" if chat is None else ""
            raise InvalidInput(
                f"{file.name} at seq {memory.head}: {type(error).__name__}: {error}{chatless}; mend the expression"
            ) from error

    return holds


def _last_with(memory: "Memory", stream: str, text: str, until: int, lacks: Predicate) -> int:
    """Return the seq of the last event after which a text was present; raises `NotFound` if there is none."""
    from refold.engine.scan import EventFilter
    from refold.memory.core import core_of

    core = core_of(memory)[0]
    candidates = core.events(EventFilter((text.encode(),)), stream, until=until, backwards=True)
    for recorded in chain(
        candidates, islice(core.events(EventFilter(), stream, until=until), 1)
    ):  # A fork starts with a state.
        if not lacks(memory.at(recorded.stamp.seq)):
            return recorded.stamp.seq
    raise NotFound(f"{text!r} was never in {stream}; `refold search` finds words in other places")
