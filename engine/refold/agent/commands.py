"""Memory commands: user messages that ask to remember, forget or look up, detected without a model. Pure.

First a message is read as a whole, which starts with one of the phrases below, preceded at most by polite words, or in
Japanese ends with one. If it does not, its sentences are read (`refold.agent.requests`). "Remember" without "that" is a
command only before a plain statement. Forget phrases are matched before recall phrases, and those before remember
phrases, so that "stop remembering" never counts as "remember". A question looks up at most: "Always wear a helmet?" is
no rule. "Forget that" is a command only before a statement: "forget that plan" speaks of what was just said.
"""

import re
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Final, NamedTuple, TypeAlias

from msgspec import Struct

from refold import checks
from refold.agent.request_words import pattern
from refold.agent.requests import MemoryRequest, bare_statement, find_request, is_withheld

COMMAND_IMPORTANCE: Final = 0.95  # What a user asks to remember matters more than what a model finds.


class RememberCommand(Struct, frozen=True, tag="remember"):
    """The user asks to remember something, with the given importance."""

    content: str
    importance: float = COMMAND_IMPORTANCE


class ForgetCommand(Struct, frozen=True, tag="forget", repr_omit_defaults=True):
    """The user asks to forget the memory that the query finds: a statement, or a subject ("forget about ...")."""

    query: str
    is_subject: bool = False


class RecallCommand(Struct, frozen=True, tag="query"):
    """The user asks what is remembered, in one category or in all; an empty query asks for everything."""

    query: str
    category: str | None = None


class WithholdCommand(Struct, frozen=True, tag="withhold"):
    """The user asks not to remember the message itself."""


MemoryCommand: TypeAlias = RememberCommand | ForgetCommand | RecallCommand | WithholdCommand

_STOPS: Final = ".?!\u3002\uff1f\uff01\uff0e\uff61"
_QUESTION_MARKS: Final = "?\uff1f"
_COLONS: Final = ":\uff1a"
_SEPARATORS: Final = f"{_COLONS},\uff0c\u3001"
_EDGES: Final = f" {_SEPARATORS}{_STOPS}"
_SPACES: Final = "".join(filter(str.isspace, map(chr, range(0x3001))))
_GAP: Final = re.compile(rf"\A[\s{_SEPARATORS}]+")
_BREAK: Final = re.compile(r"\n\s*\n|\r\s*\r")
_SENTENCES: Final = re.compile(r"(?<=[.?!])\s+|(?<=[\u3002\uff01\uff1f])\s*|(?<!\s)[^\S\n]*+\n\s*")
_FIRST_STOP: Final = re.compile(r"[?.!](?=[\s?.!\"')\]]|\Z)|[\uff1f\u3002\uff01\uff0e\uff61]")
_NEXT: Final = re.compile(rf"[{_STOPS}]\s*\S")
_POLITE: Final = re.compile(pattern("<polite>"))
_PLEASE: Final = re.compile(pattern(r"(?<=[\s,])please\Z"))
_TAG: Final = re.compile(pattern(r"<tag>\Z"))
_TAG_CHARS: Final = 40
_CHINESE_PLEASE: Final = ("\u8bf7", "\u8acb")
_CHINESE_QUESTION: Final = ("\u5417", "\u55ce")

_WITHHOLD_FIRST: Final = re.compile(pattern("<withhold first>"))
_WITHHOLD_LAST: Final = re.compile(pattern(r"<withhold last>\)?\Z"))
_ABOUT_ME: Final = re.compile(pattern("<mine>"))
_UNSAVED_LAST: Final = re.compile(pattern(r"<unsaved last>\)?\Z"))
_WITHHOLD_CHARS: Final = 120

