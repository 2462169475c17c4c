"""Requests to the memory anywhere in a message, such as "Thanks! By the way, keep in mind that ...". Pure.

Each sentence is parsed from its start, and from each "so", "but" or "please" after a comma, without polite and
introductory words. What is quoted, code, and long messages are left out: they are about something else.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from refold.agent.request_words import patterns


class MemoryRequest(NamedTuple):
    """What is asked of the memory: "remember", "forget", "forget about", "preferences" or "query", and of what."""

    kind: str
    content: str = ""


_CHARS_MAX: Final = 1_500  # Longer messages are pasted text.
_SENTENCES_MAX: Final = 12
_STARTS_MAX: Final = 8
_CODE: Final = "```"
_QUOTED: Final = re.compile(
    r'"[^"\n]{1,400}"|\u201c[^\u201d\n]{1,400}\u201d|\u201e[^\u201c\u201d\n]{1,400}[\u201c\u201d]|`[^`\n]{1,400}`|'
    r"(?<!\w)'[^'\n]{2,400}'(?!\w)|[\u300c\u300e\u300a][^\u300d\u300f\u300b\n]{1,400}[\u300d\u300f\u300b]"
)
_QUOTE: Final = "\u25a1"  # Stands for each character of a quotation.
_PLAIN: Final = {ord("\u2019"): "'", ord("\t"): " ", ord("\u00a0"): " ", ord("\uff1a"): ":"}
_END: Final = re.compile(
    r"(?<=[.!?])\s+|(?<=[\u3002\uff01\uff1f])\s*|(?<!\n)\n\s*|(?<=[)])\s(?=[A-Z])|(?<=\w)\s(?=[:;]-?[)D])"
)
# Before a question mark, they make a request of a statement.
_TAG: Final = re.compile(
    r"[,.!;] ?(?:ok(?:ay)?|k|all ?right|yeah|please|pls|(?:will|would|can|could) you(?: (?:do that|please|"
    r"manage that))?|"
    r"is that (?:ok|possible|okay)|got it|deal) ?\?\Z",
    re.IGNORECASE,
)
_TAG_CHARS: Final = 40
_EDGES: Final = " \t.!?,;:~()\u2013\u2014-\u3002\uff01\uff1f\uff0c\u3001\uff1b\uff1a\u301c\uff5e\uff08\uff09"
_THANKS: Final = re.compile(
    r"(?:[:;]-?[)D(P]|<3|[\U0001f300-\U0001faff]|\b(?:haha|hehe|lol|thx|thanks|thank you|please|pls|ok|okay)|"
    "\u597d\u5417|\u597d\u55ce|\u597d\u4e0d\u597d|\u884c\u5417|\u53ef\u4ee5\u5417|\u8c22\u8c22|\u8b1d\u8b1d)\\Z",
    re.IGNORECASE,
)
_CJK: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_KANA: Final = re.compile("[\u3040-\u30ff]")
# Words that introduce a request, and those that make one polite.
_LEAD: Final = re.compile(
    r"(?:(?:hey|hi|hello|hallo|ok|okay|so|well|and|but|also|then|oh|ah|hm+|btw|by the way|fyi|thanks|thank you|thx|"
    r"great|perfect|yes|yeah|no(?=[,.!])|sure|ha(?:ha)+|lol|sorry|alright|right|now|anyway|again|first|finally|listen|"
    r"look|one (?:more|last|quick) thing(?! to)|quick (?:thing|note|one|question|favou?r)|no worries|remind me|"
    r"just so you know(?: for (?:next time|later))?|for (?:next time|later|the future)|(?:just )?for the "
    r"record|important|"
    r"(?:i'?m|im) (?:just )?(?:curious|wondering)|i wonder|just (?:curious|checking)|out of curiosity|if "
    r"(?:possible|you "
    r"can)|note to self(?: via you)?|new (?:job|project|year|plan)s?)(?: ?[,.!:;\u2013\u2014] {0,2}| - | )|"
    r"(?:quick (?:thing|note|one|question)|(?:while|when) you'?re at it|before (?:we|i|you)|since|because|as|if|when|"
    r"while|after)\b[^,.:!?\n]{0,60}[,:] {0,2}){1,6}",
    re.IGNORECASE,
)
_ASK: Final = re.compile(
    r"(?:(?:please|pls|plz|kindly|just|also|do(?= (?:please|remember|keep|make|note|forget)\b)|really|"
    r"always(?= (?:remember|keep|bear))|better|maybe|(?:can|could|would|will|can't|couldn't|won't) (?:you|"
    r"u|we|i (?:ask|"
    r"get) you to)(?: please| maybe| also| just| mind)?|you (?:can|may|should|could|must|need to|have to|might want to|"
    r"had better)(?: now| please| also| just)?|(?:i|we|i'd|we'd|id)(?: would)?(?: really| also| just)? "
    r"(?:want|need|like|"
    r"love|prefer|ask|appreciate)(?: for)? (?:you to|it if you(?: could| would)?|if you(?: could| would)?)"
    r"|(?:it would|it'd|"
    r"would) (?:help|be (?:nice|great|good|cool|helpful|lovely|best|possible for you to))(?: a lot| me)"
    r"?(?: if you(?: could| "
    r"would)?)?|make sure (?:to|that you|you)|be sure to|try to|feel free to|go ahead and|let'?s|is it possible to|"
    r"i'd rather you|you'?re allowed to|would you mind|mind if you)[ ,]{1,3}){1,4}",
    re.IGNORECASE,
)
_CLAUSE: Final = re.compile(
    r"(?:[,;(\u2013\u2014]| -) {0,2}(?=(?:so|and|but|then|please|pls|plz|just|can you|could you|you should|you need|"
    r"for future|from now)\b)| (?=(?:so|and|but) (?:please |pls |just |can you |could you |also |do )"
    r"?(?:remember|forget|"
    r"keep|don'?t|delete|erase|remove|note|save|make)\b)|\((?=do|please|pls|off|not|no\b)",
    re.IGNORECASE,
)
_OWN_WORDS: Final = re.compile(r"\b(?:i|i'm|im|we|my|our|me|us|mine|ours|we're|i'll|i've)\b", re.IGNORECASE)
_OWN_STATEMENT: Final = re.compile(r"(?:i|we|my|our|i'm)\b", re.IGNORECASE)
_ADVICE: Final = re.compile(r"you(?:'re)?\b", re.IGNORECASE)  # Not of the one who says it.
_BACK: Final = re.compile(r"(?:this|that|it|them|those|these)\b", re.IGNORECASE)
_OF_THIS: Final = re.compile(r"\b(?:this|that|it|the following|message|these|anything|what i)\b", re.IGNORECASE)
_WHY: Final = re.compile(
    r" *(?:why|what|how|is|are|was|were|did|does|do you|has|have|had|which|who|where|when)\b", re.IGNORECASE
)
_DELETED: Final = re.compile(
    r"\b(?:forget|delete|erase|remove|wipe|clear|purge|drop|get rid|scratch|any ?more|any longer)\b", re.IGNORECASE
)
_FALSE: Final = re.compile(
    r",? (?:is|are|was|were|should|must|can|that'?s|which is|it'?s)(?:n't| not| now| no longer| all){0,2} "
    r"(?:wrong|outdated|"
    r"old|false|not true|true|correct|go|be gone|nonsense|incorrect|over|history|needed|relevant)\b.{0,60}\Z|"
    r"(?<=\w) (?:any ?more|any longer|now|again|please|pls|too|as well|completely|altogether|for good|right away)\Z",
    re.IGNORECASE,
)

# Statements after "remember" without "that": what I or we, or something of ours, is or does. Stories and questions
# start differently: "remember the time we", "remember I told you", "remember my name".
_OUR_VERBS: Final = (
    r"(?:am|are|have(?!\s+(?:been|told|said|asked|mentioned|shown|given|seen|done|met|had)\b)|was\s+born|own|like|love|"
    r"hate|prefer|want|need|use|live|work|eat|drink|speak|meet|run|build|test|write|keep|store|host|support|release|"
    r"ship|deploy|follow|can|cannot|must|should|will|do\s+not|would\s+(?:like|prefer|rather)|"
    r"(?:are|do|ca|wo|should|must)n['\u2019]t)\b"
)
VERBS: Final = (
    r"(?:(?:is|are|was|were|has|have|cannot|should|always|never|(?:do|does)\s+not|"
    r"(?:is|are|was|were|do|does|ca|wo|should|must|has|have)n['\u2019]t)\b|"
    r"(?:can|must|will)\b(?!\s+(?:of|for|in|on|at|by|with|to)\b)|"
    r"(?:needs?|uses?|prefers|likes|loves|hates|wants|lives|works|runs|starts|ends|opens|closes|costs|expires)\b"
    r"(?!\s+(?:of|for)\b))"
)
_NOUN: Final = (
    r"(?!(?:i|you|he|she|it|we|they|me|us|him|her|them|my|your|his|our|their|its|the|an?|th(?:is|at|ese|ose)|who|whom|"
    r"whose|which|what|when|where|why|how|if)\b)[\w'\u2019-]+"
)
# "The meeting time is" is a statement; "the first time Anna was" starts a story.
_MOMENT: Final = (
    r"(?:time|moment|occasion|day|night|morning|evening|afternoon|week|weekend|month|summer|winter|year)s?\b"
)
STATED: Final = re.compile(
    r"remember[\s,]+(?:(?:i|we)(?:['\u2019](?:m|re|ll|d\s+(?:like|prefer|rather))|"
    rf"\s+(?:(?:always|never|usually|only|also|still|now|just|really)\s+){{0,2}}{_OUR_VERBS})|"
    r"(?:my|our|the)\s+(?:(?:(?:and|of|for|in|on|at|to|from|with|by)\s+(?:my|our|your|the|an?)|"
    rf"(?!{_MOMENT}){_NOUN})\s+){{0,6}}{_NOUN}(?:\s+and\s+i)?\s+{VERBS})\s+\w",
    re.IGNORECASE,
)


def _match(table: str, text: str) -> re.Match[str] | None:
    return next((match for pattern in patterns()[table] if (match := pattern.match(text)) is not None), None)


def _search(table: str, text: str) -> re.Match[str] | None:
    return next((match for pattern in patterns()[table] if (match := pattern.search(text)) is not None), None)


class _Sentence(NamedTuple):
    """A sentence of a message: without what it quotes, and as it is written."""

    plain: str
    written: str
    is_question: bool

    def cut(self, match: re.Match[str], offset: int) -> str:
        """Return what a match in the plain text after an offset is about, as it is written."""
        start, end = match.span("what")
        return _strip(self.written[offset + start : offset + end])


def _strip(text: str) -> str:
    """Remove what ends a sentence, and thanks and smileys there."""
    text = text.strip().rstrip(_EDGES)
    for _ in range(3):
        shorter = _THANKS.sub("", text[-_TAG_CHARS:])
        text = (text[:-_TAG_CHARS] + shorter).rstrip(_EDGES)
    return text.strip(" \t,:;\uff1a\uff0c")


def _sentences(text: str) -> list[_Sentence]:
    """Split a message; an empty list if it is too long to be talk."""
    if len(text) > _CHARS_MAX or _CODE in text:
        return []
    plain = _QUOTED.sub(lambda match: _QUOTE * len(match.group()), text).translate(_PLAIN)
    sentences, start = list[_Sentence](), 0
    for end, following in [*(match.span() for match in _END.finditer(plain)), (len(plain), len(plain))]:
        sentence = plain[start:end].rstrip(" )\uff09")
        if sentence:
            is_question = sentence[-1] in "?\uff1f" and _TAG.search(sentence[-_TAG_CHARS:]) is None
            sentences.append(_Sentence(plain[start:end], text[start:end], is_question))
        start = following
    return sentences if len(sentences) <= _SENTENCES_MAX else []


def is_withheld(text: str) -> bool:
    """Return whether any sentence of a message asks not to remember the message.

    >>> is_withheld("I am pregnant (please keep this out of your memory). May I eat sushi?")
    True
    """
    sentences = _sentences(text)
    return any(map(_asks_to_withhold, sentences)) or _is_private(sentences)


def find_request(text: str, parse: Callable[[str], MemoryRequest | None] = lambda _: None) -> MemoryRequest | None:
    """Return the first request to the memory in a message, or ``None``.

    ``parse`` reads a clause that has no request that is known here.

    >>> find_request("That was great! By the way, keep in mind that I am vegan. What is for lunch?")
    MemoryRequest(kind='remember', content='I am vegan')
    >>> find_request("Thanks. Please delete what you know about my job.")
    MemoryRequest(kind='forget about', content='my job')
    """
    sentences = _sentences(text)
    for number, sentence in enumerate(sentences):
        is_foreign = _CJK.search(sentence.plain) is not None
        request = _foreign(sentences, number) if is_foreign else _english(sentences, number, parse)
        if request is not None:
            return request
    return None


def _cores(sentence: _Sentence) -> Iterator[tuple[int, str, bool]]:
    """Yield where a request can begin in a sentence, the text from there, and whether it is asked for."""
    plain = sentence.plain
    first = len(plain) - len(plain.lstrip(" ("))
    for start in [first, *(match.end() for match in _CLAUSE.finditer(plain))][:_STARTS_MAX]:
        lead = _LEAD.match(plain, start)
        begin = start if lead is None else lead.end()
        ask = _ASK.match(plain, begin)
        begin = begin if ask is None else ask.end()
        yield begin, plain[begin:], ask is not None


def _english(
    sentences: Sequence[_Sentence], number: int, parse: Callable[[str], MemoryRequest | None]
) -> MemoryRequest | None:
    sentence = sentences[number]
    for offset, core, is_asked in _cores(sentence):
        request = None
        if not sentence.is_question or is_asked:
            request = _forget(sentences, number, offset, core)
            request = request or _remember(sentences, number, offset, core, is_asked=is_asked)
            request = request or parse(_strip(sentence.written[offset:]))
        request = request or _query(core)
        if request is not None:
            return request
    return None


def _remember(
    sentences: Sequence[_Sentence], number: int, offset: int, core: str, *, is_asked: bool
) -> MemoryRequest | None:
    sentence = sentences[number]
    match = _match("remember", core) or (_match("remember asked", core) if is_asked else None)
    backward, backward_own = _match("backward", core), _match("backward own", core)
    if match is None and backward is None and backward_own is None:
        match = _match("remember own", core)
        match = match if match is not None and _OWN_WORDS.search(match.group("what")) else None
    if match is not None:
        what = sentence.cut(match, offset)
        return MemoryRequest("remember", what) if " " in what and not _ADVICE.match(what) else None
    if STATED.match(core) and (is_asked or core[len("remember") :][:1] != ","):
        return MemoryRequest("remember", _strip(sentence.written[offset + len("remember") :]))
    if backward is not None or backward_own is not None:
        before = sentence.written[:offset]
        what = _strip(before) if len(before.split()) > _WORDS_BEFORE else _statements(sentences[:number])
        what = what or ("" if number else _statements(sentences[1:]))
        is_own = backward is not None or "memor" in core or _OWN_WORDS.search(what) is not None
        return MemoryRequest("remember", what) if what and is_own else None
    forward = _match("forward", core)
    if forward is not None:
        what = _strip(sentence.written[offset + forward.end() :]) or _statements(sentences[number + 1 :])
        return MemoryRequest("remember", what) if what else None
    return MemoryRequest("remember", _strip(sentence.written[offset:])) if _match("standing", core) else None


_GREETING_WORDS: Final = 2
_WORDS_BEFORE: Final = 4  # More words before "remember that" in a sentence are what is meant.


def _statements(sentences: Sequence[_Sentence]) -> str:
    """Join the sentences that ask nothing and are more than a greeting."""
    said = [
        each.written.strip()
        for each in sentences
        if not each.is_question and len(each.written.split()) > _GREETING_WORDS
    ]
    return _strip(" ".join(said))


def _forget(sentences: Sequence[_Sentence], number: int, offset: int, core: str) -> MemoryRequest | None:
    sentence = sentences[number]
    fact = _match("forget fact", core)
    if fact is not None:
        return MemoryRequest("forget", sentence.cut(fact, offset))
    for pattern in patterns()["forget"]:
        match = pattern.match(core)
        if match is not None:
            what = _FALSE.sub("", sentence.cut(match, offset))
            if what and not _BACK.match(what):
                return MemoryRequest("forget about", what)
    within = _search("forget within", core)
    if within is not None:
        return MemoryRequest("forget about", sentence.cut(within, offset))
    back = _match("forget back", core)
    return None if back is None else _forget_held(sentences, number, is_certain=back.group("memory") is not None)


def _forget_held(sentences: Sequence[_Sentence], number: int, *, is_certain: bool) -> MemoryRequest | None:
    """Return the request to forget what a sentence, or the one before it, says is remembered."""
    for sentence in reversed(sentences[max(number - 1, 0) : number + 1]):
        match = _search("held", sentence.plain)
        # "I said the logo is too big. Drop it." does not speak of the memory.
        if match is not None and (is_certain or match["told"] is None):
            what = _FALSE.sub("", sentence.cut(match, 0))
            return MemoryRequest("forget" if _OWN_STATEMENT.match(what) else "forget about", what) if what else None
    before = sentences[number - 1] if number else None
    if is_certain and before is not None and not before.is_question and _OWN_WORDS.search(before.plain):
        return MemoryRequest("forget", _strip(before.written))
    return None


def _query(core: str) -> MemoryRequest | None:
    if _match("asking", core) is None:
        return None
    preferences = _match("preferences", core)
    if preferences is not None:
        return MemoryRequest("query", preferences.group("what"))
    if not (_search("knows", core) or (_search("of memory", core) and _search("own", core))):
        return None
    topics = [match.group("what") for match in patterns()["topic"][0].finditer(core)]
    others = [topic for topic in topics if not _match("self", topic)]
    is_whole = len(others) < len(topics) and _match("self", topics[0]) and not (others and others[-1].startswith("my "))
    return MemoryRequest("query", "" if is_whole or not others else _strip(others[-1]))


def _asks_to_withhold(sentence: _Sentence) -> bool:
    if _CJK.search(sentence.plain):
        return _search("zh withhold", sentence.plain) is not None or _search("ja withhold", sentence.plain) is not None
    if any(_match("withhold", core) for _, core, _ in _cores(sentence)):
        return True
    match = _search("unsaved", sentence.plain)
    if match is None or _WHY.match(sentence.plain) or _DELETED.search(match.group()):
        return False
    return match.groupdict().get("place") is None or _OF_THIS.search(sentence.plain) is not None


def _is_private(sentences: Sequence[_Sentence]) -> bool:
    is_private = any(_search("private", each.plain) for each in sentences)
    return is_private and any(_search("not kept", each.plain) for each in sentences)


def _foreign(sentences: Sequence[_Sentence], number: int) -> MemoryRequest | None:
    plain, sentence = [each.plain for each in sentences], sentences[number]
    parse = _japanese if any(map(_KANA.search, plain)) else _chinese
    request = parse(plain, number, is_question=sentence.is_question)
    if request is None:
        return None
    start = sentence.plain.find(request.content)
    end = start + len(request.content)
    return request._replace(content=_strip(sentence.written[start:end] if start >= 0 else request.content))


def _chinese(sentences: Sequence[str], number: int, *, is_question: bool) -> MemoryRequest | None:
    text = sentences[number]
    is_open = _search("zh open", text) is not None
    forget = None if is_open else _search("zh forget", text)
    if forget is not None:
        return MemoryRequest("forget about", forget.group("what"))
    thing = None if is_open or is_question else _search("zh forget thing", text.rstrip(_EDGES))
    if thing is not None:
        return MemoryRequest("forget", thing.group("what"))
    if _search("zh preferences", text):
        return MemoryRequest("preferences")
    recall = _search("zh recall", text)
    if recall is not None and (is_question or _search("zh asked", text)):
        return MemoryRequest("query", patterns()["zh talk"][0].sub("", recall.group()))
    if is_open or (is_question and _CHINESE_ASKED.search(text) is None):
        return None
    memory, backward = _search("zh to memory", text), _search("zh remember before", text)
    if memory is None and backward is not None:
        before = text[: backward.start()].strip("\uff0c, ") if backward.start() > _CHARS_BEFORE else ""
        what = before or "".join(sentences[:number])
        if what:
            return MemoryRequest("remember", what)
    for table in ("zh to memory", "zh held", "zh remember", "zh never forget"):
        match = _search(table, text)
        if match is not None:
            return MemoryRequest("remember", match.group("what"))
    standing = _search("zh standing", text)
    return None if standing is None or is_question else MemoryRequest("remember", standing.group())


_CHINESE_ASKED: Final = re.compile("[\u8bf7\u8acb\u80fd]")
_CHARS_BEFORE: Final = 4  # As `_WORDS_BEFORE`.


def _japanese(sentences: Sequence[str], number: int, *, is_question: bool) -> MemoryRequest | None:
    text = sentences[number]
    bare = text.rstrip(_EDGES)
    for table, kind in {"ja forget subject": "forget about", "ja forget thing": "forget"}.items():
        named = None if is_question else _match(table, bare)
        if named is not None:
            return MemoryRequest(kind, named.group("what"))
    forget = _match("ja forget", text)
    if forget is not None:
        # A clause before the last comma gives the reason.
        return MemoryRequest("forget about", forget.group("what").rstrip("\u3001,").rpartition("\u3001")[2])
    if _search("ja preferences", text):
        return MemoryRequest("preferences")
    if _search("ja recall", text) and (is_question or _search("ja asked", text)) and _search("ja own", text):
        topic = _search("ja topic", text)
        is_whole = topic is None or patterns()["ja whole"][0].fullmatch(topic.group("what")) is not None
        return MemoryRequest("query", "" if topic is None or is_whole else topic.group("what"))
    if _search("ja saying", text):
        return None
    before, after = "".join(sentences[:number]), "".join(sentences[number + 1 :])
    if patterns()["ja kept"][0].fullmatch(text.strip(_EDGES)) and before and not after:
        return MemoryRequest("remember", before)
    match = _match("ja remember", text)
    if match is not None:
        what = match.group("what")
        if not is_question and _search("ja not", match.group()):
            return None
        if (after or before) and patterns()["ja filler"][0].fullmatch(what):
            return MemoryRequest("remember", after or before)
        return MemoryRequest("remember", before if _match("ja this", what) and before else what)
    match = _match("ja remember after", text + after)
    if match is not None:
        return MemoryRequest("remember", match.group("what"))
    standing = _search("ja standing", text)
    if standing is None or is_question:
        return None
    return MemoryRequest("remember", before + text if _search("ja back", standing.group()) else standing.group())
