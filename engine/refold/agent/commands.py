"""Memory commands: user messages that ask to remember, forget or look up, detected without a model. Pure.

First a message is read as a whole, which starts with one of the phrases below, preceded at most by polite words, or in
Japanese ends with one. If it does not, its sentences are read (`refold.agent.requests`). "Remember" without "that" is a
command only before a plain statement. Forget phrases are matched before recall phrases, and those before remember
phrases, so that "stop remembering" never counts as "remember". A question looks up at most: "Always wear a helmet?" is
no rule. "Forget that" is a command only before a statement: "forget that plan" speaks of what was just said.
"""

import re
from collections.abc import Callable
from itertools import pairwise
from typing import Final, TypeAlias

from msgspec import Struct

from refold import checks
from refold.agent.requests import STATED, VERBS, MemoryRequest, find_request, is_withheld

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

_FORGET: Final = ("forget that", "stop remembering that")
_FORGET_SUBJECT: Final = (
    *("forget about", "stop remembering", "delete memory about", "delete the memory about", "delete memories about"),
    *("delete the memories about", "remove memory about", "remove the memory about", "remove memories about"),
    "remove the memories about",
)
# Other requests to forget a subject, up to it. "Forget my last message" and the like mean what was just said.
_FORGET_OTHERS: Final = re.compile(
    r"forget\s++(?=(?:my|our)\s++(?!(?:last|latest|previous|earlier|first|other|old\s+(?:question|message)|own|little|"
    r"whole|silly|stupid)\b)(?![^\n]{0,120}\b(?:questions?|requests?|messages?|words?|ideas?|suggestions?|comments?|"
    r"remarks?|mistakes?|points?|prompts?|answers?|attempts?|rambling|joke|rant)\s*\Z))|"
    r"(?:forget|delete|erase|remove)\s+(?:everything|anything|all|what(?:ever)?)\s+(?:that\s+)?"
    r"(?:you(?:['\u2019]ve|\s+have)?(?:\s+ever)?\s+(?:know|knew|remember(?:ed)?|stored|saved|kept|learn(?:ed|t))|"
    r"(?:i|we)(?:['\u2019]ve|\s+have)?(?:\s+ever)?\s+(?:said|mentioned|told\s+you|wrote|shared))\s+(?:about|of|on)\s+|"
    r"(?:delete|erase|remove)\s+(?:all\s+|the\s+|any\s+|your\s+)*(?:memory|memories)\s+(?:about|of)\s+|"
    r"(?:delete|erase|remove)\s+(?=my\s++[^\n.,;!?]{1,80}?\s++from\s++(?:your\s++|the\s++)?memory\s*+\Z)",
    re.IGNORECASE,
)
_FROM_MEMORY: Final = re.compile(r"(?<!\s)\s++from\s++(?:your\s++|the\s++)?memory\s*+\Z", re.IGNORECASE)
_SUBJECT_WORDS_MAX: Final = 8
_CLAUSES: Final = re.compile(
    r"[,;:.!?]\s|\b(?:and|but|then|so)\s+(?:let|just|please|we|i|you|do|go|start|use|make)\b", re.IGNORECASE
)
# "What do you know about" is not here: it more often asks the model about the world than about the user.
_QUERY: Final = (
    *("what do you remember", "what do you remember about"),
    *("show me what you remember", "list my memories", "what memories do you have"),
)
# If more sentences follow, it is part of a story for the model.
_QUESTION: Final = ("do you remember",)
_PREFERENCES: Final = (
    "what are my preferences",
    "list my preferences",
    "show me my preferences",
    "show my preferences",
)
# What is left of "what do you remember about me" and the like asks for everything.
_ONESELF: Final = re.compile(
    r"(?:(?:about|of|me|my|us|our|myself|ourselves|mine|all|anything|everything|so|far|already|now)\b[\s,]*)+|"
    "(?:\u5173\u4e8e|\u95dc\u65bc)?\u6211(?:\u4eec|\u5011)?(?:\u81ea\u5df1)?\u7684?"
    "(?:\u4ec0\u4e48|\u4ec0\u9ebc|\u54ea\u4e9b)?(?:\u4e8b\u60c5?|\u4e00\u5207|\u4fe1\u606f|\u8cc7\u8a0a)?[\u5417\u55ce\u5462]?|"
    "(?:\u79c1|\u50d5|\u4ffa|\u81ea\u5206|\u308f\u305f\u3057|\u307c\u304f|\u6211\u3005)(?:\u305f\u3061|\u9054|\u3089|\u81ea\u8eab)?[\u306e\u306f]?",
    re.IGNORECASE,
)
_REMEMBER: Final = (
    *("remember that", "remember:", "remember this:", "keep in mind that", "keep in mind:"),
    *("don't forget that", "don't forget:"),
)
# Pasted documents also start with these words, or with the words of rules: only one short paragraph is a command.
_NOTES: Final = ("note that", "note:")
_NOTE_CHARS_MAX: Final = 1_000
_THANKS_CHARS_MAX: Final = 40
_BREAK: Final = re.compile(r"\n\s*\n|\r\s*\r")
# A rule is stored with its opening words: "pnpm" alone would not be a rule.
_RULES: Final = ("always", "always use", "never", "never do", "never use")
# Continuations of "always" or "never" in talk about oneself: a rule continues with a verb in the imperative.
_NO_RULE: Final = re.compile(
    r"(?!(?:bring|ping|string|swing|sing|ring|cling|feed|need|seed|speed|embed|proceed|exceed|shed)\b)"
    r"(?:[a-z]+(?:ing|ed)|gonna|wanna|gotta|"
    r"(?:have|do|does)(?:n['\u2019]t)?\s+(?:i|you|he|she|we|they)|"
    r"would|could|should|might|may|will|shall|can|cannot|before|not|to|that|what|when|late|early|busy|alone|a|an|the|in|on|by|at|with|for|from|so|too|this|that|here|there|mind|again|ever|once|such|"
    r"i|you|he|she|it|we|they|am|is|are|was|were|been|had|has|got|did|done|gone|seen|heard|thought|knew|known|felt|"
    r"said|told|met|found|made|took|taken|went|came|saw|gave|read\s+it|easy|hard|good|great|nice|fun|happy|glad|sad|"
    r"ready|sure|welcome|worth|important|interesting|amazing|better|best|worse|more|less|enough|one|my|your|our|his|her|"
    r"their|quite|really|very|pretty|just|nobody|anything|nothing)\b|\W",
    re.IGNORECASE,
)
# What "always use" or "never do" speaks of, if it says nothing without the messages before it, or is no object.
_NO_OBJECT: Final = re.compile(
    r"(?:it|them|this|that|these|those|one|anything|nothing)(?=\s*(?:\Z|[.,;:!?]|(?:again|any\s?more|either|too|"
    r"anyway|now|then|here|there)\b))|(?:i|you|he|she|we|they|to)\b|\W*\Z",
    re.IGNORECASE,
)
_LAUGH_CHARS_MAX: Final = 40
_LAUGH: Final = re.compile(
    r"(?:\b(?:(?:ha|he){2,}h?|lol|lmao|rofl)|[:;]-?[)D]|[\U0001f600-\U0001f606\U0001f923])\s*\Z", re.IGNORECASE
)
# After "forget that", a statement begins with a word that cannot follow a demonstrative, or has a verb soon after its
# first noun. "That plan", "that question I asked" and "that, let us go on" mean what was just said.
_SUBJECT: Final = (
    r"(?:(?:i|you|he|she|it|we|they|my|your|his|her|our|their|the|an?|this|these|those|there|all|any|both|each|every|"
    r"everyone|everybody|nobody|no|some|most|many|always|never)(?:['\u2019][a-z]+)?\s+\w)"
)
_BARE_VERBS: Final = (
    r"(?:am|go|like|love|hate|prefer|need|want|use|live|work|eat|drink|speak|run|have|do|make|take|cost|start|end|get|"
    r"ran|went|got|had|did|made|took|bought|sold|said|told|wrote|left|won|lost|met|saw|came|became|knew|ate|drank)\b"
)
_BREAKING: Final = (
    r"(?:i|you|he|she|it|we|they|who|which|that|because|since|as|if|when|where|and|or|but|for|of|from|with|about|in|on|"
    r"at|to|please|now)\b"
)
_ENDING_S: Final = r"[a-z]+(?<![siu'\u2019])s\b"
_PLURAL: Final = rf"{_ENDING_S}\s+{_BARE_VERBS}"
_PAST: Final = (
    r"(?:became|bought|called|changed|drove|got|had|joined|left|lived|lost|made|married|met|moved|owned|quit|ran|sold|"
    r"started|stopped|studied|took|used|wanted|went|won|worked|wrote)\b"
)
_MODAL: Final = r"(?:may|might|could|would|shall)\b"
_TERM: Final = r"[\w'\u2019.+#&/`*-]+"  # A word, or a name such as node.js, C++ or AT&T.
_NAME: Final = r"(?-i:[A-Z])[\w'\u2019.&-]*"
_STATEMENT: Final = re.compile(
    rf"[\"'\u201c\u2018(]*+(?:{_SUBJECT}|{_PLURAL}|"
    rf"(?!{_BREAKING}){_TERM}\s+(?:(?!{_BREAKING}){_TERM}\s+){{0,3}}?(?:{VERBS}|{_ENDING_S}|{_MODAL}|{_PAST})|"
    rf"{_NAME}(?:,?\s+(?:and\s+|of\s+)?{_NAME}){{0,3}}\s+(?:{VERBS}|{_MODAL}|{_BARE_VERBS}|[a-z]+ed\b)|"
    r"[\u3041-\u30ff\u3400-\u9fff\uac00-\ud7af])",
    re.IGNORECASE,
)
# "Forget that I asked" means what was just said, too.
_JUST_SAID: Final = re.compile(
    r"(?:(?:i|we|you)(?:['\u2019]ve|\s+have|\s+had)?\s+(?:just\s+|ever\s+|even\s+)*"
    r"(?:asked|said|mentioned|wrote|suggested|told\s+(?:you|me)|brought\s+(?:it|that|this)\s+up)"
    r"(?:\s+(?:it|that|this|so|you|me|anything|something|before|earlier))*|"
    r"(?:(?:all|any)\s+(?:of\s+)?)?(?:it|this|that)\s+(?:(?:just|ever|even)\s+)*happened)\Z",
    re.IGNORECASE,
)
_DEMONSTRATIVE: Final = re.compile(
    r"(?:that|this|it|them|those|these)\b(?!\s+(?:is|are|was|were)\b)|"
    "[\u90a3\u9019\u8fd9]|\u521a\u624d|\u525b\u624d|\u4e0a\u9762|[\u3053\u305d\u3042](?:\u306e|\u308c|\u3046|\\Z)|\u4eca\u306e|\u3055\u3063\u304d",
    re.IGNORECASE,
)
_BARE: Final = re.compile(r"(?:the|an?|i|we|you|he|she|it|they|my|our|your|this|that|these|those)\Z", re.IGNORECASE)
# A request not to remember the message that it is in. "Don't remember that one", "don't save that file" and "don't save
# this: it breaks the build" are none. "(I) don't remember that" answers a question of the model.
_NOT: Final = r"(?:do\s+not|don['\u2019]?t|never)\s+"
_MINE: Final = r"(?:i|we|my|our)\b"
_WITHHOLD: Final = re.compile(
    rf"{_NOT}(?:remember|memori[sz]e|save|store|record|keep|note|write\s+down)\s+"
    r"(?:(?:this|that|it|any\s+of\s+(?:this|it)|the\s+following)\s*(?:[:\uff1a](?!\s*it\s+(?!is\b|was\b))|\s[-\u2013\u2014]\s)|"
    rf"that\s+(?=\S)|(?:this|any\s+of\s+this)(?:[.!]\s+(?={_MINE})|,?\s+but\s+(?={_MINE})))|"
    rf"{_NOT}(?:remember|memori[sz]e)\s+(?:this|any\s+of\s+this)[.!]\s|"
    r"(?:this\s+is\s+|strictly\s+|just\s+)?(?:off\s+the\s+record)\s*(?:[,:;\u2013\u2014-]|but\b)",
    re.IGNORECASE,
)
# "I read it, but don't remember it" says that I do not.
_WITHHOLD_END: Final = re.compile(
    r"(?:(?:\A|[.!?,;(\u2013\u2014-]\s{0,3}|\s(?:but|and|so)\s)(?:(?:but|and|so)[\s,]{1,3})?(?:please|pls)[\s,]{1,3}"
    rf"{_NOT}(?:remember|memori[sz]e)\s+(?:this|that|it|any\s+of\s+(?:this|that|it))|"
    rf"[.!?,;(\u2013\u2014-]\s{{0,3}}{_NOT}(?:remember|memori[sz]e)\s+(?:that|any\s+of\s+(?:that|it))|"
    r"(?:\A|[.!?,;(\u2013\u2014-]\s{0,3}|\s(?:but|and|so)\s)(?:(?:but|and|so|please|pls)[\s,]{1,3}){0,2}"
    rf"(?:{_NOT}(?:(?:remember|memori[sz]e)\s+(?:this|any\s+of\s+this)|"
    r"(?:save|store|record|keep|note|put|write)\s+(?:(?:this|that|it|any\s+of\s+(?:this|that|it))\s+)"
    r"(?:down\s+)?(?:in(?:to)?|to)\s+(?:your\s+|the\s+)?memory)|"
    r"(?:(?:this|that|it)(?:['\u2019]s|\s+is)|(?:keep|leave)\s+(?:this|that|it))\s+off\s+the\s+record))\)?\Z",
    re.IGNORECASE,
)
# After a statement about oneself. "Edit the file, but don't save it" is none.
_ABOUT_ME: Final = re.compile(_MINE, re.IGNORECASE)
_UNSAVED_END: Final = re.compile(
    r"[.!?,;(\u2013\u2014-]\s{0,3}(?:(?:but|and|so|please|pls)[\s,]{1,3}){0,2}"
    rf"{_NOT}(?:save|store|record|note|write\s+down)\s+(?:this|that|any\s+of\s+(?:this|that))\)?\Z",
    re.IGNORECASE,
)
_WITHHOLD_CHARS_MAX: Final = 120
_FIRST_STOP: Final = re.compile(r"[?.!](?=[\s?.!\"')\]]|\Z)|[\uff1f\u3002\uff01\uff0e\uff61]")
_STOPS: Final = ".?!\u3002\uff1f\uff01\uff0e\uff61"
_QUESTION_MARKS: Final = "?\uff1f"
_COLONS: Final = ":\uff1a"
_SEPARATORS: Final = f"{_COLONS},\uff0c\u3001"
_SENTENCES: Final = re.compile(r"(?<=[.?!])\s+|(?<=[\u3002\uff01\uff1f])\s*|(?<!\s)[^\S\n]*+\n\s*")
_NEXT: Final = re.compile(rf"[{_STOPS}]\s*\S")
_EDGES: Final = f" {_SEPARATORS}{_STOPS}"
_GAP: Final = re.compile(rf"\A[\s{_SEPARATORS}]+")
_POLITE: Final = re.compile(
    r"(?:(?:please|pls|kindly|hey|hi|hello|ok(?:ay)?|also|"
    r"from\s+now\s+on|going\s+forward|(?:remember\s+to|make\s+sure\s+(?:to|you))(?=\s+(?:always|never)\b)|"
    r"(?:can|could|would|will)\s+you|i\s+(?:want|need|would\s+like)\s+you\s+to|i['\u2019]d\s+like\s+you\s+to)[\s,!]+)+",
    re.IGNORECASE,
)
_PLEASE: Final = "please"
# Before a question mark, they make a request of a statement.
_TAG: Final = re.compile(
    r"[,.!;\uff0c\u3002]\s{0,9}(?:ok(?:ay)?|all\s?right|(?:will|would|can|could)\s{1,9}you|(?:\u597d|\u884c|\u53ef\u4ee5)[\u5417\u55ce])\Z",
    re.IGNORECASE,
)
_TAG_CHARS_MAX: Final = 40
_CHINESE_PLEASE: Final = ("\u8bf7", "\u8acb")
_CHINESE_QUESTION: Final = ("\u5417", "\u55ce")
# "The matter of", after what is to be forgotten.
_CHINESE_MATTER: Final = re.compile(
    "(?:\u7684(?:\u4e8b\u60c5?|\u4fe1\u606f|\u8cc7\u8a0a|\u8bb0\u5fc6|\u8a18\u61b6)|[\u8fd9\u9019]\u4ef6\u4e8b\u60c5?)\\Z"
)


