"""Output of the command line: events and messages as text or JSON, with colour on terminals."""

import datetime as dates
import io
import re
import shutil
import sys
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeAlias, cast

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from typing import IO

    from refold import Change, Conversation, Memory, Message, Recorded, Step
    from refold.event import Stamp


# Printing: data on stdout, everything else on stderr; colour and progress bars only on a terminal.

Line: TypeAlias = "Sequence[str | tuple[str, str]]"  # Strings, and strings with a style, such as `("12", "bold")`.

_TEXT_CHARS: Final = 60
_BAR_CHARS: Final = 20
_COLUMNS: Final = 120  # The width if no terminal reports one.
_LEAST_CHARS: Final = 40
_INDENT: Final = " " * 10

# Characters that move a cursor, colour a terminal or change the writing direction, except line breaks and tabs.
_UNPRINTABLE: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def escape_controls(text: str) -> str:
    """Replace terminal control characters by their escapes, such as a backslash and x1b."""
    return _UNPRINTABLE.sub(lambda match: match.group().encode("unicode_escape").decode(), text)


def escape_line(text: str) -> str:
    """Make a text printable, including line breaks, so that a name with one does not add a line."""
    return escape_controls(text).replace("\n", "\\n")


def stdout_text(text: str) -> str:
    """Return a text as it is, but made printable if stdout is a terminal."""
    return escape_controls(text) if sys.stdout.isatty() else text


class _Terminal(io.RawIOBase):
    """A terminal that JSON Lines are written to; control characters are escaped as in JSON."""

    def write(self, content: Any) -> int:
        sys.stdout.write(_escape_json(bytes(content).decode()))
        return len(content)


def stdout_file() -> "IO[bytes]":
    """Return stdout as a binary file for JSON Lines; on a terminal, control characters are escaped."""
    return cast("IO[bytes]", _Terminal()) if sys.stdout.isatty() else sys.stdout.buffer


def free_columns(used_chars: int) -> int:
    """Return the number of characters left in a terminal line besides those taken."""
    return max(shutil.get_terminal_size((_COLUMNS, 24)).columns - used_chars, _LEAST_CHARS)


def block(head: str | tuple[str, str], text: str, *, full: bool) -> "Iterator[Line]":
    """Yield a text after its head: as much as fits in one line, or with `full` all of it, indented."""
    if not full:
        head_chars = len(head if isinstance(head, str) else head[0])
        yield head, shorten(text, free_columns(head_chars))
        return
    first, _, rest = text.partition("\n")
    yield head, first
    if rest:
        yield from indent_lines(rest)


def indent_lines(text: str) -> "Iterator[Line]":
    """Yield the lines of a text, indented."""
    for line in text.split("\n"):
        yield (f"{_INDENT}{line}",)


class Console:
    """Prints lines of pieces to stdout, with colour on terminals unless `plain`; a quiet console prints nothing."""

    def __init__(self, *, quiet: bool = False, plain: bool = False) -> None:
        self._quiet = quiet
        self._rich: Any = None
        if sys.stdout.isatty() and not quiet and not plain:
            from rich.console import Console as RichConsole

            self._rich = RichConsole(highlight=False)

    def line(self, *pieces: str | tuple[str, str]) -> None:
        """Print one line."""
        if self._quiet:
            return
        styled = [(piece, "") if isinstance(piece, str) else piece for piece in pieces]
        escaped = [(escape_line(text), style) for text, style in styled]
        if self._rich is None:
            print("".join(text for text, _ in escaped))
            return
        from rich.text import Text

        self._rich.print(Text.assemble(*escaped), soft_wrap=True)

    def heading(self, text: str) -> None:
        """Print a heading below an empty line."""
        self.line()
        self.line((text, "bold cyan"))


def yes_or_no(value: bool) -> str:  # noqa: FBT001 - it is the value to show
    """Return how a demonstration shows whether a promise holds: `yes`, or a loud `NO`."""
    return "yes" if value else "NO"


def print_json(document: Any) -> None:
    """Print a value as one line of JSON."""
    print(json_text(document))


def json_text(document: Any) -> str:
    """Render a value as one line of JSON, with terminal control characters escaped."""
    import msgspec

    return _escape_json(msgspec.json.encode(document).decode())


