"""Access to a server that other machines can reach: only clients that know its token are answered."""

import hashlib
import hmac
from http.cookies import CookieError, SimpleCookie
from typing import Final

from starlette.datastructures import Headers

from refold import checks

LOGIN_PATH: Final = "/login"
COOKIE: Final = "refold_access"
TOKEN_CHARS_MIN: Final = 16
_BEARER: Final = "bearer "


class Access:
    """A token that programs send as `Authorization: Bearer`, and users enter once in a form in exchange for a cookie.

    The cookie is not the token: it is worthless for the next server that is started.
    """

    def __init__(self, token: str, secret: str) -> None:
        if len(token) < TOKEN_CHARS_MIN:
            checks.invalid(
                f"the token has {len(token)} characters; give at least {TOKEN_CHARS_MIN = }, drawn by chance"
            )
        self._token = token
        self.cookie = hmac.new(secret.encode(), token.encode(), hashlib.sha256).hexdigest()

    def is_token(self, given: str) -> bool:
        """Return whether a text is the token."""
        return is_secret(given, self._token)

    def admits(self, headers: Headers) -> bool:
        """Return whether a request has the token or the cookie."""
        header = headers.get("authorization", "")
        if header.lower().startswith(_BEARER):
            return self.is_token(header[len(_BEARER) :].strip())
        try:
            cookie = SimpleCookie(headers.get("cookie", "")).get(COOKIE)
        except CookieError:
            return False
        return cookie is not None and is_secret(cookie.value, self.cookie)


def is_secret(text: str, secret: str) -> bool:
    """Compare a text from outside with a secret, in a time that reveals nothing of the secret."""
    return hmac.compare_digest(text.encode("utf-8", "replace"), secret.encode())