def _pattern(phrases: tuple[str, ...]) -> re.Pattern[str]:
    """Compile a pattern for the longest of the phrases at the start of a text, with any whitespace between words."""
    shapes: list[str] = []
    for phrase in sorted(phrases, key=len, reverse=True):
        words = r"\s+".join(re.escape(word) for word in phrase.removesuffix(":").split())
        end = rf"\s*[{_COLONS}]" if phrase.endswith(":") else rf"(?=[\s{_SEPARATORS}{_STOPS}]|$)"
        shapes.append(words.replace("'", "['\u2019]") + end)
    return re.compile("|".join(shapes), re.IGNORECASE)


def _forget_command(payload: str, *, is_subject: bool = False) -> ForgetCommand | None:
    return ForgetCommand(payload, is_subject) if payload and "\n" not in payload else None


def _forget_statement(payload: str, rest: str) -> ForgetCommand | None:
    """Return the command to forget a statement, given also with what separates it from the phrase."""
    is_apart = rest[:1] not in _COLONS and not rest[:1].isspace()
    is_stated = _STATEMENT.match(payload) is not None and _JUST_SAID.match(payload) is None
    return _forget_command(payload) if is_stated and not is_apart else None


def _forget_subject(phrase: str, payload: str) -> ForgetCommand | None:
    is_just_said = phrase.lower().startswith("forget") and _DEMONSTRATIVE.match(payload)
    return None if is_just_said else _forget_command(payload, is_subject=True)


