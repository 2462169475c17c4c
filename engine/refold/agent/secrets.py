"""Detection of keys, tokens and passwords in text by their common shapes, so that none is learned or shown again. Pure.

Detection by shape misses secrets without a known shape, and takes harmless words for one: what is learned is refused
as a whole, but of a message only the secret is masked, so that the rest of it can still answer a question.
"""

import re
from collections.abc import Iterator
from typing import Final

from refold.agent.secret_phrases import Secret, secret_phrases

# Before a keyword. Names of environment variables join words with underscores, which `\b` treats as word characters.
_BEGINS: Final = r"(?<![A-Za-z0-9])"


_NOW: Final = "now|jetzt|nun|ahora|agora|maintenant|adesso|ora|nu|teraz"


# Between a keyword and its value: quotes or Markdown marks, or what the password is for, in the same clause, and "is".
_MIDDLE: Final = (
    rf"(?![A-Za-z0-9])(?:[\"'\]*`]{{0,3}}|\s(?:{_NOW})|\s(?:at|for|in|of|on|to)\s(?:(?![.;!?]\s)[^\n:=]){{1,40}}?)\s*+"
    rf"(?:(?<![A-Za-z])(?:is|are|ist|est|es)(?!\w)(?:\s(?:{_NOW})(?!\w))?(?:\s*+:)?|:=|[=:：是は는은])[*`]{{0,3}}\s*+"
    r"[\"'`*]{0,3}"
)
# Invisible characters, which can be hidden between the letters of a key.
_UNSEEN: Final = re.compile("[\xad\u200b-\u200f\u2060-\u2064\ufeff]")

# Starts at the first eyJ of a run: if that is not a token, no token starts later in the run.
_SIGNED: Final = r"(?<![A-Za-z0-9_-])(?>[A-Za-z0-9_-]*?\beyJ)[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*"

# Words that follow "the password is" in a sentence about passwords.
_PLAIN: Final = (
    "stored|kept|in|not|required|the|a|an|hashed|rotated|must|never|always|changed|reset|set|read|sent|shared|"
    "encrypted|generated|validated|checked|optional|managed|injected|provided|needed|valid|invalid|too|at|from|only|"
    "weak|strong|wrong|right|correct|incorrect|long|short|safe|secure|saved|easy|hard|empty|missing|same|still|also|just|really|"
    "very|so|probably|different|hidden|visible|good|bad|leaked|compromised|simple|complex|case-sensitive|rejected|accepted|"
    "working|fine|ok|okay|being|going|gone|yes|no|here|there|this|that|what|why|how|on|under|with|about|longer|shorter|"
    "already|currently|usually|probably|actually|written|known|lost|like|your|our|their|part|case|more|less|better|enough|"
    "something|nothing|unknown|out|up|off|now|"
    "asked|expired|bcrypt|argon2?|scrypt|salted|string|text|str|bytes|null|none|true|false|undefined"
)

# The same in other languages, where the value must contain a digit: without one, it could be any word of the sentence.
# "12-digit" and the name of a method say what passwords are like.
_VALUE: Final = (
    r"(?![~/]|https?:|\d{1,3}-[^\W\d_]+(?!\w)|(?:sha|aes|md|pbkdf|hmac|argon|base|utf|oauth|iso|tls|ssl)-?\d)"
    r"(?=[!#-&(-/:-_a-~]{0,64}\d)(?P<secret>[!#-&(-_a-~]{6,}+)"
)
_RUSSIAN: Final = (
    r"парол(?:ь|я|а|ата)(?!\w)(?:(?-i:\s[А-ЯЁІЇЄҐ][а-яёіїєґ]++){1,2}|"
    r"\s(?:от|для|к|на|в|у|від|до|за)\s(?:(?![.;!?]\s)[^\n:=]){1,40}?)?"
    r"(?:\s[\u2013\u2014-]{1,2}(?:\s(?:это|це))?\s|\s?[:=]\s?|(?:\s(?:это|це|теперь|сейчас|тепер|зараз|такой|е)){1,3}\s)"
)
_ARABIC: Final = (
    r"كلمة\s(?:(?:مرور|سر)(?:ي|ك|ه|ها|نا)?|ال(?:مرور|سر)(?=\s?[:=]|\s(?:ال|هي|هو|ل(?![امن]\s))))(?!\w)"
    r"(?:(?![.;!?؟]\s)[^\n:=]){0,40}?(?:\s(?:هي|هو|الآن)(?:\s?:)?\s|\s?[:=]\s?)"
)
# Without "is", the keyword begins a clause and the value ends it: "I forgot my password Office365" does not.
_BARE: Final = (
    r"(?:\A|[.,;:!?\n،。，；：！？]|(?:что|що|أن|ان|که|diye)\s)\s?"
    r"(?:(?:мой|наш|мій|my|我的|我们的|我們的|و)\s?)?"
    r"(?:пароль(?:(?-i:\s[А-ЯЁІЇЄҐ][а-яёіїєґ]++){1,2})?|كلمة\s(?:ال)?(?:مرور|سر)ي?(?:\sالخاصة\sبي)?|"
    r"(?:şifre|parola)(?:m|miz)?|密码|密碼)(?!\w)\s"
)
_CLAUSE_END: Final = r"(?:(?<=[.,;!?])|(?=[ \t]{0,3}(?:\Z|[\n،؛。，；！？])))"