def _escape_json(text: str) -> str:
    """Escape terminal control characters in lines of JSON."""
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match.group()):04x}", text)


def tell(text: str) -> None:
    """Print a remark to stderr."""
    print(escape_controls(text), file=sys.stderr)


@contextmanager
def progress_bar(description: str) -> "Generator[Callable[[int, int], None] | None]":
    """Yield a function that shows progress (done, all) on stderr, or `None` if stderr is not a terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console as RichConsole
    from rich.progress import Progress

    with Progress(console=RichConsole(stderr=True), transient=True) as progress:
        task = progress.add_task(escape_controls(description).replace("[", "\\["))
        yield lambda done, whole: progress.update(task, completed=done, total=whole)


def token_bar(tokens: int, window_tokens: int) -> str:
    """Render a bar of a window's tokens, such as `[#####...............]  150/600`."""
    filled = min(tokens * _BAR_CHARS // max(window_tokens, 1), _BAR_CHARS)
    bar = "#" * filled + "." * (_BAR_CHARS - filled)
    return f"[{bar}] {tokens:>{len(str(window_tokens))}}/{window_tokens}"


def shorten(text: str, chars: int = _TEXT_CHARS) -> str:
    """Shorten a text to one line of at most `chars` characters, without control characters."""
    words = " ".join(text[: 4 * chars].split())
    visible = "".join(character if character.isprintable() else "?" for character in words)
    return visible if len(visible) <= chars else f"{visible[: chars - 3]}..."


_EPOCH: Final = dates.datetime(1970, 1, 1, tzinfo=dates.UTC)
_NOTHING: Final[tuple[Any, ...]] = (None, [], {})
_MESSAGE_CHARS: Final = 72
_VALUE_CHARS: Final = 60


def time_text(time_ns: int) -> str:
    """Format a time as ISO 8601 in UTC, to the millisecond."""
    moment = _EPOCH + dates.timedelta(microseconds=time_ns // 1_000)
    return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


def message_text(message: "Message", chars: int = _MESSAGE_CHARS) -> str:
    """Render a message on one line: the speaker, the text, and the calls with their arguments."""
    return shorten(f"{speaker_of(message)}: {text_of(message, '; ')}", chars)


def speaker_of(message: "Message") -> str:
    """Return the role of a message, and its name if it has one."""
    return message.role if message.name is None else f"{message.role} {message.name}"


def text_of(message: "Message", separator: str = "\n") -> str:
    """Render the complete text and calls of a message."""
    return _text_of(message.content, message.tool_calls, separator, is_erased=message.erased)


def _text_of(content: object, tool_calls: "Iterable[dict[str, Any]] | None", separator: str, *, is_erased: bool) -> str:
    if is_erased:
        return "erased"
    calls = [_call_text(cast("dict[str, Any]", call.get("function", call))) for call in tool_calls or ()]
    return separator.join(filter(None, (_content_text(content), *calls)))


def _call_text(call: dict[str, Any]) -> str:
    arguments = call.get("arguments", call.get("input", {}))
    return f"calls {call.get('name')}({arguments if isinstance(arguments, str) else json_text(arguments)})"


def _content_text(content: object) -> str:
    if isinstance(content, str):
        return content
    return "\n".join(map(_block_text, cast("list[object]", content) if isinstance(content, list) else []))


def _block_text(block: object) -> str:
    kind = _field(block, "type")
    if kind == "tool_use":
        return _call_text(cast("dict[str, Any]", block))
    if kind == "tool_result":
        return _content_text(_field(block, "content"))
    return str(_field(block, "text") or f"<{kind}>")


def message_lines(message: "Message", *, full: bool) -> "Iterator[Line]":
    """Yield a message with its seq and tokens, on one line or in full."""
    about = f"  {message.tokens}{'  pinned' if message.pinned else ''}"
    head = f"{message.seq:>8}"
    if not full:
        yield (head, "cyan"), f"  {message_text(message, free_columns(len(head) + 2 + len(about)))}", (about, "dim")
        return
    yield (head, "cyan"), "  ", (speaker_of(message), "bold"), (f"{about} tokens", "dim")
    yield from indent_lines(text_of(message))


def _field(value: object, name: str) -> Any:
    return cast("dict[str, Any]", value).get(name) if isinstance(value, dict) else None


def conversation_json(chat: "Conversation", at: int) -> dict[str, Any]:
    """Render the whole state of a conversation at a seq as plain values."""
    from refold.importers.values import message_json

    return {
        "conversation": chat.id,
        "at": at,
        "project": chat.project,
        "window_tokens": chat.window_tokens,
        "tokens": chat.token_count(),
        "messages": [message_json(message) for message in chat.window()],
        "scratchpad": chat.scratchpad.to_dict(),
        "state": dict(chat.state.items()),
    }


def event_text(memory: "Memory", recorded: "Recorded", chars: int = _MESSAGE_CHARS) -> str:
    """Render an event on one line."""
    from refold import Message
    from refold.message import MessageAppended

    event, stamp = recorded
    if stamp.erased:
        return "erased"
    if isinstance(event, MessageAppended):
        return message_text(Message(event, stamp), chars)
    return shorten("  ".join(f"{key}={full_text(value)}" for key, value in _fields(memory, recorded)), chars)


def event_lines(memory: "Memory", recorded: "Recorded") -> "Iterator[Line]":
    """Yield an event in full, with one field per line."""
    from refold import Message
    from refold.message import MessageAppended

    event, stamp = recorded
    if isinstance(event, MessageAppended):
        yield from message_lines(Message(event, stamp), full=True)
        return
    for key, value in _fields(memory, recorded):
        yield from block((f"{_INDENT}{key} = ", "dim"), full_text(value), full=True)


def _fields(memory: "Memory", recorded: "Recorded") -> "Iterator[tuple[str, Any]]":
    from refold.importers.values import event_json

    fields: dict[str, Any] = event_json(memory, recorded)["event"]
    return ((key, value) for key, value in fields.items() if key not in {"sources", "prior"})


def full_text(value: object) -> str:
    """Render a value in full: a text as it is, any other value as JSON."""
    return value if isinstance(value, str) else json_text(value)


def origin_text(stamp: "Stamp") -> str:
    """Return the actor and the cause of an event; an empty string for the host without a cause."""
    from refold.event import HOST

    actor = "" if stamp.actor == HOST else f"  by {shorten(stamp.actor)}"
    return f"{actor}  after {stamp.cause}" if stamp.cause else actor


def change_json(change: "Change") -> dict[str, Any]:
    """Render a difference as plain values."""
    return {field: getattr(change, field) for field in ("stream", "view", "path", "before", "after")}


def changes_text(changes: "Iterable[Change]") -> "Iterator[tuple[Change, str]]":
    """Yield the differences that matter to a person, each with its line; an empty list counts as nothing."""
    for change in changes:
        if change.before in _NOTHING and change.after in _NOTHING:
            continue
        where = ".".join(str(part) for part in (change.view, *change.path))
        is_message = change.view == "window" and change.path[:-1] == ("messages",)
        text = _plain_message_text if is_message else value_text
        if change.before is None:
            yield change, f"+ {where}: {text(change.after)}"
        elif change.after is None:
            yield change, f"- {where}: {text(change.before)}"
        else:
            yield change, f"~ {where}: {text(change.before)} -> {text(change.after)}"


def _plain_message_text(message: dict[str, Any]) -> str:
    text = _text_of(message.get("content"), message.get("tool_calls"), "; ", is_erased="erased" in message)
    return shorten(f"{message['role']}: {text}", _MESSAGE_CHARS)


def value_text(value: Any) -> str:
    """Render a value of a state on one line."""
    return shorten(full_text(value), _VALUE_CHARS)


def step_json(memory: "Memory", step: "Step") -> dict[str, Any]:
    """Render a step of a replay as plain values."""
    from refold import Recorded
    from refold.importers.values import event_json, message_json

    return {
        **event_json(memory, Recorded(step.event, step.stamp)),
        "tokens": step.tokens,
        "window_tokens": step.window_tokens,
        "changes": [change_json(change) for change in step.changes],
        "evicted": [message_json(message) for message in step.evicted],
    }
