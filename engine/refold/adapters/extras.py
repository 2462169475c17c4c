"""The packages of a framework, which an adapter imports: an error says how to install them."""

from collections.abc import Generator
from contextlib import contextmanager


@contextmanager
def import_extra(extra: str) -> Generator[None]:
    """Import packages of an extra in the block; an ``ImportError`` then names the command that installs them."""
    try:
        yield
    except ImportError as error:
        message = f"this adapter needs packages of the extra {extra}, which cannot be loaded ({error})"
        raise type(error)(f"{message}; run: pip install 'refold[{extra}]'", name=error.name) from error