_SHAPES: Final = (
    (
        "a private key",
        re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY(?:.*?-----END [A-Z ]*PRIVATE KEY(?:-----)?|.*)", re.DOTALL),
    ),
    ("an AWS access key", re.compile(r"(?<![A-Za-z0-9_])(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9_])")),
    (
        "a provider's API key",
        re.compile(
            r"(?<![A-Za-z0-9_])(?:sk|pk|rk)[-_](?=[a-zA-Z_-]{0,300}\d)(?:[A-Za-z0-9]{1,32}[-_]){0,8}[A-Za-z0-9]{16,}"
        ),
    ),
    ("a GitHub token", re.compile(r"(?<![A-Za-z0-9_])(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})")),
    ("a GitLab token", re.compile(r"(?<![A-Za-z0-9_])glpat-[A-Za-z0-9_-]{16,}")),
    ("a Slack token", re.compile(r"(?<![A-Za-z0-9_])(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{8,}")),
    (
        "a service's token",
        re.compile(
            r"(?<![A-Za-z0-9_])(?:(?:whsec_|dop_v1_|shp(?:at|ca|pa|ss)_|gsk_|xai-|lin_api_|ntn_|sbp_|r8_|pplx-|NRAK-|AGE-SECRET-KEY-1)"
            r"(?=[A-Za-z]{0,64}\d)[A-Za-z0-9]{20,}|(?:GOCSPX-|dckr_pat_|ATATT3|hvs\.)(?=[A-Za-z_-]{0,64}\d)[\w-]{20,}|"
            r"\d{8,10}:[A-Za-z0-9_-]{34,40}(?![A-Za-z0-9_-])|SK[0-9a-f]{32}(?![A-Za-z0-9_]))"
        ),
    ),
    (
        "an address that is a secret",
        re.compile(
            r"hooks\.slack\.com/services/[\w/-]+|discord(?:app)?\.com/api/webhooks/[\w/-]+|[?&]sig=[\w%+/=-]{20,}"
        ),
    ),
    ("a Google API key", re.compile(r"(?<![A-Za-z0-9_])AIza[0-9A-Za-z_-]{30,}")),
    ("a JSON web token", re.compile(_SIGNED)),
    ("a bearer token", re.compile(r"\bbearer\s+(?P<secret>[A-Za-z0-9._~+/=-]{16,})", re.IGNORECASE)),
    (
        "a token of a registry",
        re.compile(r"(?<![A-Za-z0-9_])(?:npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{20,})"),
    ),
    ("an OAuth token", re.compile(r"(?<![A-Za-z0-9_])ya29\.[A-Za-z0-9_-]{16,}")),
    ("a mail service's key", re.compile(r"(?<![A-Za-z0-9_])SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}")),
    ("basic credentials", re.compile(r"\b(?i:basic)\s+(?=[a-z+/]*[A-Z0-9])[A-Za-z0-9+/]{12,}={0,2}(?![A-Za-z0-9+/])")),
    (
        "a password in an address",
        re.compile(r"(?<![A-Za-z0-9_])[a-z][a-z0-9+.-]{0,20}://[^\s:/@]{0,256}:[^\s/]{1,256}@", re.IGNORECASE),
    ),
    (
        "a password",
        re.compile(
            rf"(?:password|passwd|passphrase|{_BEGINS}(?:passcode|pwd)){_MIDDLE}"
            rf"(?!(?:{_PLAIN})(?![\w!#$%&*+@^~?=]|-\S{{0,64}}[\d!#$%&*+@^~?=])|[~/])(?P<secret>[^\s\"'`*]{{4,}})",
            re.IGNORECASE,
        ),
    ),
    ("a password", re.compile(rf"(?:{_RUSSIAN}|{_ARABIC})[\"'`*«]{{0,3}}{_VALUE}", re.IGNORECASE)),
    ("a password", re.compile(rf"{_BARE}[\"'`*«]{{0,3}}{_VALUE}{_CLAUSE_END}", re.IGNORECASE)),
    (
        "a password",  # The verb comes last.
        re.compile(
            rf"(?:पासवर्ड|{_BEGINS}password|رمز عبور|پاس\s?ورڈ)(?!\w)(?:\s(?:अब|ab))?\s?[:\s]\s?[\"'`*]{{0,3}}{_VALUE}\s"
            r"(?:है|था|hai|tha|است|ہے)(?!\w)",
            re.IGNORECASE,
        ),
    ),
    (
        "a credential",
        re.compile(
            rf"{_BEGINS}(?:(?:api|access|account)[ _-]?key|(?:client[ _-]?)?secret(?:[ _-]?access)?(?:[ _-]?key)?|"
            rf"(?:access|auth)[ _-]?token|token|credential)s?{_MIDDLE}"
            r"(?=[^\s'\"]{0,128}\d)(?P<secret>[A-Za-z0-9_./+=-]{12,})",
            re.IGNORECASE,
        ),
    ),
)


