"""Detection of keys, tokens and passwords in text by their common shapes, so that none is learned or shown again. Pure.

Detection by shape misses secrets without a known shape, and takes harmless words for one: what is learned is refused
as a whole, but of a message only the secret is masked, so that the rest of it can still answer a question.
"""

import re
from collections.abc import Iterator
from typing import Final

from refold.agent.secret_phrases import Secret, secret_phrases
from refold.agent.secret_words import pattern
from refold.agent.vocabulary import read_tables

# Invisible characters, which can be hidden between the letters of a key.
_UNSEEN: Final = re.compile("[\xad\u200b-\u200f\u2060-\u2064\ufeff]")

# Keys, tokens and addresses with a shape of their own.
_KEYS: Final = read_tables(r"""
a private key = -----BEGIN [A-Z ]*PRIVATE KEY(?s:.*?-----END [A-Z ]*PRIVATE KEY(?:-----)?|.*)
an AWS access key = <key begin>(?:AKIA|ASIA)[0-9A-Z]{16}(?![A-Za-z0-9_])
a provider's API key = <key begin>(?:sk|pk|rk)[-_](?=[a-zA-Z_-]{0,300}\d)(?:[A-Za-z0-9]{1,32}[-_]){0,8}[A-Za-z0-9]{16,}
a GitHub token = <key begin>(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})
a GitLab token = <key begin>glpat-[A-Za-z0-9_-]{16,}
a Slack token = <key begin>(?:xox[abeoprs]|xapp)-[A-Za-z0-9-]{8,}
a service's token = <key begin>(?:(?:whsec_|dop_v1_|shp(?:at|ca|pa|ss)_|gsk_|xai-|lin_api_|ntn_|sbp_|r8_|pplx-|NRAK-|
    AGE-SECRET-KEY-1)(?=[A-Za-z]{0,64}\d)[A-Za-z0-9]{20,}|(?:GOCSPX-|dckr_pat_|ATATT3|hvs\.)(?=[A-Za-z_-]{0,64}\d)
    [\w-]{20,}|\d{8,10}:[A-Za-z0-9_-]{34,40}(?![A-Za-z0-9_-])|SK[0-9a-f]{32}(?![A-Za-z0-9_]))
an address that is a secret = hooks\.slack\.com/services/[\w/-]+|discord(?:app)?\.com/api/webhooks/[\w/-]+|
    [?&]sig=[\w%+/=-]{20,}
a Google API key = <key begin>AIza[0-9A-Za-z_-]{30,}
# Starts at the first eyJ of a run: if that is not a token, no token starts later in the run.
a JSON web token = (?<![A-Za-z0-9_-])(?>[A-Za-z0-9_-]*?\beyJ)[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]{8,}+\.[A-Za-z0-9_-]*
a bearer token = \b(?i:bearer)\s+(?P<secret>[A-Za-z0-9._~+/=-]{16,})
a token of a registry = <key begin>(?:npm_[A-Za-z0-9]{30,}|pypi-[A-Za-z0-9_-]{16,}|hf_[A-Za-z0-9]{20,})
an OAuth token = <key begin>ya29\.[A-Za-z0-9_-]{16,}
a mail service's key = <key begin>SG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}
basic credentials = \b(?i:basic)\s+(?=[a-z+/]*[A-Z0-9])[A-Za-z0-9+/]{12,}={0,2}(?![A-Za-z0-9+/])
a password in an address = <key begin>[A-Za-z][A-Za-z0-9+.-]{0,20}://[^\s:/@]{0,256}:
    (?!<poor password>@(?i:<sample host>))[^\s/]{1,256}@
""")
# What a word or a command before it shows.
_NAMED: Final = read_tables(r"""
a password =
# "The password for the wifi is hunter", "MYSQL_PWD=hunter"
(?:(?<!\b1)password|passwd|passphrase|<begin>(?:passcode|pwd))<middle>
    (?!<password talk>(?![\w#$%&*+@^~=]|[!?](?=[^\s!?])|-\S{0,64}[\d!#$%&*+@^~?=])|[~/])(?P<secret>[^\s"'`*]{4,})
(?:<russian password>|<arabic password>)["'`*«]{0,3}<mixed value>
# Without "is", the keyword begins a clause and the value ends it: "I forgot my password Office365" does not.
<bare password>["'`*«]{0,3}<mixed value>(?:(?<=[.,;!?])|(?=[ \t]{0,3}(?:\Z|[\n،؛。，；！？])))
# "mera password hunter2 hai": the verb comes last.
(?:पासवर्ड|<begin>password|رمز عبور|پاس\s?ورڈ)(?!\w)(?:\s(?:अब|ab))?\s?[:\s]\s?["'`*]{0,3}<mixed value>\s
    (?:है|था|hai|tha|است|ہے)(?!\w)
# "export SMTP_PASS=hunter"
<begin>(?:(?-i:(?:[A-Z0-9]{1,32}_){1,4}PASS)|
    (?:[a-z0-9]{1,32}_){0,3}(?:db|database|smtp|mail|redis|ftp|admin|root|user|pg|mysql|auth)_pass)\s?[:=]\s?["'`]?
    (?![$<{(\[]|(?:true|false|enabled|disabled|required|success\w*|failed)\b)(?P<secret>[^\s"'`]{6,})
\b(?:curl|wget|http)\b[^\n]{0,200}?\s(?:-u|--user)[\s=]?["']?[^\s:"'$]{1,64}:(?![$<{*])(?P<secret>[^\s"']{4,})
\b(?:mysql(?:dump|admin)?|mariadb)\b[^\n]{0,200}?\s(?-i:-p)(?![$<{*\s])["']?(?P<secret>[^\s"']{4,})
\bsshpass\s-p\s?["']?(?![$<{*])(?P<secret>[^\s"']{4,})

# "X-Api-Key: abc123def456"
a credential = <begin>(?:(?:api|access|account)[ _-]?key|(?:client[ _-]?)?secret(?:[ _-]?access)?(?:[ _-]?key)?|
    (?:access|auth)[ _-]?token|token|credential)s?<middle>(?=[^\s'"]{0,128}\d)(?P<secret>[A-Za-z0-9_./+=-]{12,})
# "My pin for the bank is 4821"
a PIN = <begin>(?:(?-i:PIN|Pin(?=\s(?:ist|lautet|es|is|est)))|
    (?:my|our|his|her|their|your|meine?|unsere?|mi|mon|code|the(?!\spin\s\d))\spin)(?!\w)(?:[\s-](?:code|number|nummer))?
    (?:\s(?:for|of|to|at|on|für|von|de|del|para|pour)\s(?:(?![.;!?]\s)[^\n:=\d]){1,40}?)?
    (?:\s<now>)?(?:\s(?:is|ist|lautet|es|est)(?:\s<now>)?)?\s?[:=]?\s?["'`*]{0,3}
    (?P<secret>\d{4,8})(?![\d.,:/-]*\d|\w|[%°]|\s(?:years?|times|posts|pins|items|people|users|[kmc]?m|of)(?!\w))
a card's security code = <begin>(?:(?:cvv|cvc)2?|csc(?=\scode|\s?[:=]|\sis\s))(?!\w)(?:\s(?:code|number))?
    (?:\s(?:is|ist))?\s?[:=]?\s?(?P<secret>\d{3,4})(?![\w.,]*\d)
""")
_PATTERNS: Final = (
    *((kind, re.compile(pattern(f"(?-i:{key})"))) for kind, keys in _KEYS.items() for key in keys),
    *((kind, re.compile(pattern(shape))) for kind, shapes in _NAMED.items() for shape in shapes),
)