def _forget_other(payload: str) -> ForgetCommand | None:
    payload = _FROM_MEMORY.sub("", payload)
    is_short = len(payload.split()) <= _SUBJECT_WORDS_MAX and _CLAUSES.search(payload) is None
    return _forget_subject("forget", payload) if is_short else None


def _is_withheld(whole: str, *, is_asked: bool) -> bool:
    """Return whether a message asks not to be remembered: at its beginning, or at its end if that asks nothing."""
    match = _WITHHOLD.match(whole)
    if match is not None:
        rest = whole[match.end() :].strip()
        is_that = match.group().split()[-1].lower() == "that"
        return bool(rest) and (not is_that or _STATEMENT.match(rest) is not None)
    end = whole[-_WITHHOLD_CHARS_MAX:]
    is_unsaved = _ABOUT_ME.match(whole) is not None and _UNSAVED_END.search(end) is not None
    return not is_asked and (is_unsaved or _WITHHOLD_END.search(end) is not None)


def _recall_command(payload: str, category: str | None = None) -> RecallCommand:
    return RecallCommand("" if _ONESELF.fullmatch(payload) else payload, category)


def _remember_command(payload: str) -> RememberCommand | None:
    return RememberCommand(payload) if payload and not _BARE.match(payload) else None


def _note_command(text: str) -> RememberCommand | None:
    """Return the command of a short text: its first paragraph, with at most a word of thanks after it."""
    first, *rest = _BREAK.split(text)
    is_document = len(rest) > 1 or len("".join(rest)) > _THANKS_CHARS_MAX or len(text) > _NOTE_CHARS_MAX
    return None if is_document else RememberCommand(_strip_end(first))