# Numbers and passwords whose keyword is short, so that it needs more around it.
_PIN: Final = (
    rf"(?:{_BEGINS}(?-i:PIN|Pin(?=\s(?:ist|lautet|es|is|est)))|"
    rf"{_BEGINS}(?:my|our|his|her|their|your|meine?|unsere?|mi|mon|code|the(?!\spin\s\d))\spin)(?!\w)(?:[\s-](?:code|number|nummer))?"
    r"(?:\s(?:for|of|to|at|on|für|von|de|del|para|pour)\s(?:(?![.;!?]\s)[^\n:=\d]){1,40}?)?"
    rf"(?:\s(?:{_NOW}))?(?:\s(?:is|ist|lautet|es|est)(?:\s(?:{_NOW}))?)?\s?[:=]?\s?[\"'`*]{{0,3}}"
    r"(?P<secret>\d{4,8})(?![\d.,:/-]*\d|\w|[%°]|\s(?:years?|times|posts|pins|items|people|users|[kmc]?m|of)(?!\w))"
)
# In India, a PIN of six digits beside such a word is a postal code.
_POSTAL: Final = re.compile(r"[1-9]\d{5}")
_ADDRESS: Final = re.compile(
    r"\b(?:address|street|road|rd|lane|marg|nagar|colony|sector|area|city|district|village|town|state|office|post|postal|"
    r"deliver\w{0,8}|ship\w{0,8}|locat\w{0,8}|live|india|delhi|mumbai|kolkata|chennai|bengaluru|bangalore|hyderabad|pune)\b",
    re.IGNORECASE,
)
_ADDRESS_CHARS: Final = 80
_CVV: Final = (
    rf"{_BEGINS}(?:(?:cvv|cvc)2?|csc(?=\scode|\s?[:=]|\sis\s))(?!\w)(?:\s(?:code|number))?(?:\s(?:is|ist))?\s?[:=]?\s?"
    r"(?P<secret>\d{3,4})(?![\w.,]*\d)"
)
_VARIABLE: Final = (
    r"(?:(?-i:(?<![A-Za-z0-9])(?:[A-Z0-9]{1,32}_){1,4}PASS)|"
    r"(?<![A-Za-z0-9])(?:[a-z0-9]{1,32}_){0,3}(?:db|database|smtp|mail|redis|ftp|admin|root|user|pg|mysql|auth)_pass)"
    r"\s?[:=]\s?[\"'`]?(?![$<{(\[]|(?:true|false|enabled|disabled|required|success\w*|failed)\b)(?P<secret>[^\s\"'`]{6,})"
)
# A boarding pass and the like have numbers, too.
_PW: Final = (
    rf"(?:{_BEGINS}(?:pw|psw)|(?:(?<![A-Za-z0-9])(?<![A-Za-z0-9]\s)|"
    r"(?<![A-Za-z0-9])(?:my|our|is|and|with|user|login|account|admin|root|db|database|wi-?fi|e?-?mail|ftp|ssh|smtp)\s)pass)"
    rf"\s?[:=]\s?[\"'`]?(?=[^\s\d]{{0,64}}\d)(?=[^\sa-z]{{0,64}}[a-z]){_VALUE}"
)
_COMMANDS: Final = (
    r"\b(?:curl|wget|http)\b[^\n]{0,200}?\s(?:-u|--user)[\s=]?[\"']?[^\s:\"'$]{1,64}:(?![$<{*])(?P<secret>[^\s\"']{4,})",
    r"\b(?:mysql(?:dump|admin)?|mariadb)\b[^\n]{0,200}?\s(?-i:-p)(?![$<{*\s])[\"']?(?P<secret>[^\s\"']{4,})",
    r"\bsshpass\s-p\s?[\"']?(?![$<{*])(?P<secret>[^\s\"']{4,})",
)
_A_PIN: Final = "a PIN"
_CARD: Final = "a card number"
_SHORT_SHAPES: Final = (
    (_A_PIN, re.compile(_PIN, re.IGNORECASE)),
    ("a card's security code", re.compile(_CVV, re.IGNORECASE)),
    *(("a password", re.compile(shape, re.IGNORECASE)) for shape in (_VARIABLE, _PW, *_COMMANDS)),
    (
        _CARD,
        re.compile(r"(?<![\w.-])[2-6]\d{3}([ -]?)(?:\d{4}\1\d{4}\1\d{1,7}|\d{6}\1\d{5})(?![\w-])"),
    ),
)


