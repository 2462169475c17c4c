"""Memory commands: user messages that ask to remember, forget or look up, detected without a model. Pure.

`refold.agent.requests` finds a request in the sentences of a message; here it becomes a command, if it says enough.
"""

import re
from typing import Final, TypeAlias

from msgspec import Struct

from refold import checks
from refold.agent.request_words import pattern
from refold.agent.requests import MemoryRequest, find_request

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

_EDGES: Final = " :\uff1a,\uff0c\u3001.?!\u3002\uff1f\uff01\uff0e\uff61"
_BARE: Final = re.compile(pattern(r"(?:the|an?|i|we|you|he|she|it|they|my|our|your|this|that|these|those)\Z"))
_ONESELF: Final = re.compile(pattern("<oneself>"))
_JUST_SAID: Final = re.compile(pattern("<just said>|<demonstrative>"))
# "The matter of", and "this" or "its name", in Chinese and Japanese.
_CHINESE_MATTER: Final = re.compile(pattern(r"<zh matter>\Z"))
_THIS: Final = re.compile(pattern("<this alone>"))


def detect_memory_command(text: str) -> MemoryCommand | None:
    """Parse a message as a memory command, or return `None`.

    Rules act only where nothing else can be meant; what they miss is left to the model and its tools. A request can
    stand in any sentence of the first paragraph of a message of up to 1,500 characters, and in a question only if that
    asks for it ("can you ...?", "..., okay?"). What is quoted, or follows "Translate:" and the like, is no request.
    English, Chinese and Japanese are supported.

    - Remember: "remember that ...", "remember my ... is ...", "for future reference, ...", "note that ..." and rules
      ("always use ...", "from now on, ..."). At the beginning of a message, statements that follow are part of it, up
      to a question or an order.
    - Forget: "forget that ...", "delete what you know about ...", "remove ... from your memory", "forget my ...", and
      "forget about ..." as the whole message. Nothing is forgotten on a condition or "for now".
    - Look up: "what do you remember about ...", "what are my preferences". About oneself, it asks for everything.
    - Withhold, which goes before all but a "remember" at the beginning: "don't remember this", "keep this out of your
      memory", "off the record"; also at the start or end of a longer text, and as a last paragraph of its own.

    Raises `InvalidInput` if the message is not text, and `LimitExceeded` if it is over `VALUE_BYTES_MAX`.

    >>> detect_memory_command("Please remember that the tests need Docker.")
    RememberCommand(content='the tests need Docker', importance=0.95)
    >>> detect_memory_command("Remember my birthday is on May 3.")
    RememberCommand(content='my birthday is on May 3', importance=0.95)
    >>> detect_memory_command("always use pnpm")
    RememberCommand(content='always use pnpm', importance=0.95)
    >>> detect_memory_command("What are my preferences?")
    RecallCommand(query='', category='preference')
    """
    request = find_request(checks.text(text, "text"))
    return None if request is None else _command_of(request)


def _command_of(request: MemoryRequest) -> MemoryCommand | None:
    payload = request.content.strip(_EDGES)
    if request.kind == "withhold":
        return WithholdCommand()
    if request.kind in {"preferences", "query"}:
        is_whole = _ONESELF.fullmatch(payload) is not None
        return RecallCommand("" if is_whole else payload, "preference" if request.kind == "preferences" else None)
    if request.kind == "remember":
        is_empty = not payload or _THIS.fullmatch(payload) or _BARE.match(payload)
        return None if is_empty else RememberCommand(payload)
    payload = _CHINESE_MATTER.sub("", payload)
    is_empty = not payload or _JUST_SAID.match(payload)
    return None if is_empty else ForgetCommand(payload, is_subject=request.kind == "forget about")