def _is_rule(phrase: str, payload: str) -> bool:
    """Return whether a phrase with "always" or "never" goes on as a rule does, and not as talk or a joke.

    After a verb of the phrase, an object follows; without one, an imperative.
    """
    from refold.index.terms import forms_of  # noqa: PLC0415 - imported on first use

    if _LAUGH.search(payload[-_LAUGH_CHARS_MAX:]):
        return False
    if len(phrase.split()) > 1:
        return _NO_OBJECT.match(payload) is None
    first = payload.split(None, 1)[0].lower()
    is_past = forms_of(first, "none")[0] != first
    return not (is_past or _NO_RULE.match(payload))


_NOTE: Final = _pattern(_NOTES)
_RULE: Final = _pattern(_RULES)

# The phrases of each command, and a function of (phrase, text after it, whole text) that builds the command.
_COMMANDS: Final[tuple[tuple[re.Pattern[str], Callable[[str, str, str], MemoryCommand | None]], ...]] = (
    (_pattern(_FORGET), lambda phrase, payload, text: _forget_statement(payload, text[len(phrase) :])),
    (_pattern(_FORGET_SUBJECT), lambda phrase, payload, _: _forget_subject(phrase, payload)),
    (_FORGET_OTHERS, lambda _, payload, __: _forget_other(payload)),
    (_pattern(_PREFERENCES), lambda _, payload, __: _recall_command(payload, "preference")),
    (_pattern(_QUERY), lambda _, payload, __: _recall_command(payload)),
    (_pattern(_QUESTION), lambda _, payload, __: None if _NEXT.search(payload) else _recall_command(payload)),
    (_pattern(_REMEMBER), lambda _, payload, __: _remember_command(payload)),
    (_NOTE, lambda _, payload, __: _note_command(payload) if payload else None),
    (_RULE, lambda phrase, payload, text: _note_command(text) if payload and _is_rule(phrase, payload) else None),
)


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
    said = checks.text(text, "text").lstrip()
    whole, is_request = _strip_end(said), False
    tag = _TAG.search(whole[-_TAG_CHARS_MAX:]) if said.rstrip()[-1:] in _QUESTION_MARKS else None
    if tag is not None:
        whole, is_request = _strip_end(whole[: len(whole) - len(tag.group())]), True
    if whole[-len(_PLEASE) :].lower() == _PLEASE:
        # Not a regular expression: searching for spaces before a word takes quadratic time in their number.
        request = whole[: -len(_PLEASE)]
        if request[-1:].isspace() or request[-1:] == ",":
            whole, is_request = _strip_end(request, also=","), True
    polite = _POLITE.match(whole)
    if polite is not None:
        said, whole = said[polite.end() :], whole[polite.end() :]
        is_request |= "you" in polite.group().lower()
    if is_withheld(text) or _is_withheld(whole, is_asked=not is_request and said.rstrip()[-1:] in _QUESTION_MARKS):
        return WithholdCommand()
    command = _parse_command(said, whole)
    if isinstance(command, RememberCommand):
        is_asked = tag is None and said.rstrip()[-1:] in _QUESTION_MARKS
        command = RememberCommand(_without_questions(command.content, is_asked=is_asked), command.importance)
    is_request |= whole.startswith(_CHINESE_PLEASE)
    if command is None or (not is_request and not isinstance(command, RecallCommand) and _is_question(said, whole)):
        return _command_of(find_request(text, _parse_phrase))
    return command


