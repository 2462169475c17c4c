"""The differences between two states, as paths with what stood there before and after."""

from collections.abc import Iterator
from typing import Any, cast

from refold.results import Change

_ABSENT = object()
"""What stands at a path where there is nothing: not the same as a JSON null."""


def changes_between(stream: str, before: dict[str, Any], after: dict[str, Any]) -> Iterator[Change]:
    """Return the changes from one plain state to another, view by view, in a fixed order."""
    for view in sorted({*before, *after}):
        for path, old, new in _differences((), before.get(view, {}), after.get(view, {})):
            yield Change(stream, view, path, old, new)


def _differences(
    path: tuple[str | int, ...], before: object, after: object
) -> Iterator[tuple[tuple[str | int, ...], Any, Any]]:
    old: Any = before
    new: Any = after
    if isinstance(before, dict) and isinstance(after, dict):
        olds, news = cast("dict[str, object]", before), cast("dict[str, object]", after)
        for key in dict.fromkeys((*olds, *news)):
            yield from _differences((*path, key), olds.get(key, _ABSENT), news.get(key, _ABSENT))
    elif isinstance(before, list) and isinstance(after, list):
        firsts, seconds = cast("list[object]", before), cast("list[object]", after)
        for place in range(max(len(firsts), len(seconds))):
            yield from _differences((*path, place), _item(firsts, place), _item(seconds, place))
    elif not _same(old, new):
        yield path, _shown(old), _shown(new)


def _same(before: object, after: object) -> bool:
    """Return whether two values are the same JSON: ``1``, ``1.0`` and ``true`` are not."""
    return type(before) is type(after) and before == after


def _item(items: list[object], place: int) -> object:
    return items[place] if place < len(items) else _ABSENT


def _shown(value: object) -> object:
    return None if value is _ABSENT else value