# Instead of a password, and nothing else: a password may well begin as one of these.
_PLACEHOLDER: Final = re.compile(
    r"(?:\$\{[^\s}]{0,64}\}?|\$\(?[A-Z_]{2,64}\)?|<[^\s>]{0,64}>?|\{\{?[^\s}]{0,64}\}{0,2}|[x*.\u2022#_-]{3,64}|"
    r"(?:change|replace|fill|insert|put|enter)[-_]?(?:me|this|it|here)|"
    r"(?:(?:your|my)[-_](?:[a-z]{1,12}[-_]){0,2})?(?:password|passwd|pass|pwd|secret|token)(?:[-_]here)?|"
    r"example|placeholder|dummy|redacted|hidden|masked|yes|no|null|none|true|false|undefined|required|optional|"
    r"(?:os|process|settings|config|env|self|this|request|req)\.[a-z_.]{1,64}|[a-z_][\w.]{0,63}(?:[(\[]|\(\)))"
    r"[\"')\],;.!]{0,2}",
    re.IGNORECASE,
)


def _is_postal(text: str, start: int, end: int) -> bool:
    before = text[max(start - _ADDRESS_CHARS, 0) : start]
    return _POSTAL.fullmatch(text, start, end) is not None and _ADDRESS.search(before) is not None


def _is_secret(kind: str, text: str) -> bool:
    """Return whether what has the shape of a secret is one. The last digit of a card number checks the others."""
    if kind in {"a password", "a password in an address"}:
        value = text.rpartition(":")[2].removesuffix("@") if kind.endswith("address") else text
        return _PLACEHOLDER.fullmatch(value) is None
    if kind != _CARD:
        return True
    digits = [int(char) for char in reversed(text) if char.isdecimal()]
    doubled = (sum(divmod(2 * digit, 10)) for digit in digits[1::2])
    return (sum(digits[::2]) + sum(doubled)) % 10 == 0


def secret_in(text: str) -> str | None:
    """Return the kind of secret that a text seems to contain, never the secret itself, or ``None``.

    >>> secret_in("The key is AKIAABCDEFGHIJKLMNOP.")
    'an AWS access key'
    """
    plain = _UNSEEN.sub("", text)
    return next((secret.kind for secret in _secrets(plain)), None)


# A password of plain words, without a digit, can have more of them: it is masked to the end of its sentence.
_WORDS_LEFT: Final = re.compile(r"[^\n.!?]{0,200}")
_QUOTES: Final = "\"'`"
_QUOTED_CHARS: Final = 200
_PUNCTUATION: Final = ",;.!?"


def mask_secrets(text: str) -> str:
    """Return a text with the kind of each secret in its place, and without invisible characters if there is one.

    >>> mask_secrets("My password is 'hunter22', and the flight leaves at 9.")
    "My password is '[a password, not shown]', and the flight leaves at 9."
    """
    plain = _UNSEEN.sub("", text)
    secrets = sorted(_secrets(plain))
    if not secrets:
        return text
    pieces, end = list[str](), 0
    for secret in secrets:
        if secret.start >= end:
            pieces += plain[end : secret.start], f"[{secret.kind}, not shown]"
        end = max(end, secret.end)
    return "".join((*pieces, plain[end:]))


def _secrets(text: str) -> Iterator[Secret]:
    for kind, shape in (*_SHAPES, *_SHORT_SHAPES):
        has_words = "secret" in shape.groupindex  # Around the secret.
        for match in shape.finditer(text):
            start, end = match.span("secret") if has_words else match.span()
            if not _is_secret(kind, text[start:end]) or (kind == _A_PIN and _is_postal(text, start, end)):
                continue
            yield Secret(start, _end_of_secret(text, start, end) if has_words else end, kind)
    for secret in secret_phrases(text):
        if secret.kind != _A_PIN or not _is_postal(text, secret.start, secret.end):
            yield secret


def _end_of_secret(text: str, start: int, end: int) -> int:
    """Return where a secret ends: at its closing quote, or with its sentence if it consists of plain words."""
    quote = text[start - 1 : start]
    if quote and quote in _QUOTES:
        closing = text.find(quote, end, end + _QUOTED_CHARS)
        return end if closing < 0 else closing
    value = text[start:end].rstrip(_PUNCTUATION)
    end = start + len(value)
    rest = _WORDS_LEFT.match(text, end) if value.isalpha() else None
    return rest.end() if rest else end