_ALL: Final = re.compile(r"(?:everything|anything|all)\b", re.IGNORECASE)


def _parse_phrase(clause: str) -> MemoryRequest | None:
    """Parse a clause that is not the beginning of the message, where notes and rules are mostly talk."""
    for pattern, command in _COMMANDS:
        match = pattern.match(clause)
        if match is not None and pattern not in (_NOTE, _RULE):
            found = command(match.group(), _GAP.sub("", clause[match.end() :], count=1), clause)
            if isinstance(found, ForgetCommand) and not _ALL.match(found.query):
                return MemoryRequest("forget about" if found.is_subject else "forget", found.query)
            return MemoryRequest("remember", found.content) if isinstance(found, RememberCommand) else None
    return None


def _command_of(request: MemoryRequest | None) -> MemoryCommand | None:
    if request is None:
        return None
    if request.kind == "forget" and _JUST_SAID.match(request.content):
        return None
    return _make_command(request.kind, request.content)


def _without_questions(content: str, *, is_asked: bool) -> str:
    """Return a content up to the first question after its first sentence; `is_asked` if its end was a question."""
    breaks = [(0, 0), *(match.span() for match in _SENTENCES.finditer(content)), (len(content), len(content))]
    for (stop, start), (end, _) in pairwise(breaks):
        is_last = end == len(content)
        if start and (content[end - 1 : end] in _QUESTION_MARKS or (is_last and is_asked)):
            return _strip_end(content[:stop])
    return content


