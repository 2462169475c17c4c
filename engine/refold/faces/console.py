"""Printing: data on stdout, everything else on stderr; colour and progress bars only where a terminal shows them."""

import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any, Final, TypeAlias

Piece: TypeAlias = str | tuple[str, str]
"""A text, or a text with its style, such as ``("12", "bold")``."""

_TEXT_CHARS: Final = 60
_BAR_CHARS: Final = 20


class Console:
    """Prints lines of pieces to stdout; a quiet one prints nothing."""

    def __init__(self, *, quiet: bool = False) -> None:
        self._quiet = quiet
        self._rich = _rich_console() if sys.stdout.isatty() and not quiet else None

    def line(self, *pieces: Piece) -> None:
        """Print one line."""
        if self._quiet:
            return
        if self._rich is None:
            print("".join(piece if isinstance(piece, str) else piece[0] for piece in pieces))
            return
        from rich.text import Text

        self._rich.print(Text.assemble(*pieces), soft_wrap=True)


def _rich_console() -> Any:
    from rich.console import Console as RichConsole

    return RichConsole(highlight=False)


def print_json(document: Any) -> None:
    """Print a value as one line of JSON."""
    import msgspec

    print(msgspec.json.encode(document).decode())


def tell(text: str) -> None:
    """Say something that is not data."""
    print(text, file=sys.stderr)


@contextmanager
def progress_bar(description: str) -> "Generator[Callable[[int, int], None] | None]":
    """Return what takes progress (done, all) and shows it on stderr, ``None`` if nobody would see it."""
    if not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console as RichConsole
    from rich.progress import Progress

    with Progress(console=RichConsole(stderr=True), transient=True) as progress:
        task = progress.add_task(description)
        yield lambda done, whole: progress.update(task, completed=done, total=whole)


def token_bar(tokens: int, window_tokens: int) -> str:
    """Return how full a window is, such as ``[#####...............]  150/600``."""
    filled = min(tokens * _BAR_CHARS // max(window_tokens, 1), _BAR_CHARS)
    bar = "#" * filled + "." * (_BAR_CHARS - filled)
    return f"[{bar}] {tokens:>{len(str(window_tokens))}}/{window_tokens}"


def shortened(text: str, chars: int = _TEXT_CHARS) -> str:
    """Return a text on one line, cut to a length, without what could steer a terminal."""
    words = " ".join(text[: 4 * chars].split())
    visible = "".join(character if character.isprintable() else "?" for character in words)
    return visible if len(visible) <= chars else f"{visible[: chars - 3]}..."
