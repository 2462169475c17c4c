"""Secrets that people give away in sentences: passwords, PINs, codes of doors and messages, cards and phrases. Pure.

A value counts where words of one of ten languages lead up to it, and its shape is not that of an ordinary word, a
placeholder or code. The tables of words hold all languages at once, because people mix them. Whatever surrounds a
word is looked at within a bound, so that the time is in proportion to the text.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from refold.agent import secret_words as words


class Secret(NamedTuple):
    """Where a secret is in a text, and what it is."""

    start: int
    end: int
    kind: str


def _whole(alternatives: str) -> str:
    """Return a pattern of words that no Latin letter or digit continues; Chinese and Japanese need no space."""
    return rf"(?<![{words.LETTER}])(?:{alternatives})(?![{words.LETTER}])"


def _with_code(alternatives: str) -> str:
    """Return a pattern of words that may be one word with "code", as in German and Dutch."""
    return _whole(rf"(?:{alternatives})(?:-?(?:codes?|nummer|kombination))?")


_STOPS: Final = re.compile(r"[.;!?](?=\s)|[\n。；！？]")
_AROUND: Final = 90
"""How many characters before and after a value are looked at, in the same sentence."""

# What leads from a word to its value.
_OPENING: Final = r"[*_`\"'«“„‘「『(]{0,3}+"
_LINK: Final = (
    r"(?:[^\S\n]{0,3}(?::=|=>|->|={1,3}|[:：→＝]|[\u2013\u2014-](?=\s))[*`]{0,2}|(?<=[a-z])['’]s(?=\s)|"
    rf"{_whole(words.IS)}:?|"
    r"(?:就?是|为|為|[设設改换換]成|[设設改]?[为為]|[はが를은는]|คือ)(?:[现現]在|目前|今)?|[を、](?:[ぁ-ゟ]{0,8}))"
    rf"\s{{0,3}}(?:(?:{words.NOW})\s){{0,2}}{_OPENING}\s?"
)
_RUN: Final = r"[^\s\"'`«»“”„‘’‹›<>、，\u3000-\u30ff\u3400-\u9fff\uac00-\ud7af\uff00-\uffef\u0e00-\u0e7f]{4,128}+"

_ANY_PASSWORD: Final = (
    rf"(?:(?:{words.PASSWORD})|(?<![{words.LETTER}])(?:{words.SHORT_PASSWORD}))"
    rf"(?:(?<=[\u3040-\ud7af])|(?![{words.LETTER}_]))"
)
# Words after which a keyword is about passwords, not one.
_ABOUT: Final = (
    r"(?!@|[ -](?:manager|reset|polic|field|hash|rule|length|requirement|strength|generator|protect|less|column|input|"
    r"file|prompt|hint|change|update|expir|length|valid|auth|encrypt|table|model|type|box|min|max))"
)
_FORGET: Final = re.compile(words.FORGET, re.IGNORECASE)
_LOGIN: Final = rf"(?:{_whole(words.LOGIN_WORDS)}|[账帐帳][号號户戶]|用[户戶]名?|登[录錄]|ユーザー|アカウント|ログイン)"
_LOGIN_BEFORE: Final = re.compile(_LOGIN, re.IGNORECASE)
_GOES_ON: Final = re.compile(
    r"[\"'`»”*)」』!.?]{0,3}\s{0,3}(?:\Z|[\n,;/|(，。、；！？]|(?:[\u2013\u2014-]|"
    + words.GOES_ON
    + r")\s|[\u3040-\u30ff\u3400-\u9fff])"
)
_GAP_CHARS: Final = 48
_GAP: Final = (
    rf"(?:[^\n:=.,;!?，。；！？、]|\.(?=\S)|,(?=\s(?:it|c['’]|that|das|es|dat|è|é|to)(?![a-z]))){{0,{_GAP_CHARS}}}?"
)
_PASSWORD_WORD: Final = re.compile(_ANY_PASSWORD, re.IGNORECASE)
_LINK_AFTER: Final = re.compile(rf"{_ABOUT}(?P<gap>{_GAP})(?P<link>{_LINK})", re.IGNORECASE)
_NO_LINK: Final = re.compile(rf"(?:\s|(?<=[\u3040-\u9fff])){_OPENING}")
_VALUE_AFTER: Final = re.compile(_RUN)
_QUOTED: Final = re.compile(
    r"(?:(?<=[\"'“«「『„`‘])|(?<=«\s))[^\s\"”»」』“`\n’][^\"”»」』“`\n’]{2,79}+(?=[\"'”»」』“`’])"
)
_NAME_AFTER: Final = re.compile(r"[A-ZÀ-ÖØ-ÞŁŚŻ][a-zà-öø-ÿąćęłńóśźż]{4,24}+(?=[\"'*`]{0,2}\s{0,2}(?:\Z|[\n,.;!?)]))")
_NAMED_AS: Final = re.compile(
    rf"(?<![!-~À-ɏ]){_OPENING}(?P<secret>{_RUN})[\"'`»”」』*]{{0,2}}"
    r"(?:\s(?:as|is|was|als|ist|war|comme|est|como|es|come|è|é|jako|to|voor|for|für|pour|para|per|an?|eine?|een|une?|una|uma)"
    r"\s(?:[^\s.,;:!?]{1,16}\s){0,3}?|\s?(?:[当當做作]|作[为為]|[をがは])[^\s.,;!?，。]{0,8}?)"
    rf"{_ANY_PASSWORD}{_ABOUT}",
    re.IGNORECASE,
)
_CHANGED: Final = re.compile(rf"(?<![{words.LETTER}])(?:{words.CHANGE})", re.IGNORECASE)
_TO_AFTER: Final = re.compile(rf"[^\n:=.,;!?]{{0,40}}?{_whole(words.TO)}\s{_OPENING}", re.IGNORECASE)
_FROM_TO: Final = re.compile(
    rf"{_whole('from|von|de|du|del|da|van|z')}\s{_OPENING}(?P<old>{_RUN})[\"'`]?\s{_whole(words.TO)}\s{_OPENING}"
    rf"(?P<secret>{_RUN})|[从從](?P<old2>{_RUN})[改換换变變](?:成|为|為|到)(?P<secret2>{_RUN})|"
    rf"(?<![!-~])(?P<old3>{_RUN})から(?P<secret3>{_RUN})[にへ](?:変|し)",
    re.IGNORECASE,
)
_ABOUT_ACCESS: Final = re.compile(rf"{words.PASSWORD}|(?<![a-z])(?:wi-?fi|wlan)|{_LOGIN}", re.IGNORECASE)
_PAIR: Final = re.compile(
    rf"(?<![/.])(?:{_LOGIN}|(?<![a-z])wi-?fi|wlan)(?:[^\n.;!?/|]|\.(?=\S)){{0,50}}+[/|]\s?(?P<secret>{_RUN})",
    re.IGNORECASE,
)
_HARMLESS: Final = re.compile(
    r"[~/$\[{(%]|https?:|www\.|[\w.+-]{1,64}@[\w-]{1,64}\.[a-z]|\.{2,}|"  # Addresses, paths, variables.
    r"[a-z_][\w.]{0,63}[(\[]|(?:os|process|settings|config|env|self|this|req|request|user|ctx|args|opts|options)\.|"
    r"(?:debug|verbose)=|"
    r"(?:sha|aes|md|pbkdf|hmac|argon|bcrypt|scrypt|base|utf|oauth|iso|tls|ssl|ipv|http|rsa|ecdsa|ed)-?\d(?!\S{24})|"
    r"(?:office|windows|microsoft|outlook|python|node|iphone|galaxy|server|mysql|postgres|chrome|ios|keepass|1password|"
    r"bitwarden|log4j|auth0|k8s|oauth|webauthn|fido2?)[-_.]?\d{0,4}[\w.-]{0,12}(?!\S)|"
    r"v?\d{1,4}(?:[./:-]\d{1,4}){1,3}(?![\w!#$%&*@])|\d{1,4}-?[^\W\d_]{3,}(?!\S)|"  # Dates, versions, "12-digit".
    r"\d{1,5}(?:st|nd|rd|th|ms|s|h|d|gb|mb|kb|px|%)(?!\w)|"
    r"(?:your|my|the|tu|mi|su|dein|mein|ihr|votre|ton|mon|sua?|seu|minha|tuo|tua|twoj[ea]?|twój|uw|jouw|mijn)[-_]|"
    r"[x*.•_#-]{3,}(?!\w)|x{3,}|(?:change|replace|fill|insert|put|enter)[-_]?(?:me|this|it|here)|"
    r"placeholder|dummy|redacted|"
    r"(?:password|passwd|pass|pwd|pw|secret|token|user|example|sample|test|foo|bar|string|null|none|true|false|"
    r"contrase(?:ñ|n)a|senha|passwort|kennwort|has[łl]o|wachtwoord|mdp|key|hidden|masked|undefined|yes|no|"
    r"required|optional|process|default|value)[\"')\],;.!]{0,2}(?!\S)|"
    r"(?:[a-z]{1,20}_){1,4}(?:password|passwort|secret|token|key|pass|user)(?![^\s\"'),;])|"
    r"(?-i:[A-ZÀ-Þ]+_[A-ZÀ-Þ_]+)(?!\w)",
    re.IGNORECASE,
)
_UNITS: Final = re.compile(
    r"[\"'`*)]{0,2}[\s-]{0,2}(?:%|°|[€$£¥]|(?:"
    + words.UNITS
    + rf")(?![{words.LETTER}])|[位个個字文桁年月日天回分秒元円時点])",
    re.IGNORECASE,
)
_PLAIN_CAPITALS: Final = re.compile(words.PLAIN_CAPITALS, re.IGNORECASE)

# Words of passphrases and of the phrases that recover a wallet.
_WORD: Final = r"[^\W\d_]{2,16}+"
_SEED_WORD: Final = rf"(?!(?:{words.AND}|{words.FUNCTION})(?![{words.LETTER}])){_WORD}"
_SEED: Final = re.compile(
    rf"(?<![{words.LETTER}-])(?:{words.PHRASE})(?![{words.LETTER}])[^\n:：.]{{0,40}}?[:：\s]\s{{0,3}}{_OPENING}"
    rf"(?P<secret>(?:\d{{1,2}}[.)]\s?)?{_SEED_WORD}(?:[\s,、，]{{1,2}}(?:\d{{1,2}}[.)]?\s?)?{_SEED_WORD}){{11,23}})",
    re.IGNORECASE,
)
_PASSPHRASE: Final = re.compile(
    rf"(?:pass ?phrase|phrase (?:secrète|de passe)|frase (?:segreta|secreta|de contraseña)|wachtwoordzin|wachtzin|"
    rf"パスフレーズ|合言葉|口令短语)(?![{words.LETTER}])(?:(?>{_GAP}{_LINK})|"
    r"(?<=as passphrase)\s|(?<=als Passphrase)\s|(?<=comme phrase secrète)\s|(?<=como frase secreta)\s|"
    r"(?<=come frase segreta)\s)"
    rf"(?P<secret>{_WORD}(?:\s(?!{words.AND}\s)[^\s,.;:!?\"'»”]{{1,16}}+){{2,11}})",
    re.IGNORECASE,
)
_TALK: Final = re.compile(rf"(?:{words.TALK})(?!\w)", re.IGNORECASE)

# Numbers.
_CODE: Final = (
    rf"(?:(?:{words.CODE_WORD})(?![{words.LETTER}])|"  # Also at the end of a compound.
    r"[密号]?[码碼]|口令|コード|番号|ナンバー|パス)"
)
_CJK_LEAD: Final = {
    kind: re.compile(rf"(?:{lead})(?:[はが是为為：:]|就是|的?[是为為]|、)?\s?[「『“\"]?\Z")
    for kind, lead in words.CJK.items()
}
_VALUE: Final = (
    r"(?:\d{1,4}(?:[ -]\d{1,4}){1,3}|G-\d{6}|[#*]{0,2}\d{3,10}[A-Z]?[#*]{0,2}|"
    r"(?=[A-Z]{0,8}\d)(?=\d{0,8}[A-Z])[A-Z0-9]{4,10}[#*]?|"
    r"(?=[A-Za-z-]{0,12}\d)[A-Za-z0-9]{3,8}(?:-[A-Za-z0-9]{3,8}){1,7})"
)
_NUMBER: Final = re.compile(
    rf"(?:(?<![{words.LETTER}.,:/€$£¥_+#*-])|(?<=[\u3040-\u9fff\uac00-\ud7af]:)){_VALUE}"
    rf"(?![{words.LETTER}_]|[.,:/-]\d|[:/]\S)"
)
_NOT_CODES: Final = re.compile(words.NOT_CODES, re.IGNORECASE)
_LEADS: Final = (words.PLACE, words.DEVICE, words.VERIFY, words.BACKUP, words.PIN, words.CVV, words.BOX, "pins?")
_LED: Final = re.compile(
    rf"(?:{_LINK}|{_whole(words.CHOSE)}\s(?:(?:the|den|le|el|il|o|de) )?|"
    rf"(?:{_CODE}|{_whole('|'.join(_LEADS))})\s?[:#(,]?\s?{_OPENING})\Z",
    re.IGNORECASE,
)
_AFTER_CODE: Final = re.compile(rf"(?:{_CODE}|{_whole('pins?')})\s?[:#(]?\s?\Z", re.IGNORECASE)
_LINKED: Final = re.compile(rf"(?!to\b){_whole(words.IS)}", re.IGNORECASE)
_PLACE: Final = re.compile(_whole(rf"{words.PLACE}|{words.BOX}"), re.IGNORECASE)
_NEAR: Final = tuple(
    (kind, re.compile(near, re.IGNORECASE), re.compile(also, re.IGNORECASE), re.compile(shape))
    for kind, near, also, shape in (
        ("a card's security code", _whole(words.CVV), words.BACK, r"\d{3,4}"),
        ("a recovery code", _with_code(words.BACKUP), _CODE, r"(?=.{5}).*"),
        ("a PIN", _whole(words.PIN), "", r"\d{4,8}|\d{2,4} \d{2,4}"),
        ("a PIN", _whole("pins?"), _whole(f"{words.DEVICE}|{words.OWNED}"), r"\d{4,8}"),
        ("a verification code", _whole("m?TANs?|OTP"), "", r"\d{4,8}"),
        (
            "a verification code",
            _with_code(words.VERIFY),
            _CODE,
            r"(?:G-)?\d{4,8}|\d{3}[ -]\d{3,4}|(?![A-Z]{3,7}\d{1,4}\Z)[A-Z0-9]{5,8}",
        ),
        ("a door code", _with_code(words.PLACE), _CODE, ".*"),
        ("a door code", _whole(words.BOX), "", r"[\d #*-]{3,12}|[\dA-F]{4,6}"),
        ("a PIN", _with_code(words.DEVICE), _CODE, r"\d{4,8}"),
    )
)
_ACCESS_CODE: Final = re.compile(r"\d{4,8}")
_MORE: Final = re.compile(r"\s?(?:[,/&、和と或]|and|or|und|oder|et|ou|y|o|e|en|of|i|lub)\s?")
_ENTER: Final = re.compile(rf"(?<![{words.LETTER}])(?:{words.ENTER})(?: \w+){{0,3}}? \Z|输入|輸入", re.IGNORECASE)
_CODE_OF: Final = re.compile(
    rf"{_whole(words.CODE_WORD)}\s(?:{words.OF})\s(?:[^\s.,;:!?]{{1,20}}\s){{1,4}}?(?:{words.IS})\s"
    rf"(?:(?:{words.NOW})\s)?\Z|{_whole(words.CODE_WORD)}\sd[eu]?['’ ][^.,;:!?]{{1,30}}(?:{words.IS})\s\Z",
    re.IGNORECASE,
)
_NAMED_CODE: Final = re.compile(
    r"\s(?:as|is|was|als|ist|comme|est|como|es|come|è|é|jako|to)\s(?:[^\s.,;:!?]{1,16}\s){0,4}?"
    rf"(?:{_CODE}|{_whole(words.PIN)}|otp|m?tan)(?![{words.LETTER}])",
    re.IGNORECASE,
)
_OPENS: Final = re.compile(
    rf"(?<![a-z])(?:{words.OPENS})(?:\s(?:the|der|dem|den|le|el|il|lo|o|de|a)(?=\s))?"
    rf"(?:\s(?:{words.CODE_WORD}|{words.PASSWORD}|pin|numer\w{{0,2}}|number))?\s?:?\s?{_OPENING}\Z",
    re.IGNORECASE,
)
_OPENS_AFTER: Final = re.compile(
    r"\s?(?:(?:来|來|就能|可以|就)?(?:解[锁鎖]|[开開](?:[锁鎖门門])?|打[开開])|(?:を押して?|で)[^。\s]{0,6}?(?:開|解除|あ[くけ]|入))"
)
_STRONG_TOKEN: Final = re.compile(rf"(?<![!-~À-ɏ])(?P<secret>{_RUN})")

# Keys and cards.
_KEY: Final = (
    rf"(?:(?:{words.KEY_OF}|encryption|secret|licen[sc]e|private|access|signing|master|product)[ -]?"
    r"(?:key|schlüssel|sleutel)|"
    r"(?:recovery|bitlocker|backup)[ -]?key|wiederherstellungsschlüssel|clé de (?:récupération|secours)|"
    r"clave de recuperación|"
    r"chiave di recupero|chave de recuperação|herstelsleutel|klucz odzyskiwania|"
    r"(?:verschlüsselungs|sicherheits|netzwerk|lizenz)-?schlüssel|"
    r"(?:cl[eé]f?|clave|llave|chiave|chave|klucz|sleutel)\s"
    r"(?:d['’]|de |del |della |di |da |do |van |voor |la |el ){0,2}"
    rf"(?:{words.KEY_OF}|chiffrement|cifrado|cifratura|criptografia|secr[eè]te?|secreta|segreta|sécurité|accès|acceso)|"
    rf"(?:ssid|wi-?fi|wlan)[^\n.;!?]{{0,40}}?(?<![{words.LETTER}])(?:key|schlüssel|clé|clave|chiave|chave|sleutel|klucz))"
    rf"(?![{words.LETTER}_])|[密金][钥鑰]|APIキー|(?:Wi-?Fi|暗号化?)の?キー"
)
_KEY_VALUE: Final = re.compile(
    rf"(?:{_KEY})(?:\s\(\w{{1,12}}\))?(?:(?>{_GAP}{_LINK})|[^\S\n]|(?<=[\u3040-\u9fff])){_OPENING}(?P<secret>{_RUN})",
    re.IGNORECASE,
)
_KEY_CHARS: Final = 8
_DIGITS: Final = re.compile(r"(?:\d-?){8,64}")
_SECRET_GIVES: Final = re.compile(
    rf"(?<![{words.LETTER}])(?:secret|token|令牌|トークン|jeton)(?![{words.LETTER}_])"
    rf"(?>{_GAP}{_LINK})(?P<secret>{_RUN})",
    re.IGNORECASE,
)
_CARD: Final = re.compile(
    r"(?<![A-Za-z0-9_.-])[2-6]\d{3}([ -]?)(?:\d{4}\1\d{4}\1\d{1,7}|\d{6}\1\d{5})(?![A-Za-z0-9_-])"
)
_CARD_WORD: Final = re.compile(words.CARD, re.IGNORECASE)


def secret_phrases(text: str) -> Iterator[Secret]:
    """Yield the secrets that the sentences of a text give away, in no order; some may overlap."""
    lowered = text.lower()
    for start, end in _passwords(text, lowered):
        yield Secret(start, end, "a password")
    if _has(lowered, words.KEY_STEMS):
        for start, end in _keys(text):
            yield Secret(start, end, "a credential")
    if _has(lowered, words.PHRASE_STEMS):
        for pattern, kind in ((_SEED, "a recovery phrase"), (_PASSPHRASE, "a password")):
            for match in pattern.finditer(text):
                if _TALK.match(match["secret"]) is None:
                    yield Secret(*match.span("secret"), kind)
    if _has(lowered, words.CODE_STEMS):
        yield from _codes(text)
    for match in _CARD.finditer(text):
        around = text[max(match.start() - 50, 0) : match.start()], text[match.end() : match.end() + 50]
        if any(_CARD_WORD.search(part) for part in around):
            yield Secret(*match.span(), "a card number")


def _passwords(text: str, lowered: str) -> Iterator[tuple[int, int]]:
    if _has(lowered, words.PASSWORD_STEMS):
        spans = [word.span() for word in _PASSWORD_WORD.finditer(text)]
        limits = [start for start, _ in spans[1:]] + [len(text)]
        for (start, end), limit in zip(spans, limits, strict=False):
            yield from _after_word(text, start, end, min(limit, end + 2 * _GAP_CHARS))
        if spans:
            for match in _NAMED_AS.finditer(text):
                yield from _strong_span(match, "secret")
    if _has(lowered, words.CHANGE_STEMS):
        for match in _FROM_TO.finditer(text):
            yield from _spans_of_change(text, match)
    if _has(lowered, ("/", "|")) and _has(lowered, words.LOGIN_STEMS):
        for match in _PAIR.finditer(text):
            if _is_random(_trim(match["secret"])):
                yield from _strong_span(match, "secret")
    if _has(lowered, words.OPEN_STEMS):
        for match in _STRONG_TOKEN.finditer(text):
            if not _is_strong(_trim(match["secret"])):
                continue
            before, after = _around(text, match.start(), match.end())
            if _OPENS.search(before) or (before.endswith("用") and _OPENS_AFTER.match(after)):
                yield from _strong_span(match, "secret")


def _after_word(text: str, start: int, end: int, limit: int) -> Iterator[tuple[int, int]]:
    """Yield the values that follow a word for a password, before the next such word."""
    link = _LINK_AFTER.match(text, end, limit)
    if link and link["link"].strip().lower() == "to" and not _is_strong(_value_at(text, link.end())):
        link = _LINK_AFTER.match(text, link.end(), limit)  # "The password to the office is", or Polish "to".
    if link:
        begin = link.end()
        is_plain = link["gap"].strip("\"'*`]) ") == ""
        quoted = _QUOTED.match(text, begin)
        if quoted and not _is_placeholder(quoted[0]) and (is_plain or "=" not in link["link"]):
            yield quoted.span()
        name = _NAME_AFTER.match(text, begin)
        if name and _PLAIN_CAPITALS.fullmatch(name[0]) is None and not _is_placeholder(name[0]):
            yield name.span()
        value = _value_at(text, begin)
        is_pass = text[start:end].lower() == "pass" and value.upper() == value
        if (_is_strong(value) and not is_pass) or (
            value.isdecimal() and _UNITS.match(text, begin + len(value)) is None
        ):
            yield begin, begin + len(value)
    elif lead := _NO_LINK.match(text, end):
        value = _value_at(text, lead.end())
        if _is_strong(value) and _is_alone(text, start, end, lead.end(), value):
            yield lead.end(), lead.end() + len(value)
    if (lead := _TO_AFTER.match(text, end, limit)) and _is_strong(value := _value_at(text, lead.end())):
        before, after = _around(text, start, lead.end())
        if _CHANGED.search(before) or _CHANGED.search(after) or _CHANGED.search(text, end, lead.end()):
            yield lead.end(), lead.end() + len(value)


def _is_alone(text: str, start: int, end: int, begin: int, value: str) -> bool:
    """Return whether a value right after a word for a password is one: beside a login, or where its clause ends."""
    before, after = _around(text, start, begin + len(value))
    if _FORGET.search(before) or _FORGET.search(after):
        return False
    if _is_random(value) or _LOGIN_BEFORE.search(before):
        return True
    return text[start:end].lower() != "pass" and _GOES_ON.match(text, begin + len(value)) is not None


def _value_at(text: str, begin: int) -> str:
    match = _VALUE_AFTER.match(text, begin)
    return _trim(match[0]) if match else ""


def _spans_of_change(text: str, match: re.Match[str]) -> Iterator[tuple[int, int]]:
    nearby = text[max(match.start() - 120, 0) : match.end() + 120]
    for old, new in (("old", "secret"), ("old2", "secret2"), ("old3", "secret3")):
        is_change = match[new] and _is_strong(_trim(match[new])) and _ABOUT_ACCESS.search(nearby)
        if is_change and (old != "old" or _CHANGED.search(nearby)):
            yield from _strong_span(match, new)
            yield from _strong_span(match, old)


def _has(lowered: str, stems: tuple[str, ...]) -> bool:
    return any(stem in lowered for stem in stems)


def _keys(text: str) -> Iterator[tuple[int, int]]:
    for match in _KEY_VALUE.finditer(text):
        value = _trim(match["secret"])
        if len(value) >= _KEY_CHARS and (_is_strong(value) or _DIGITS.fullmatch(value)):
            yield match.start("secret"), match.start("secret") + len(value)
    for match in _SECRET_GIVES.finditer(text):
        value = _trim(match["secret"])
        if len(value) >= _KEY_CHARS and _is_random(value):
            yield match.start("secret"), match.start("secret") + len(value)


def _codes(text: str) -> Iterator[Secret]:
    last: Secret | None = None
    for match in _NUMBER.finditer(text):
        before, after = _around(text, match.start(), match.end())
        if not _has(before.lower() + after.lower(), words.CODE_STEMS) or _UNITS.match(text, match.end()):
            continue
        is_more = last is not None and _MORE.fullmatch(text, last.end, match.start()) is not None
        kind = last.kind if last is not None and is_more else _kind_of_code(match[0], before, after)
        if kind is not None:
            last = Secret(*match.span(), kind)
            yield last


def _kind_of_code(value: str, before: str, after: str) -> str | None:
    for kind, lead in _CJK_LEAD.items():
        if lead.search(before):
            return kind
    if _NOT_CODES.search(before):
        return None
    if _OPENS.search(before) or _OPENS_AFTER.match(after):
        return "a door code" if any(near.search(before) for kind, near, *_ in _NEAR if "door" in kind) else "a PIN"
    if _ENTER.search(before) and _PLACE.search(f"{before} {after}"):
        return "a door code"
    named = _NAMED_CODE.match(after)
    if named is None and (_LED.search(before[-32:]) is None or len(_LINKED.findall(before)) > 1):
        return None
    is_direct = _AFTER_CODE.search(before[-32:]) is not None
    nearby = f"{before} {after}" if is_direct or named else before
    for kind, near, also, shape in _NEAR:
        if near.search(nearby) and also.search(nearby) and shape.fullmatch(value):
            return kind
    return "an access code" if _ACCESS_CODE.fullmatch(value) and _CODE_OF.search(before) else None


def _around(text: str, start: int, end: int) -> tuple[str, str]:
    """Return what of a sentence is before a place, and what is after it."""
    before = _STOPS.split(text[max(start - _AROUND, 0) : start])[-1]
    return before, _STOPS.split(text[end : end + _AROUND], maxsplit=1)[0]


def _strong_span(match: re.Match[str], group: str) -> Iterator[tuple[int, int]]:
    value = _trim(match[group])
    if _is_strong(value):
        yield match.start(group), match.start(group) + len(value)


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


def _is_placeholder(value: str) -> bool:
    """Return whether a value stands for a secret, or is an address, a variable or a method instead of one."""
    return _HARMLESS.match(value) is not None
