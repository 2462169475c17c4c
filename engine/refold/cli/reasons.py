"""The verbs that ask the log for reasons: why, blame and influence."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

import click

from refold.cli import output
from refold.cli.output import Line
from refold.cli.root import Moment, Output, embedder_option, find_conversation, memory_at, moment_option, verb
from refold.errors import NotFound

if TYPE_CHECKING:
    from refold import Memory
    from refold.memory.reasons import Why

_SEQ_CHARS: Final = 20  # More than any seq has digits.
_KINDS = ("scratchpad", "state", "board", "profile", "setting", "file", "skill")

_at = moment_option("--at", help="Answer as of this seq or time instead of now.")


@verb(
    "why",
    click.argument("what"),
    click.argument("conversation", required=False),
    click.option(
        "--missing-from",
        metavar="QUERY|SEQ",
        help="Also explain why a search for QUERY, or the recall or context at SEQ, does not show it.",
    ),
    click.option("--full", is_flag=True, help="List every context and recall that showed it, not only the newest."),
    _at,
    embedder_option,
)
def why(
    memory: "Memory", what: str, conversation: str | None, missing_from: str | None, at: Moment, *, full: bool
) -> Output:
    """Explain how something came and left, and what showed it.

    WHAT is a seq, an id, a key, or words of the content, in CONVERSATION or anywhere. A number above the last seq
    counts as words, in WHAT and in QUERY.
    """
    conversation = _conversation_id(memory, conversation)
    missing = None if missing_from is None else _parse_target(memory, missing_from)
    answer = memory.why(_parse_target(memory, what), conversation=conversation, at=at, missing_from=missing)
    if not answer.steps:
        raise NotFound(f"nothing is known of {what!r}; `refold search` finds words")
    return Output(answer, _why_lines(answer, full=full))


def _conversation_id(memory: "Memory", conversation: str | None) -> str | None:
    return None if conversation is None else find_conversation(memory, conversation).id


def _parse_target(memory: "Memory", what: str) -> int | str:
    return int(what) if what.isdecimal() and len(what) < _SEQ_CHARS and int(what) <= memory.head else what


def _why_lines(answer: "Why", *, full: bool) -> Iterator[Line]:
    from refold.memory.reasons import rows_of

    for place, row in enumerate(rows_of(answer, full=full)):
        if isinstance(row, str):
            about, colon, text = row.partition(": ") if place else (row, "", "")
            yield (about, "bold"), colon, text
            continue
        origin = f"seq {row.seq}  {output.time_text(row.time_ns)}  {row.actor}  " if row.seq else ""
        yield (f"  {row.relation:<9}", "cyan"), (origin, "dim"), row.text


@verb(
    "blame",
    click.argument("key"),
    click.argument("conversation", required=False),
    click.option(
        "--of", "kind", type=click.Choice(_KINDS), help="What KEY belongs to.  [default: the first that has it]"
    ),
    click.option("--name", default="default", metavar="NAME", help="The profile, tree of files or skill library."),
    click.option("--line", type=int, metavar="N", help="List the versions of this line of a file or skill."),
    _at,
)
def blame(
    memory: "Memory", key: str, conversation: str | None, kind: str | None, name: str, line: int | None, at: Moment
) -> Output:
    """List every value that a key ever had, and who wrote it.

    Each value comes with the turn that led to it. KEY is a key in the scratchpad or state of CONVERSATION, or a part of
    its board. Without CONVERSATION, it is a key of the profile, a setting, the path of a file, or a learned skill; of a
    file or a skill, the lines are listed.
    """
    if conversation is None or not memory.board(session=conversation).version:  # A session can have only a board.
        conversation = _conversation_id(memory, conversation)
    revisions = memory_at(memory, at).blame(key, conversation=conversation, of=kind, name=name, line=line)
    if not revisions:
        of_name = "; --name selects another profile, tree of files or library" if conversation is None else ""
        raise NotFound(f"nothing ever set {key!r} there{of_name}; `refold why` finds a text anywhere")
    lines: list[Line] = [
        (
            (f"seq {each.seq}  {output.time_text(each.time_ns)}  {each.actor}  ", "dim"),
            (f"{each.key} ", "bold"),
            "removed" if each.removed else ("erased" if each.erased else f"= {output.full_text(each.value)}"),
            (f"  turn {each.turn}" if each.turn else "", "dim"),
        )
        for each in revisions
    ]
    return Output(revisions, lines)


@verb("influence", click.argument("what"), click.argument("conversation", required=False), _at)
def influence(memory: "Memory", what: str, conversation: str | None, at: Moment) -> Output:
    """List the turns in which a model saw something.

    Shows each turn whose window, context or recall held WHAT, with the model's answer. WHAT is as for `refold why`; for
    something erased, give its seq.
    """
    conversation = _conversation_id(memory, conversation)
    target = _parse_target(memory, what)
    found = memory.influence(target, conversation=conversation, at=at)
    if not found.turns and what.isdecimal() and isinstance(target, str):
        known = memory.why(target, conversation=conversation, at=at)
        if not any(step.seq for step in known.steps):
            raise NotFound(f"no event is at seq {what[:_SEQ_CHARS]} and none holds it; the last one is {memory.head}")
    document = {"about": found.about, "turns": found.turns, "conversations": found.conversations}
    head, _, _ = str(found).partition("\n")
    lines: list[Line] = [((head, "bold"),)]
    for turn in found.turns:
        answer = f" seq {turn.answer}" if turn.answer else ""
        lines.append(((f"  {turn.conversation}{answer}  ", "dim"), turn.text))
    return Output(document, lines)
