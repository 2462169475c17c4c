"""Secrets that people give away in sentences: passwords, PINs, codes of doors and messages, cards and phrases. Pure.

A value counts where words of one of ten languages lead up to it, and its shape is not that of an ordinary word, a
placeholder or code. Whatever surrounds a word is looked at within a bound, so that the time is in proportion to the
text.
"""

import re
from collections.abc import Callable, Iterator
from itertools import zip_longest
from typing import Final, NamedTuple

from refold.agent.secret_words import pattern, stems


class Secret(NamedTuple):
    """Where a secret is in a text, and what it is."""

    start: int
    end: int
    kind: str


_STOPS: Final = re.compile(r"[.;!?](?=\s)|[\n。；！？]")
_AROUND: Final = 90
"""How many characters before and after a value are looked at, in the same sentence."""

_VALUE: Final = re.compile(pattern("<run>"))
_QUOTED: Final = re.compile(pattern("<quoted>"))
_CAPITAL: Final = re.compile(pattern("<capital>"))
_PLAIN_CAPITAL: Final = re.compile(pattern("<plain capitals>"))
_HARMLESS: Final = re.compile(pattern("<harmless>"))
_UNIT: Final = re.compile(pattern("<a unit>"))

_PASSWORD: Final = re.compile(pattern("<a password>"))
_LINK: Final = re.compile(pattern("<link after>"))
_LINK_CHARS: Final = 96
_NO_LINK: Final = re.compile(pattern("<no link>"))
_AFTER_VALUE: Final = re.compile(pattern("<after value>"))
_LOGIN: Final = re.compile(pattern("<login>"))
_FORGET: Final = re.compile(pattern("<forget>"))
_NAMED_PASSWORD: Final = re.compile(pattern("<named password>"))
_CHANGED: Final = re.compile(pattern("<begin><change>"))
_CHANGE_CHARS: Final = 120
_TO: Final = re.compile(pattern("<to after>"))
_FROM_TO: Final = tuple(re.compile(pattern(way)) for way in ("<from to>", "<from to zh>", "<from to ja>"))
_ACCESS: Final = re.compile(pattern("<access>"))
_PAIR: Final = re.compile(pattern("<pair>"))
_OPENS: Final = re.compile(pattern("<opens before>"))
_OPENS_AFTER: Final = re.compile(pattern("<opens after>"))
_TOKEN: Final = re.compile(pattern("<token>"))

_SEED_PHRASE: Final = re.compile(pattern("<a seed phrase>"))
_PASSPHRASE: Final = re.compile(pattern("<a passphrase>"))
_TALK: Final = re.compile(pattern(r"<talk>(?!\w)"))

