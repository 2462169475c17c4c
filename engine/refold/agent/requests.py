"""Requests to the memory anywhere in a message, such as "Thanks! By the way, remember that ...". Pure.

A rule acts only where nothing else can be meant: a request that it misses is left to the model, which has tools to save
and to forget, but a wrong one loses data in silence. Each sentence of the first paragraph is parsed from its start, and
from each "so", "but" or "please" after a comma, without polite and introductory words. What is quoted, code, a long
text, or what follows a colon is about something else, unless the words before the colon speak of the memory.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from refold.agent.request_words import find, find_all, pattern


class MemoryRequest(NamedTuple):
    """What is asked: "remember", "forget", "forget about", "preferences", "query" or "withhold", and of what."""

    kind: str
    content: str = ""


_CHARS_MAX: Final = 1_500  # Longer messages are pasted text.
_SENTENCES_MAX: Final = 12
_STARTS_MAX: Final = 8
_PASTED: Final = re.compile(r"```|(?m:^[ \t]{0,8}>)")
# After the first paragraph, or a line that ends in a comma, as mails begin with, another may be speaking.
_PARAGRAPH: Final = re.compile("(?<![:\uff1a])\n[ \t\r]{0,9}\n|[,\uff0c][ \t\r]{0,9}\n")
_THANKS_CHARS: Final = 40
_REQUEST_CHARS: Final = 200  # More than a request not to remember what is before or after it.
_GAP: Final = re.compile(r"(?<=\S)[ \t\u00a0]{2,80}(?=\S)")
_QUOTED: Final = re.compile(pattern("<quoted>"))
_QUOTE: Final = "□"  # Stands for each character of a quotation.
_PLAIN: Final = {ord("\u2019"): "'", ord("\t"): " ", ord("\u00a0"): " ", ord("\uff1a"): ":"}
# Stops, colons and commas that end nothing, as in "Dr. Weiss", "2.1", "10:30" and "1. milk 2. eggs".
_INNER: Final = re.compile(pattern("<inner stop>"))
_FIRST_NUMBER: Final = re.compile(r"(?<!\w)1\. ")
_NUMBER: Final = re.compile(r"(?<!\w)\d\d?\.(?= )")
_INNER_STOP: Final = "·"
_END: Final = re.compile(pattern("<sentence end>"))
_COLON: Final = re.compile(r":(?!//|-?[)D(P])")
_MEMORY_WORD: Final = re.compile(pattern("<memory word>"))
_QUESTION_ENDS: Final = "?\uff1f\u5417\u55ce"
_TAG: Final = re.compile(pattern(r"<tag> ?[?\uff1f]\Z"))
_TAG_CHARS: Final = 40
_STOPS: Final = " .!?\u3002\uff01\uff1f\uff0e\uff61"
_EDGES: Final = f"{_STOPS}\t\r\n,;:~()\u2013\u2014-\uff0c\u3001\uff1b\uff1a\u301c\uff5e\uff08\uff09"
_THANKS: Final = re.compile(pattern(r"<thanks>\Z"))
_CJK: Final = re.compile("[\u3040-\u30ff\u3400-\u9fff]")
_KANA: Final = re.compile("[\u3040-\u30ff]")
_LEAD: Final = re.compile(pattern("<lead>"))
_ASK: Final = re.compile(pattern("<ask>"))
_CLAUSE: Final = re.compile(pattern("<clause>"))
_CONDITION: Final = re.compile(pattern("<condition>"))
_PLAY: Final = re.compile(pattern("<play>"))
_OWN_WORD: Final = re.compile(pattern(r"\b(?:<me>|me|us|mine|ours)\b"))
_OWN_STATEMENT: Final = re.compile(pattern(r"[ .!:,]{0,3}(?:but |and |that )?<me>\b"))
_OWN_FACT: Final = re.compile(pattern("<stated> "))
_SUBJECT: Final = re.compile(pattern("<subject>|(?-i:[A-Z])[a-z]{1,20} <verb>"))
_STATEMENT: Final = re.compile(pattern("<statement>"))
_VERB: Final = re.compile(pattern(r"\b(?:am\b|<verb>)"))
_ADVICE: Final = re.compile(
    pattern(r"(?:you(?:'re)?|what|where|how|who|when)\b|<just said>")
)  # No fact of the one who says it.
_NO_RULE: Final = re.compile(
    pattern(r"\b(?:why|how|which|who|where|did|does|was|were|said|says|wrong|fails?|breaks?)\b")
)
_LAUGH: Final = re.compile(pattern("<laugh>"))
_ASKING: Final = re.compile(
    pattern(" ?(?:why|what|how|is|are|was|were|did|does|do you|has|have|had|which|who|where|when)\\b")
)
_A_WHILE: Final = re.compile(pattern(r"\b<a while>\b"))
_NOT_NOW: Final = re.compile(pattern("<not now>"))
_TALK: Final = re.compile(pattern("<talk>"))
_ORDER: Final = re.compile(pattern("<order>"))
_ELSEWHERE: Final = re.compile(pattern("<elsewhere>"))
_JUST_SAID: Final = re.compile(pattern("<just said>|<demonstrative>"))
_REASON: Final = re.compile(pattern("<reason>"))
_OF_THIS: Final = re.compile(pattern(r"\b(?:this|that|it|the following|message|these|anything|what i)\b"))
_TOPIC: Final = re.compile(pattern("<topic word>"))
_ZH_TALK: Final = re.compile(pattern("<zh talk>"))
_GREETING_WORDS: Final = 2
_WORDS_BEFORE: Final = 4  # More words before "remember that" in a sentence are what is meant, and a fact of one's own.
_CHARS_BEFORE: Final = 4  # In Chinese.


class _Sentence(NamedTuple):
    """A sentence of a message: without what it quotes, and as it is written."""

    plain: str
    written: str
    is_question: bool
    is_whole: bool
    """Whether it begins a message that has only one paragraph, and thanks."""

    def cut(self, match: re.Match[str], offset: int = 0) -> str:
        """Return what a match in the plain text after an offset is about, as it is written."""
        start, end = match.span("what")
        return _strip(self.written[offset + start : offset + end])


class _Opening(NamedTuple):
    """A place in a sentence where a request can begin: after introductory words, and words that ask for it."""

    offset: int
    text: str
    is_asked: bool
    is_introduced: bool
    is_first: bool


def find_request(text: str) -> MemoryRequest | None:
    """Return the first request to the memory in a message, or ``None``.

    A request not to remember the message goes before all others, unless the message begins with what to remember.

    >>> find_request("That was great! By the way, keep in mind that I am vegan. What is for lunch?")
    MemoryRequest(kind='remember', content='I am vegan')
    >>> find_request("Thanks. Please delete what you know about my job.")
    MemoryRequest(kind='forget about', content='my job')
    >>> find_request("I am pregnant (please keep this out of your memory). May I eat sushi?")
    MemoryRequest(kind='withhold', content='')
    """
    sentences = _sentences(text)
    withheld = [_asks_to_withhold(sentences, number) for number in range(len(sentences))]
    found = None if True in withheld[:1] else _find_first(sentences[:1] if True in withheld else sentences, sentences)
    is_withheld = True in withheld or _is_withheld_around(text.strip(), is_read=bool(sentences))
    return MemoryRequest("withhold") if is_withheld and (found is None or found.kind != "remember") else found


def _is_withheld_around(text: str, *, is_read: bool) -> bool:
    """Return whether the last paragraph says nothing but that the text is not to be remembered.

    Of a text that is not read, because it is long or pasted, its first or its last sentence can say so too.
    """
    _, *later = _PARAGRAPH.split(text[-_CHARS_MAX:])
    last = _sentences(later[-1]) if later and len(later[-1]) <= _REQUEST_CHARS else []
    if last and all(_asks_to_withhold(last, number) for number in range(len(last))):
        return True
    if is_read:
        return False
    ends = _sentences(_PASTED.split(text[:_REQUEST_CHARS])[0])[:1], _sentences(text[-_REQUEST_CHARS:])[-1:]
    return any(_asks_to_withhold(end, number) for end in ends for number in range(len(end)))


def _find_first(looked_at: Sequence[_Sentence], sentences: Sequence[_Sentence]) -> MemoryRequest | None:
    for number, sentence in enumerate(looked_at):
        request = _foreign(sentences, number) if _CJK.search(sentence.plain) else None
        request = request or _english(sentences, number)
        if request is not None:
            return request
    return None


def _strip(text: str) -> str:
    """Remove what ends a sentence, and thanks and smileys there."""
    text = text.strip().rstrip(_EDGES)
    for _ in range(3):
        shorter = _THANKS.sub("", text[-_TAG_CHARS:])
        text = (text[:-_TAG_CHARS] + shorter).rstrip(_EDGES)
    return text.strip(" \t\r\n,:;\uff1a\uff0c")


def _sentences(text: str) -> list[_Sentence]:
    """Split what a user says in a message; an empty list if it is too long to be talk."""
    text = _GAP.sub(" ", text.strip())
    text = text.rstrip(_STOPS) if len(text) > _CHARS_MAX else text
    if len(text) > _CHARS_MAX or _PASTED.search(text):
        return []
    text, rest = _first_paragraph(text)
    is_whole = len(rest) <= _THANKS_CHARS and "?" not in rest
    plain = _QUOTED.sub(lambda match: _QUOTE * len(match.group()), text).translate(_PLAIN)
    plain = _INNER.sub(_without_stop, plain)
    plain = _NUMBER.sub(_without_stop, plain) if _FIRST_NUMBER.search(plain) else plain
    sentences, start = list[_Sentence](), 0
    for end, following in [*(match.span() for match in _END.finditer(plain)), (len(plain), len(plain))]:
        colon = _COLON.search(plain, start, end)
        if colon is not None and _MEMORY_WORD.search(plain, start, colon.start()):
            colon = None
        sentence = plain[start : end if colon is None else colon.start()].rstrip(" )\uff09")
        if sentence:
            tag = _TAG.search(sentence[-_TAG_CHARS:])
            length = len(sentence) - (0 if tag is None else len(tag.group()))
            is_question = tag is None and sentence[-1] in _QUESTION_ENDS
            span = slice(start, start + length)
            sentences.append(_Sentence(plain[span], text[span], is_question, is_whole and not sentences))
        if colon is not None:
            break  # A text follows.
        start = following
    return sentences if len(sentences) <= _SENTENCES_MAX else []


def _first_paragraph(text: str) -> tuple[str, str]:
    end = _PARAGRAPH.search(text)
    return (text, "") if end is None else (text[: end.start()], text[end.end() :].strip())


def _without_stop(match: re.Match[str]) -> str:
    return match.group()[:-1] + _INNER_STOP


def _statements(sentences: Sequence[_Sentence]) -> str:
    """Join the sentences that ask nothing and are more than a greeting."""
    statements = (each.written.strip() for each in sentences if not each.is_question)
    return _strip(" ".join(text for text in statements if len(text.split()) > _GREETING_WORDS))


def _openings(sentence: _Sentence) -> Iterator[_Opening]:
    """Yield where a request can begin in a sentence; in one with a condition, only at its start."""
    plain = sentence.plain
    first = len(plain) - len(plain.lstrip(" ("))
    for start in [first, *(match.end() for match in _CLAUSE.finditer(plain))][:_STARTS_MAX]:
        lead = _LEAD.match(plain, start)
        begin = start if lead is None else lead.end()
        ask = _ASK.match(plain, begin)
        begin = begin if ask is None else ask.end()
        is_introduced = lead is not None or ask is not None
        yield _Opening(begin, plain[begin:], ask is not None, is_introduced, sentence.is_whole and start == first)
        if _CONDITION.match(plain, begin):
            return


def _asks_to_withhold(sentences: Sequence[_Sentence], number: int) -> bool:
    plain, is_question = sentences[number].plain, sentences[number].is_question
    if _CJK.search(plain):
        return find("zh withhold", plain) is not None or find("ja withhold", plain) is not None
    if find("withheld", plain) and _OF_THIS.search(plain) and not _ASKING.match(plain):
        return True
    for opening in _openings(sentences[number]):
        match = find("withhold", opening.text)
        if match and (opening.is_asked or not is_question or opening.text[match.end() :].strip(_EDGES)):
            return True
        # "Save" and "record" are said of files, too: these need a statement of one's own beside them.
        own = find("withhold own", opening.text)
        beside = [each.plain for each in sentences if each is not sentences[number]]
        if own and any(map(_OWN_STATEMENT.match, [plain, opening.text[own.end() :], *beside])):
            return True
    return False


def _english(sentences: Sequence[_Sentence], number: int) -> MemoryRequest | None:
    for opening in _openings(sentences[number]):
        request = None
        if opening.is_asked or not sentences[number].is_question:
            request = _forget(sentences, number, opening) or _remember(sentences, number, opening)
        request = request or _query(opening.text, is_last=number == len(sentences) - 1)
        if request is not None:
            return request
    return None


def _remember(sentences: Sequence[_Sentence], number: int, opening: _Opening) -> MemoryRequest | None:
    sentence = sentences[number]
    if any(_PLAY.search(each.plain) for each in sentences):
        return None
    is_advice = _TALK.search(sentence.plain, 0, opening.offset) is not None
    if find("standing", opening.text) or (opening.is_first and not is_advice and find("rule", opening.text)):
        is_rule = not (_NO_RULE.search(opening.text) or _LAUGH.search(sentences[-1].plain))
        return MemoryRequest("remember", _strip(sentence.written[opening.offset :])) if is_rule else None
    is_own = _OWN_WORD.search(opening.text) is not None
    match = find("note", opening.text) if opening.is_first and _ORDER.search(opening.text) is None else None
    match = match or find("remember", opening.text) or (find("remember own", opening.text) if is_own else None)
    if match is not None:
        phrase, what = match.group()[: match.start("what")], _with_following(sentences, number, opening, match)
        is_meant = number == 0 or opening.is_introduced or is_own or ":" in phrase
        is_stated = (
            not phrase.endswith("that ")
            or phrase.lower().startswith("note")
            or bool(_STATEMENT.match(what) or _VERB.search(what))
        )
        return MemoryRequest("remember", what) if is_meant and is_stated and not _ADVICE.match(what) else None
    if find("backward", opening.text):
        before = _strip(sentence.written[: opening.offset])
        is_said = len(before.split()) > _WORDS_BEFORE or _OWN_FACT.match(before)
        what = before if is_said else _statements(sentences[:number])
        what = what or ("" if number else _statements(sentences[1:]))
        return MemoryRequest("remember", what) if what else None
    return None


def _with_following(sentences: Sequence[_Sentence], number: int, opening: _Opening, match: re.Match[str]) -> str:
    """Return what to remember: at the beginning of a message, the statements that follow are part of it."""
    sentence = sentences[number]
    if number or not opening.is_first:
        return sentence.cut(match, opening.offset)
    parts = [sentence.written[opening.offset + match.start("what") :].strip()]
    for following in sentences[1:]:
        if following.is_question or not _SUBJECT.match(following.plain.lstrip()):
            break
        parts.append(following.written.strip())
    return _strip(" ".join(parts))


def _forget(sentences: Sequence[_Sentence], number: int, opening: _Opening) -> MemoryRequest | None:
    sentence = sentences[number]
    if (fact := find("forget fact", opening.text)) is not None:
        what = sentence.cut(fact, opening.offset)
        is_stated = "fact" in fact.group() or _STATEMENT.match(what) is not None
        is_now = _NOT_NOW.search(sentence.plain, 0, opening.offset + fact.start("what")) is None
        is_talk = _JUST_SAID.match(what) or _A_WHILE.search(what) or _ORDER.search(what)
        return MemoryRequest("forget", what) if is_stated and is_now and not is_talk else None
    if _NOT_NOW.search(sentence.plain):
        return None
    matches = [*find_all("forget", opening.text)]
    if _TALK.search(sentence.plain, 0, opening.offset) is None:
        # Without a word for the memory; "you can forget about the budget" is talk.
        matches += find_all("forget alone", opening.text) if _is_alone(sentences, number) else ()
        matches += find_all("forget own", opening.text)
    for match in matches:
        what = _REASON.sub("", sentence.cut(match, opening.offset))
        if what and not _is_elsewhere(what, opening.text[match.end() :]) and not _JUST_SAID.match(what):
            return MemoryRequest("forget about", what)
    return None


def _is_elsewhere(what: str, rest: str) -> bool:
    """Return whether what to forget, or the clause or order after it, is about a text, a file or a program."""
    clause, _, _ = rest.partition(",")
    return any(map(_ELSEWHERE.search, (what, clause))) or _ORDER.match(rest, len(clause)) is not None


def _is_alone(sentences: Sequence[_Sentence], number: int) -> bool:
    """Return whether a message says only one sentence, and greetings."""
    others = [each for each in sentences if each is not sentences[number]]
    return sentences[0].is_whole and all(len(each.plain.split()) <= _GREETING_WORDS for each in others)


def _query(opening: str, *, is_last: bool) -> MemoryRequest | None:
    if (asked := find("preferences", opening)) is not None:
        return MemoryRequest("preferences", _strip(asked["what"]))
    if (asked := find("recall", opening) or (find("recall own", opening) if is_last else None)) is not None:
        return MemoryRequest("query", _strip(asked["what"]))
    if find("asking", opening) is None or find("deletion", opening):
        return None
    if not (find("knows", opening) or (find("of memory", opening) and find("own", opening))):
        return None
    topics = [match["what"] for match in _TOPIC.finditer(opening)]
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
    if not is_open and (not is_question or find("zh please", text)):
        for table, kind in {"zh forget": "forget about", "zh forget thing": "forget"}.items():
            if match := find(table, text.rstrip(_EDGES)):
                return MemoryRequest(kind, match["what"])
    if find("zh preferences", text):
        return MemoryRequest("preferences")
    recall = find("zh recall", text)
    if recall is not None and (is_question or find("zh asked", text)):
        return MemoryRequest("query", _ZH_TALK.sub("", recall.group()))
    if is_open or (is_question and find("zh please", text) is None):
        return None
    if backward := find("zh remember before", text):
        before = text[: backward.start()].strip("\uff0c, ") if backward.start() > _CHARS_BEFORE else ""
        if what := before or "".join(sentences[:number]):
            return MemoryRequest("remember", what)
    if match := find("zh remember", text):
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
    match = find("ja remember", text)
    if match is not None and find("ja not", match.group()) and not is_question:
        return None
    if match is not None and (request := _japanese_remember(match, before, after)):
        return request
    if match := find("ja remember after", text + after):
        return MemoryRequest("remember", match["what"])
    standing = find("ja standing", text)
    if standing is None or is_question:
        return None
    return MemoryRequest("remember", before + text if find("ja back", standing.group()) else standing.group())


def _japanese_remember(match: re.Match[str], before: str, after: str) -> MemoryRequest | None:
    what = match["what"]
    if find("ja filler", what):
        return MemoryRequest("remember", after or before) if after or before else None
    if before and what.endswith(("ので", "から")):
        what = before + what
    return MemoryRequest("remember", what)