def _is_question(said: str, whole: str) -> bool:
    """Return whether the first sentence of a message asks something."""
    stop = _FIRST_STOP.search(said)
    return whole.endswith(_CHINESE_QUESTION) or (stop is not None and stop.group() in _QUESTION_MARKS)


def _parse_command(said: str, whole: str) -> MemoryCommand | None:
    """Parse a message without its polite words, given also without the full stops at its end."""
    for pattern, command in _COMMANDS:
        match = pattern.match(whole)
        if match is not None:
            if pattern in (_NOTE, _RULE) and _BREAK.search(whole) and said.rstrip()[-1:] in _QUESTION_MARKS:
                return None  # It asks about pasted text.
            return command(match.group(), _GAP.sub("", whole[match.end() :], count=1), whole)
    if STATED.match(whole):
        return RememberCommand(_GAP.sub("", whole[len("remember") :], count=1))
    return None


def _strip_end(text: str, also: str = "") -> str:
    """Remove whitespace, full stops and the characters of `also` from the end of a text."""
    end = len(text)
    while end and (text[end - 1].isspace() or text[end - 1] in _STOPS + also):
        end -= 1
    return text[:end]


_THIS: Final = re.compile(
    "[\u3053\u305d\u3042](?:\u308c|\u306e.{0,3})|[\u8fd9\u9019\u90a3].{0,3}|\u5b83|.{0,2}\u540d\u5b57"
)


def _make_command(kind: str, payload: str) -> MemoryCommand | None:
    payload = _GAP.sub("", payload, count=1).strip(_EDGES)
    if kind in ("preferences", "query"):
        return _recall_command(payload, "preference" if kind == "preferences" else None)
    if kind.startswith("forget"):
        is_just_said = _DEMONSTRATIVE.match(payload)
        payload = _CHINESE_MATTER.sub("", payload)
        return None if is_just_said else _forget_command(payload, is_subject=kind == "forget about")
    return None if _THIS.fullmatch(payload) else _remember_command(payload)