_NUMBER: Final = re.compile(pattern("<number>"))
_NO_CODE: Final = re.compile(pattern("<no code>"))
_LED: Final = re.compile(pattern("<led>"))
_LEAD_CHARS: Final = 32
_AFTER_CODE: Final = re.compile(pattern("<after code>"))
_IS: Final = re.compile(pattern("<a link>"))
_PLACE: Final = re.compile(pattern("<begin>(?:<place>|<combination>)<end>"))
_MORE: Final = re.compile(pattern("<more codes>"))
_ENTER: Final = re.compile(pattern("<enter before>"))
_CODE_OF: Final = re.compile(pattern("<code of>"))
_NAMED_CODE: Final = re.compile(pattern("<named code>"))
_ACCESS_CODE: Final = re.compile(r"\d{4,8}")
_SECURITY_CODE, _RECOVERY_CODE, _VERIFICATION_CODE = "a card's security code", "a recovery code", "a verification code"
_DOOR_CODE, _PIN = "a door code", "a PIN"
# What a code right after it is for, in Chinese and Japanese.
_BEFORE: Final = {
    kind: re.compile(pattern(f"<before {kind}><after kind>"))
    for kind in (_SECURITY_CODE, _RECOVERY_CODE, _VERIFICATION_CODE, _DOOR_CODE, _PIN)
}
# The kind of a code, what must be near it, what else must, and its shape.
_NEAR: Final = tuple(
    (kind, re.compile(pattern(near)), re.compile(pattern(also)), re.compile(shape))
    for kind, near, also, shape in (
        (_SECURITY_CODE, "<begin><security code><end>", "<back of a card>", r"\d{3,4}"),
        (_RECOVERY_CODE, "<begin><backup><with code>", "<code>", r"(?=.{5}).*"),
        (_PIN, "<begin><pin><end>", "", r"\d{4,8}|\d{2,4} \d{2,4}"),
        (_PIN, "<begin>pins?<end>", "<begin>(?:<device>|<owned>)<end>", r"\d{4,8}"),
        (_VERIFICATION_CODE, "<begin>(?:m?TANs?|OTP)<end>", "", r"\d{4,8}"),
        (_VERIFICATION_CODE, "<begin><verification><with code>", "<code>", r"(?:G-)?\d{4,8}|\d{3}[ -]\d{3,4}"),
        (_VERIFICATION_CODE, "<begin><verification><with code>", "<code>", r"(?![A-Z]{3,7}\d{1,4}\Z)[A-Z0-9]{5,8}"),
        (_DOOR_CODE, "<begin><place><with code>", "<code>", ".*"),
        (_DOOR_CODE, "<begin>(?:<box>|<combination>)<end>", "", r"[\d #*-]{3,12}|[\dA-F]{4,6}"),
        (_PIN, "<begin><device><with code>", "<code>", r"\d{4,8}"),
    )
)

_KEY: Final = re.compile(pattern("<a key>"))
_KEY_CHARS: Final = 8
_DIGITS: Final = re.compile(r"(?:\d-?){8,64}")
_TOKEN_GIVES: Final = re.compile(pattern("<token gives>"))
_CARD: Final = re.compile(pattern("<card number>"))
_CARD_WORD: Final = re.compile(pattern("<card>"))
_CARD_CHARS: Final = 50


def secret_phrases(text: str) -> Iterator[Secret]:
    """Yield the secrets that the sentences of a text give away, in no order; some may overlap."""
    lowered = text.lower()
    for words, find in _FINDERS.items():
        if _has(lowered, words):
            yield from find(text)
    yield from _card_numbers(text)


def _has(lowered: str, words: str) -> bool:
    return any(stem in lowered for stem in _STEMS[words])


def _around(text: str, start: int, end: int) -> tuple[str, str]:
    """Return what of a sentence is before a place, and what is after it."""
    before = _STOPS.split(text[max(start - _AROUND, 0) : start])[-1]
    return before, _STOPS.split(text[end : end + _AROUND], maxsplit=1)[0]


def _passwords(text: str) -> Iterator[Secret]:
    keywords = list(_PASSWORD.finditer(text))
    for keyword, following in zip_longest(keywords, keywords[1:]):
        limit = min(len(text) if following is None else following.start(), keyword.end() + _LINK_CHARS)
        for begin, value in _values_after(text, keyword, limit):
            yield Secret(begin, begin + len(value), "a password")
    if keywords:
        for match in _NAMED_PASSWORD.finditer(text):
            yield from _value(match)


def _values_after(text: str, keyword: re.Match[str], limit: int) -> Iterator[tuple[int, str]]:
    """Yield the values that follow a word for a password, before the next such word."""
    link = _LINK.match(text, keyword.end(), limit)
    if link and link["link"].strip().lower() == "to" and not _is_strong(_value_at(text, link.end())):
        link = _LINK.match(text, link.end(), limit)  # "The password to the office is", or Polish "to".
    if link:
        yield from _values_at(text, keyword, link)
    elif lead := _NO_LINK.match(text, keyword.end()):
        begin, value = lead.end(), _value_at(text, lead.end())
        if _is_strong(value) and _is_alone(text, keyword, begin, value):
            yield begin, value
    if (lead := _TO.match(text, keyword.end(), limit)) and _is_strong(value := _value_at(text, lead.end())):
        before, after = _around(text, keyword.start(), lead.end())
        if any(map(_CHANGED.search, (before, after, lead[0]))):
            yield lead.end(), value