# Instead of a password, and nothing else: a password may well begin as one of these.
_PLACEHOLDER: Final = re.compile(pattern("<placeholder><closing>|<stand in>@"))
# In India, a PIN of six digits beside such a word is a postal code.
_POSTAL: Final = re.compile(r"[1-9]\d{5}")
_ADDRESS: Final = re.compile(pattern(r"\b<address>\b"))
_ADDRESS_CHARS: Final = 80


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
    for kind, shape in _PATTERNS:
        has_words = "secret" in shape.groupindex  # Around the secret.
        for match in shape.finditer(text):
            start, end = match.span("secret") if has_words else match.span()
            if not _is_placeholder(kind, text, start, end) and not _is_postal(kind, text, start, end):
                yield Secret(start, _end_of_secret(text, start, end) if has_words else end, kind)
    for secret in secret_phrases(text):
        if not _is_postal(secret.kind, text, secret.start, secret.end):
            yield secret


def _is_placeholder(kind: str, text: str, start: int, end: int) -> bool:
    if kind == "a password in an address":
        start = text.rindex(":", start, end) + 1
    return kind.startswith("a password") and _PLACEHOLDER.fullmatch(text, start, end) is not None


def _is_postal(kind: str, text: str, start: int, end: int) -> bool:
    before = text[max(start - _ADDRESS_CHARS, 0) : start]
    return kind == "a PIN" and _POSTAL.fullmatch(text, start, end) is not None and _ADDRESS.search(before) is not None


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