_STATEMENT: Final = re.compile(pattern("<statement>"))
_JUST_SAID: Final = re.compile(pattern("<just said>"))
_DEMONSTRATIVE: Final = re.compile(pattern("<demonstrative>"))
_CLAUSES: Final = re.compile(
    pattern(r"[,;:.!?]\s|\b(?:and|but|then|so)\s+(?:let|just|please|we|i|you|do|go|start|use|make)\b")
)
_SUBJECT_WORDS_MAX: Final = 8
_ALL: Final = re.compile(pattern(r"(?:everything|anything|all)\b"))
# "The matter of", and "this" or "its name", in Chinese and Japanese.
_CHINESE_MATTER: Final = re.compile(pattern(r"<zh matter>\Z"))
_THIS: Final = re.compile(pattern("<this alone>"))

_ONESELF: Final = re.compile(pattern("<oneself>"))
_BARE: Final = re.compile(pattern(r"(?:the|an?|i|we|you|he|she|it|they|my|our|your|this|that|these|those)\Z"))
# Pasted documents also start as notes or rules do: only one short paragraph is a command.
_NOTE_CHARS_MAX: Final = 1_000
_THANKS_CHARS_MAX: Final = 40
_NO_RULE: Final = re.compile(pattern("<no rule>"))
_NO_OBJECT: Final = re.compile(pattern("<no object>"))
_LAUGH: Final = re.compile(pattern("<laugh>"))
_LAUGH_CHARS: Final = 40


def _forget(payload: str, *, is_subject: bool = False) -> ForgetCommand | None:
    return ForgetCommand(payload, is_subject) if payload and "\n" not in payload else None


def _forget_statement(payload: str, rest: str) -> ForgetCommand | None:
    """Return the command to forget a statement, given also with what separates it from the phrase."""
    is_apart = rest[:1] not in _COLONS and not rest[:1].isspace()
    is_stated = _STATEMENT.match(payload) is not None and _JUST_SAID.match(payload) is None
    return _forget(payload) if is_stated and not is_apart else None


def _forget_subject(phrase: str, payload: str) -> ForgetCommand | None:
    is_just_said = phrase.lower().startswith("forget") and _DEMONSTRATIVE.match(payload)
    return None if is_just_said else _forget(payload, is_subject=True)


def _forget_own(payload: str) -> ForgetCommand | None:
    is_short = len(payload.split()) <= _SUBJECT_WORDS_MAX and _CLAUSES.search(payload) is None
    return _forget(payload, is_subject=True) if is_short else None


def _recall(payload: str, category: str | None = None) -> RecallCommand:
    return RecallCommand("" if _ONESELF.fullmatch(payload) else payload, category)


def _remember(payload: str) -> RememberCommand | None:
    return RememberCommand(payload) if payload and not _BARE.match(payload) else None


def _note(text: str) -> RememberCommand | None:
    """Return the command of a short text: its first paragraph, with at most a word of thanks after it."""
    first, *rest = _BREAK.split(text)
    is_document = len(rest) > 1 or len("".join(rest)) > _THANKS_CHARS_MAX or len(text) > _NOTE_CHARS_MAX
    return None if is_document else RememberCommand(_strip_end(first))


def _is_rule(phrase: str, payload: str) -> bool:
    """Return whether a phrase with "always" or "never" goes on as a rule does, and not as talk or a joke.

    After a verb of the phrase, an object follows; without one, an imperative.
    """
    from refold.index.terms import forms_of  # noqa: PLC0415 - imported on first use

    if _LAUGH.search(payload[-_LAUGH_CHARS:]):
        return False
    if len(phrase.split()) > 1:
        return _NO_OBJECT.match(payload) is None
    first = payload.split(None, 1)[0].lower()
    is_past = forms_of(first, "none")[0] != first
    return not (is_past or _NO_RULE.match(payload))


_Build: TypeAlias = Callable[[str, str, str], MemoryCommand | None]