def _values_at(text: str, keyword: re.Match[str], link: re.Match[str]) -> Iterator[tuple[int, str]]:
    """Yield what a link leads to: a value in quotes, a name, or a value that looks like a password."""
    begin = link.end()
    is_assignment = "=" in link["link"] and link["gap"].strip("\"'*`]) ") != ""
    # What means much else needs more: "Pass: Gotthard".
    quoted, capital = (None, None) if keyword["short"] else (_QUOTED.match(text, begin), _CAPITAL.match(text, begin))
    if quoted and not is_assignment and _HARMLESS.match(quoted[0]) is None:
        yield begin, quoted[0]
    if capital and _PLAIN_CAPITAL.fullmatch(capital[0]) is None and _HARMLESS.match(capital[0]) is None:
        yield begin, capital[0]
    value = _value_at(text, begin)
    is_test = keyword[0].lower() == "pass" and value.upper() == value  # "Pass: 12/14"
    is_number = value.isdecimal() and _UNIT.match(text, begin + len(value)) is None
    if is_number or (_is_strong(value) and not is_test):
        yield begin, value


def _is_alone(text: str, keyword: re.Match[str], begin: int, value: str) -> bool:
    """Return whether a value right after a word for a password is one: beside a login, or where its clause ends."""
    end = begin + len(value)
    before, after = _around(text, keyword.start(), end)
    if _FORGET.search(before) or _FORGET.search(after):
        return False
    is_end = keyword[0].lower() != "pass" and _AFTER_VALUE.match(text, end) is not None
    return is_end or _is_random(value) or _LOGIN.search(before) is not None


def _value_at(text: str, begin: int) -> str:
    match = _VALUE.match(text, begin)
    return _trim(match[0]) if match else ""


def _changed_passwords(text: str) -> Iterator[Secret]:
    for shape in _FROM_TO:
        for match in shape.finditer(text):
            nearby = text[max(match.start() - _CHANGE_CHARS, 0) : match.end() + _CHANGE_CHARS]
            has_verb = "verb" in shape.groupindex or _CHANGED.search(nearby) is not None
            if has_verb and _is_strong(_trim(match["secret"])) and _ACCESS.search(nearby):
                yield from _value(match)
                yield from _value(match, group="old")


def _paired_passwords(text: str) -> Iterator[Secret]:
    if "/" in text or "|" in text:
        for match in _PAIR.finditer(text):
            yield from _value(match, _is_random)


def _opening_passwords(text: str) -> Iterator[Secret]:
    for match in _TOKEN.finditer(text):
        for secret in _value(match):
            before, after = _around(text, *match.span())
            if _OPENS.search(before) or (before.endswith("用") and _OPENS_AFTER.match(after)):
                yield secret


def _phrases(text: str) -> Iterator[Secret]:
    for phrase, kind in ((_SEED_PHRASE, "a recovery phrase"), (_PASSPHRASE, "a password")):
        for match in phrase.finditer(text):
            if _TALK.match(text, match.start("secret")) is None:
                yield Secret(*match.span("secret"), kind)


def _keys(text: str) -> Iterator[Secret]:
    for key, is_key in ((_KEY, _is_key), (_TOKEN_GIVES, _is_long_random)):
        for match in key.finditer(text):
            yield from _value(match, is_key, kind="a credential")


def _codes(text: str) -> Iterator[Secret]:
    last: Secret | None = None
    for match in _NUMBER.finditer(text):
        before, after = _around(text, *match.span())
        if not _has(before.lower() + after.lower(), "code") or _UNIT.match(text, match.end()):
            continue
        is_more = last is not None and _MORE.fullmatch(text, last.end, match.start()) is not None
        kind = last.kind if last is not None and is_more else _kind_of_code(match[0], before, after)
        if kind is not None:
            last = Secret(*match.span(), kind)
            yield last


