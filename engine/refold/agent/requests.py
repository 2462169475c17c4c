"""Requests to the memory anywhere in a message, such as "Thanks! By the way, keep in mind that ...". Pure.

Each sentence is parsed from its start, and from each "so", "but" or "please" after a comma, without polite and
introductory words. What is quoted, code, and long messages are left out: they are about something else.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from refold.agent.request_words import find, find_all, pattern


class MemoryRequest(NamedTuple):
    """What is asked of the memory: "remember", "forget", "forget about", "preferences" or "query", and of what."""

    kind: str
    content: str = ""


_CHARS_MAX: Final = 1_500  # Longer messages are pasted text.
_SENTENCES_MAX: Final = 12
_STARTS_MAX: Final = 8
_CODE: Final = "```"
_QUOTED: Final = re.compile(pattern("<quoted>"))
_QUOTE: Final = "□"  # Stands for each character of a quotation.
_PLAIN: Final = {ord("\u2019"): "'", ord("\t"): " ", ord("\u00a0"): " ", ord("\uff1a"): ":"}
_END: Final = re.compile(pattern("<sentence end>"))
_TAG: Final = re.compile(pattern(r"<tag> ?\?\Z"))
_TAG_CHARS: Final = 40
_EDGES: Final = " \t.!?,;:~()\u2013\u2014-\u3002\uff01\uff1f\uff0c\u3001\uff1b\uff1a\u301c\uff5e\uff08\uff09"
_THANKS: Final = re.compile(pattern(r"<thanks>\Z"))
_CJK: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_KANA: Final = re.compile("[\u3040-\u30ff]")
_LEAD: Final = re.compile(pattern("<lead>"))
_ASK: Final = re.compile(pattern("<ask>"))
_CLAUSE: Final = re.compile(pattern("<clause>"))
_OWN_WORD: Final = re.compile(pattern(r"\b(?:<me>|me|us|mine|ours)\b"))
_OWN_STATEMENT: Final = re.compile(pattern(r"(?:i|we|my|our|i'm)\b"))
_ADVICE: Final = re.compile(pattern(r"you(?:'re)?\b"))  # Not of the one who says it.
_BACK: Final = re.compile(pattern(r"(?:this|that|it|them|those|these)\b"))
_OF_THIS: Final = re.compile(pattern(r"\b(?:this|that|it|the following|message|these|anything|what i)\b"))
_WHY: Final = re.compile(
    pattern(r" *(?:why|what|how|is|are|was|were|did|does|do you|has|have|had|which|who|where|when)\b")
)
_DELETION: Final = re.compile(pattern("<deletion>"))
_REASON: Final = re.compile(pattern("<reason>"))
_STATED: Final = re.compile(pattern("<stated>"))
_GREETING_WORDS: Final = 2
_WORDS_BEFORE: Final = 4  # More words before "remember that" in a sentence are what is meant.
_CHARS_BEFORE: Final = 4  # In Chinese.


class _Sentence(NamedTuple):
    """A sentence of a message: without what it quotes, and as it is written."""

    plain: str
    written: str
    is_question: bool

    def cut(self, match: re.Match[str], offset: int = 0) -> str:
        """Return what a match in the plain text after an offset is about, as it is written."""
        start, end = match.span("what")
        return _strip(self.written[offset + start : offset + end])


def is_withheld(text: str) -> bool:
    """Return whether any sentence of a message asks not to remember the message.

    >>> is_withheld("I am pregnant (please keep this out of your memory). May I eat sushi?")
    True
    """
    sentences = _sentences(text)
    is_private = any(find("private", each.plain) for each in sentences)
    return any(map(_asks_to_withhold, sentences)) or (
        is_private and any(find("not kept", each.plain) for each in sentences)
    )


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


def bare_statement(text: str) -> str | None:
    """Return the statement after "remember" without "that", or ``None``."""
    return text[len("remember") :] if _STATED.match(text) else None


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


def _statements(sentences: Sequence[_Sentence]) -> str:
    """Join the sentences that ask nothing and are more than a greeting."""
    statements = (each.written.strip() for each in sentences if not each.is_question)
    return _strip(" ".join(text for text in statements if len(text.split()) > _GREETING_WORDS))


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


def _asks_to_withhold(sentence: _Sentence) -> bool:
    plain = sentence.plain
    if _CJK.search(plain):
        return find("zh withhold", plain) is not None or find("ja withhold", plain) is not None
    if any(find("withhold", core) for _, core, _ in _cores(sentence)):
        return True
    match = find("unsaved", plain)
    if match is None or _WHY.match(plain) or _DELETION.search(match.group()):
        return False
    return match.groupdict().get("place") is None or _OF_THIS.search(plain) is not None


def _english(
    sentences: Sequence[_Sentence], number: int, parse: Callable[[str], MemoryRequest | None]
) -> MemoryRequest | None:
    sentence = sentences[number]
    for offset, core, is_asked in _cores(sentence):
        request = None
        if not sentence.is_question or is_asked:
            request = (
                _forget(sentences, number, offset, core)
                or _remember(sentences, number, offset, core, is_asked=is_asked)
                or parse(_strip(sentence.written[offset:]))
            )
        request = request or _query(core)
        if request is not None:
            return request
    return None


def _remember(
    sentences: Sequence[_Sentence], number: int, offset: int, core: str, *, is_asked: bool
) -> MemoryRequest | None:
    sentence = sentences[number]
    match = find("remember", core) or (find("remember asked", core) if is_asked else None)
    is_back, is_note_back = find("backward", core) is not None, find("backward own", core) is not None
    if match is None and not is_back and not is_note_back and (own := find("remember own", core)):
        match = own if _OWN_WORD.search(own["what"]) else None
    if match is not None:
        what = sentence.cut(match, offset)
        return MemoryRequest("remember", what) if " " in what and not _ADVICE.match(what) else None
    statement = bare_statement(core)
    if statement is not None and (is_asked or not statement.startswith(",")):
        return MemoryRequest("remember", _strip(sentence.written[offset + len(core) - len(statement) :]))
    if is_back or is_note_back:
        before = sentence.written[:offset]
        what = _strip(before) if len(before.split()) > _WORDS_BEFORE else _statements(sentences[:number])
        what = what or ("" if number else _statements(sentences[1:]))
        is_own = is_back or "memor" in core or _OWN_WORD.search(what) is not None
        return MemoryRequest("remember", what) if what and is_own else None
    if (forward := find("forward", core)) is not None:
        what = _strip(sentence.written[offset + forward.end() :]) or _statements(sentences[number + 1 :])
        return MemoryRequest("remember", what) if what else None
    return MemoryRequest("remember", _strip(sentence.written[offset:])) if find("standing", core) else None


def _forget(sentences: Sequence[_Sentence], number: int, offset: int, core: str) -> MemoryRequest | None:
    sentence = sentences[number]
    if (fact := find("forget fact", core)) is not None:
        return MemoryRequest("forget", sentence.cut(fact, offset))
    for match in find_all("forget", core):
        what = _REASON.sub("", sentence.cut(match, offset))
        if what and not _BACK.match(what):
            return MemoryRequest("forget about", what)
    if (within := find("forget within", core)) is not None:
        return MemoryRequest("forget about", sentence.cut(within, offset))
    back = find("forget back", core)
    return None if back is None else _forget_held(sentences, number, is_certain=back["memory"] is not None)


def _forget_held(sentences: Sequence[_Sentence], number: int, *, is_certain: bool) -> MemoryRequest | None:
    """Return the request to forget what a sentence, or the one before it, says is remembered."""
    for sentence in reversed(sentences[max(number - 1, 0) : number + 1]):
        match = find("held", sentence.plain)
        # "I said the logo is too big. Drop it." does not speak of the memory.
        if match is not None and (is_certain or match["told"] is None):
            what = _REASON.sub("", sentence.cut(match))
            return MemoryRequest("forget" if _OWN_STATEMENT.match(what) else "forget about", what) if what else None
    before = sentences[number - 1] if number else None
    if is_certain and before is not None and not before.is_question and _OWN_WORD.search(before.plain):
        return MemoryRequest("forget", _strip(before.written))
    return None


def _query(core: str) -> MemoryRequest | None:
    if find("asking", core) is None:
        return None
    if (preferences := find("preferences", core)) is not None:
        return MemoryRequest("query", preferences["what"])
    if not (find("knows", core) or (find("of memory", core) and find("own", core))):
        return None
    topics = [match["what"] for match in _TOPIC.finditer(core)]
    others = [topic for topic in topics if not find("self", topic)]
    is_whole = len(others) < len(topics) and find("self", topics[0]) and not (others and others[-1].startswith("my "))
    return MemoryRequest("query", "" if is_whole or not others else _strip(others[-1]))


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
    is_open = find("zh open", text) is not None
    if not is_open and (forget := find("zh forget", text)):
        return MemoryRequest("forget about", forget["what"])
    if not is_open and not is_question and (thing := find("zh forget thing", text.rstrip(_EDGES))):
        return MemoryRequest("forget", thing["what"])
    if find("zh preferences", text):
        return MemoryRequest("preferences")
    recall = find("zh recall", text)
    if recall is not None and (is_question or find("zh asked", text)):
        return MemoryRequest("query", _ZH_TALK.sub("", recall.group()))
    if is_open or (is_question and find("zh please", text) is None):
        return None
    if find("zh to memory", text) is None and (backward := find("zh remember before", text)):
        before = text[: backward.start()].strip("\uff0c, ") if backward.start() > _CHARS_BEFORE else ""
        if what := before or "".join(sentences[:number]):
            return MemoryRequest("remember", what)
    for table in ("zh to memory", "zh held", "zh remember", "zh never forget"):
        if match := find(table, text):
            return MemoryRequest("remember", match["what"])
    standing = find("zh standing", text)
    return None if standing is None or is_question else MemoryRequest("remember", standing.group())


def _japanese(sentences: Sequence[str], number: int, *, is_question: bool) -> MemoryRequest | None:
    text = sentences[number]
    for table, kind in {"ja forget subject": "forget about", "ja forget thing": "forget"}.items():
        if not is_question and (match := find(table, text.rstrip(_EDGES))):
            return MemoryRequest(kind, match["what"])
    if forget := find("ja forget", text):
        # A clause before the last comma gives the reason.
        return MemoryRequest("forget about", forget["what"].rstrip("\u3001,").rpartition("\u3001")[2])
    if find("ja preferences", text):
        return MemoryRequest("preferences")
    if find("ja recall", text) and (is_question or find("ja asked", text)) and find("ja own", text):
        topic = find("ja topic", text)
        is_whole = topic is None or find("ja whole", topic["what"])
        return MemoryRequest("query", "" if topic is None or is_whole else topic["what"])
    if find("ja saying", text):
        return None
    before, after = "".join(sentences[:number]), "".join(sentences[number + 1 :])
    if before and not after and find("ja kept", text.strip(_EDGES)):
        return MemoryRequest("remember", before)
    if match := find("ja remember", text):
        return _japanese_remember(match, before, after, is_question=is_question)
    if match := find("ja remember after", text + after):
        return MemoryRequest("remember", match["what"])
    standing = find("ja standing", text)
    if standing is None or is_question:
        return None
    return MemoryRequest("remember", before + text if find("ja back", standing.group()) else standing.group())


def _japanese_remember(match: re.Match[str], before: str, after: str, *, is_question: bool) -> MemoryRequest | None:
    what = match["what"]
    if find("ja not", match.group()) and not is_question:
        return None
    if (after or before) and find("ja filler", what):
        return MemoryRequest("remember", after or before)
    return MemoryRequest("remember", before if before and find("ja this", what) else what)


_TOPIC: Final = re.compile(pattern("<topic word>"))
_ZH_TALK: Final = re.compile(pattern("<zh talk>"))