# The phrase of each command, and a function of (phrase, text after it, whole text) that builds the command.
_PHRASES: Final[tuple[tuple[re.Pattern[str], _Build], ...]] = (
    (
        re.compile(pattern("<forget statement>")),
        lambda phrase, payload, text: _forget_statement(payload, text[len(phrase) :]),
    ),
    (re.compile(pattern("<forget subject>")), lambda phrase, payload, _: _forget_subject(phrase, payload)),
    (re.compile(pattern("<forget own>")), lambda _, payload, __: _forget_own(payload)),
    (re.compile(pattern("<recall preferences>")), lambda _, payload, __: _recall(payload, "preference")),
    (re.compile(pattern("<recall>")), lambda _, payload, __: _recall(payload)),
    # If more sentences follow, it is part of a story for the model.
    (
        re.compile(pattern("<recall question>")),
        lambda _, payload, __: None if _NEXT.search(payload) else _recall(payload),
    ),
    (re.compile(pattern("<remember phrase>")), lambda _, payload, __: _remember(payload)),
)
# At the beginning of a message only: elsewhere they are mostly talk. A rule keeps its opening words.
_NOTES: Final[tuple[tuple[re.Pattern[str], _Build], ...]] = (
    (re.compile(pattern("<note phrase>")), lambda _, payload, __: _note(payload) if payload else None),
    (
        re.compile(pattern("<rule>")),
        lambda phrase, payload, text: _note(text) if payload and _is_rule(phrase, payload) else None,
    ),
)


class _PlainMessage(NamedTuple):
    """A message without polite words: without the stops at its end, and what it asks."""

    text: str
    is_request: bool
    is_question: bool


def detect_memory_command(text: str) -> MemoryCommand | None:
    """Parse a message as a memory command, or return `None`.

    A request can stand in any sentence of a message of up to 1,500 characters, and at the start of a longer one; what
    is quoted is no request. "Remember that", said after something, means what was said before it. Spaces and full stops
    are removed from the end of the text. "Note" and rules such as "never" are commands only in one short paragraph, and
    forgetting only in one line. "Remember" needs no "that" before a statement about what I, we, or my, our and the
    things are. A request not to remember a message comes before all others. Any other question changes nothing, unless
    it is a request ("can you ...?", "..., okay?"). English, Chinese and Japanese are supported. Raises `InvalidInput`
    if the message is not text, and `LimitExceeded` if it is over `VALUE_BYTES_MAX`. A question that follows what to
    remember is no part of it. "Forget that" needs a statement: "forget that plan" means what was just said. A question
    about oneself alone asks for everything.

    >>> detect_memory_command("Please remember that the tests need Docker.")
    RememberCommand(content='the tests need Docker', importance=0.95)
    >>> detect_memory_command("Remember my birthday is on May 3.")
    RememberCommand(content='my birthday is on May 3', importance=0.95)
    >>> detect_memory_command("always use pnpm")
    RememberCommand(content='always use pnpm', importance=0.95)
    >>> detect_memory_command("What are my preferences?")
    RecallCommand(query='', category='preference')
    """
    message = _read(checks.text(text, "text").strip())
    if is_withheld(text) or _is_withheld(message):
        return WithholdCommand()
    return _parse(message) or _command_of(find_request(text, _parse_clause))


def _read(text: str) -> _PlainMessage:
    """Separate a message from its tags and polite words, such as "please" and "can you"."""
    is_question, is_request = text[-1:] in _QUESTION_MARKS, False
    whole = _strip_end(text)
    if is_question and (tag := _TAG.search(whole[-_TAG_CHARS:])):
        whole, is_question, is_request = _strip_end(whole[: len(whole) - len(tag.group())]), False, True
    if please := _PLEASE.search(whole[-_TAG_CHARS:]):
        whole, is_request = _strip_end(whole[: len(whole) - len(please.group())], also=","), True
    if polite := _POLITE.match(whole):
        whole = whole[polite.end() :]
        is_request |= "you" in polite.group().lower()
    return _PlainMessage(whole, is_request or whole.startswith(_CHINESE_PLEASE), is_question)


