"""What reading damaged bytes raises, told as what it is."""

from collections.abc import Callable
from functools import wraps
from struct import error as StructError  # noqa: N812 - struct names its exception in lower case
from typing import Final, ParamSpec, TypeVar

from refold.errors import RefoldError, StoreCorrupt

P = ParamSpec("P")
T = TypeVar("T")

UNREADABLE: Final = (
    ArithmeticError,
    AssertionError,
    AttributeError,
    LookupError,
    StructError,
    TypeError,
    ValueError,
)
"""What decoding, unpacking or folding damaged bytes raises; msgspec's errors and UTF-8's are a ``ValueError``.

No ``MemoryError``: a process that is short of memory must not be told that its store is damaged.
"""


def guarded(function: Callable[P, T]) -> Callable[P, T]:
    """Return the function, for which ``StoreCorrupt`` is raised where the bytes that it reads make no sense."""

    @wraps(function)
    def guarding(*arguments: P.args, **options: P.kwargs) -> T:
        try:
            return function(*arguments, **options)
        except RefoldError:
            raise
        except UNREADABLE as error:
            what = f"{type(error).__name__}: {error}"
            message = f"what is stored cannot be read ({what}); run `refold verify` and restore a backup"
            raise StoreCorrupt(message) from error

    return guarding