def _kind_of_code(value: str, before: str, after: str) -> str | None:
    for kind, lead in _BEFORE.items():
        if lead.search(before):
            return kind
    if _NO_CODE.search(before):
        return None
    if _OPENS.search(before) or _OPENS_AFTER.match(after):
        return _DOOR_CODE if any(near.search(before) for kind, near, *_ in _NEAR if kind == _DOOR_CODE) else _PIN
    if _ENTER.search(before) and _PLACE.search(f"{before} {after}"):
        return _DOOR_CODE
    is_named, end = _NAMED_CODE.match(after) is not None, before[-_LEAD_CHARS:]
    if not is_named and (_LED.search(end) is None or len(_IS.findall(before)) > 1):
        return None
    nearby = f"{before} {after}" if is_named or _AFTER_CODE.search(end) else before
    for kind, near, also, shape in _NEAR:
        if near.search(nearby) and also.search(nearby) and shape.fullmatch(value):
            return kind
    return "an access code" if _ACCESS_CODE.fullmatch(value) and _CODE_OF.search(before) else None


def _card_numbers(text: str) -> Iterator[Secret]:
    for match in _CARD.finditer(text):
        start, end = match.span()
        nearby = text[max(start - _CARD_CHARS, 0) : start], text[end : end + _CARD_CHARS]
        if _is_checked(match[0]) or any(map(_CARD_WORD.search, nearby)):
            yield Secret(start, end, "a card number")


def _is_checked(text: str) -> bool:
    """Return whether the last digit of a number checks the others."""
    digits = [int(char) for char in reversed(text) if char.isdecimal()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _trim(value: str) -> str:
    value = value.rstrip(",;.?:*_`")
    return value if "(" in value else value.rstrip(")")


_STRONG_CHARS: Final = 5
_RANDOM_CHARS: Final = 6
_NAME: Final = re.compile(r"[A-Z][a-z]+\d{1,4}")
_SYMBOLS: Final = frozenset("!#$%&*+@^~?=")


def _is_strong(value: str) -> bool:
    """Return whether a value mixes letters with digits or symbols, as a password does and a word does not."""
    if len(value) < _STRONG_CHARS or _HARMLESS.match(value) or not any(char.isalpha() for char in value):
        return False
    return any(char.isdecimal() for char in value) or _has_symbols(value)


def _has_symbols(value: str) -> bool:
    is_mixed = not (value.islower() or value.isupper())
    return not _SYMBOLS.isdisjoint(value[1:-1]) or (is_mixed and "_" in value[1:-1])


def _is_random(value: str) -> bool:
    """Return whether a value is more than a word with a number, such as the name of a product or a variable."""
    if not _is_strong(value) or len(value) < _RANDOM_CHARS:
        return False
    has_digit = any(char.isdecimal() for char in value)
    is_mixed = not (value.islower() or value.isupper())
    return _has_symbols(value) or (has_digit and is_mixed and _NAME.fullmatch(value) is None)


def _is_long_random(value: str) -> bool:
    return len(value) >= _KEY_CHARS and _is_random(value)


def _is_key(value: str) -> bool:
    return len(value) >= _KEY_CHARS and (_is_strong(value) or _DIGITS.fullmatch(value) is not None)


def _value(
    match: re.Match[str],
    is_value: Callable[[str], bool] = _is_strong,
    *,
    group: str = "secret",
    kind: str = "a password",
) -> Iterator[Secret]:
    """Yield the value of a group, without the punctuation after it, if it has the shape of one."""
    start, value = match.start(group), _trim(match[group])
    if is_value(value):
        yield Secret(start, start + len(value), kind)


# A text is looked through only for the words of which it has a stem.
_FINDERS: Final[dict[str, Callable[[str], Iterator[Secret]]]] = {
    "password": _passwords,
    "change": _changed_passwords,
    "login": _paired_passwords,
    "open": _opening_passwords,
    "key": _keys,
    "phrase": _phrases,
    "code": _codes,
}
_STEMS: Final = {words: stems(words) for words in _FINDERS}
