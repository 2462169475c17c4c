"""Secrets in texts: the common shapes of keys, tokens and passwords. What has one is never learnt.

Pure. A detector of shapes misses what has none and may refuse what only looks like one; both are better than a key
that is shown to a model in every session from now on.
"""

import re
from typing import Final

_SHAPES: Final = (
    ("a private key", re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY")),
    ("an AWS access key", re.compile(r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b")),
    ("a provider's API key", re.compile(r"\b(?:sk|pk|rk)[-_](?:[A-Za-z0-9]{1,32}[-_]){0,8}[A-Za-z0-9]{16,}")),
    ("a GitHub token", re.compile(r"\b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_[A-Za-z0-9_]{20,})")),
    ("a GitLab token", re.compile(r"\bglpat-[A-Za-z0-9_-]{16,}")),
    ("a Slack token", re.compile(r"\bxox[abeoprs]-[A-Za-z0-9-]{8,}")),
    ("a Google API key", re.compile(r"\bAIza[0-9A-Za-z_-]{30,}")),
    ("a JSON web token", re.compile(r"\beyJ[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]{8,}\.[A-Za-z0-9_-]*")),
    ("a bearer token", re.compile(r"\bbearer\s+[A-Za-z0-9._~+/-]{16,}", re.IGNORECASE)),
    (
        "a password in an address",
        re.compile(r"\b[a-z][a-z0-9+.-]{0,20}://[^\s:/@]{1,256}:[^\s/@]{1,256}@", re.IGNORECASE),
    ),
    (
        "a password",
        re.compile(
            r"\b(?:password|passwd|passphrase|pwd)\b\s*(?:is|are|=|:)\s*(?!(?:stored|kept|in|not|required|the|a|hashed)\b)\S{4,}",
            re.IGNORECASE,
        ),
    ),
    (
        "a credential",
        re.compile(
            r"\b(?:api[ _-]?key|secret(?:[ _-]?key)?|access[ _-]?token|auth[ _-]?token|token|credential)s?\b"
            r"\s*(?:is|=|:)\s*['\"]?(?=[^\s'\"]*\d)[A-Za-z0-9_./+=-]{12,}",
            re.IGNORECASE,
        ),
    ),
)


def secret_in(text: str) -> str | None:
    """Return what kind of secret a text seems to hold, ``None`` for none; never the secret itself.

    >>> secret_in("The key is AKIAABCDEFGHIJKLMNOP.")
    'an AWS access key'
    """
    return next((kind for kind, shape in _SHAPES if shape.search(text)), None)
