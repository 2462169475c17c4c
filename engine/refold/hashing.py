"""The two hashes of refold, without what loading them both at once would cost.

``hashlib`` loads OpenSSL, a tenth of the time that importing refold may take. BLAKE2 has a module of its own beneath
it; SHA-256 is loaded when the first state is hashed.
"""

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

try:
    from _blake2 import blake2b
except ImportError:  # An interpreter that is built otherwise.
    from hashlib import blake2b

__all__ = ("blake2b", "sha256")


@cache
def _sha256() -> "Callable[[bytes], Any]":
    from hashlib import sha256 as digest  # noqa: PLC0415 - see above

    return digest


def sha256(content: bytes) -> bytes:
    """Return the SHA-256 of some bytes, of 32 bytes."""
    digest: bytes = _sha256()(content).digest()
    return digest