def _is_withheld(message: _PlainMessage) -> bool:
    """Return whether a message asks not to be remembered: at its beginning, or at its end if that asks nothing."""
    text, end = message.text, message.text[-_WITHHOLD_CHARS:]
    if first := _WITHHOLD_FIRST.match(text):
        rest = text[first.end() :].strip()
        is_that = first.group().split()[-1].lower() == "that"
        return bool(rest) and (not is_that or _STATEMENT.match(rest) is not None)
    if message.is_question and not message.is_request:
        return False
    is_unsaved = _ABOUT_ME.match(text) is not None and _UNSAVED_LAST.search(end) is not None
    return is_unsaved or _WITHHOLD_LAST.search(end) is not None


def _parse(message: _PlainMessage) -> MemoryCommand | None:
    """Parse a message that begins with a phrase or a statement after "remember"; a question looks up at most."""
    text = message.text
    is_pasted = message.is_question and _BREAK.search(text) is not None
    command = _build(text, _PHRASES) or (None if is_pasted else _build(text, _NOTES))
    if command is None and (statement := bare_statement(text)):
        command = RememberCommand(_GAP.sub("", statement, count=1))
    if isinstance(command, RememberCommand):
        command = RememberCommand(_without_questions(command.content, is_question=message.is_question))
    is_allowed = message.is_request or isinstance(command, RecallCommand) or not _asks_first(message)
    return command if is_allowed else None


def _build(text: str, phrases: Iterable[tuple[re.Pattern[str], _Build]]) -> MemoryCommand | None:
    for phrase, build in phrases:
        if match := phrase.match(text):
            return build(match.group(), _GAP.sub("", text[match.end() :], count=1), text)
    return None


def _asks_first(message: _PlainMessage) -> bool:
    """Return whether the first sentence of a message asks something."""
    stop = _FIRST_STOP.search(message.text)
    is_question = message.is_question if stop is None else stop.group() in _QUESTION_MARKS
    return is_question or message.text.endswith(_CHINESE_QUESTION)


def _without_questions(content: str, *, is_question: bool) -> str:
    """Return a content up to the first question after its first sentence; `is_question` if its end was one."""
    breaks = [(0, 0), *(match.span() for match in _SENTENCES.finditer(content)), (len(content), len(content))]
    for (stop, start), (end, _) in pairwise(breaks):
        is_last = end == len(content)
        if start and (content[end - 1 : end] in _QUESTION_MARKS or (is_last and is_question)):
            return _strip_end(content[:stop])
    return content


def _parse_clause(clause: str) -> MemoryRequest | None:
    """Parse a clause that is not the beginning of the message."""
    command = _build(clause, _PHRASES)
    if isinstance(command, ForgetCommand) and not _ALL.match(command.query):
        return MemoryRequest("forget about" if command.is_subject else "forget", command.query)
    return MemoryRequest("remember", command.content) if isinstance(command, RememberCommand) else None


def _command_of(request: MemoryRequest | None) -> MemoryCommand | None:
    if request is None or (request.kind == "forget" and _JUST_SAID.match(request.content)):
        return None
    payload = _GAP.sub("", request.content, count=1).strip(_EDGES)
    if request.kind in {"preferences", "query"}:
        return _recall(payload, "preference" if request.kind == "preferences" else None)
    if request.kind == "remember":
        return None if _THIS.fullmatch(payload) else _remember(payload)
    is_just_said = _DEMONSTRATIVE.match(payload) is not None
    payload = _CHINESE_MATTER.sub("", payload)
    return None if is_just_said else _forget(payload, is_subject=request.kind == "forget about")


def _strip_end(text: str, also: str = "") -> str:
    """Remove whitespace, full stops and the characters of `also` from the end of a text."""
    return text.rstrip(_SPACES + _STOPS + also)
