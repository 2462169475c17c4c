"""What the contract says of tables."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from typing import Any, ClassVar

from tests.differential.chats import State
from tests.differential.log import Change, Options, Row, drop, nothing, put
from tests.differential.shelves import Shelves

Key = str | tuple[str, ...]


def parts_of(key: Key) -> tuple[str, ...]:
    """A key as a tuple, by which tables are sorted."""
    return key if isinstance(key, tuple) else (key,)


def begins(key: Key, prefix: Key) -> bool:
    """Whether a key begins with a text, or with the parts of a tuple."""
    if isinstance(prefix, str):
        return parts_of(key)[0].startswith(prefix)
    return parts_of(key)[: len(prefix)] == prefix


@dataclass
class Drawer(State):
    """The items of a table by key, and when those end that do."""

    items: dict[Any, tuple[Any, int]] = field(default_factory=dict)
    ends: dict[Any, int] = field(default_factory=dict)

    def hashed(self) -> Any:
        return sorted((parts_of(key), seq, self.ends.get(key)) for key, (_, seq) in self.items.items())

    def plain(self) -> Any:
        return {key: (repr(value), self.ends.get(key)) for key, (value, _) in self.items.items()}

    def keys(self, prefix: Key = "") -> list[Any]:
        """The keys that begin so, in order."""
        return sorted((key for key in self.items if begins(key, prefix)), key=parts_of)

    def shown(self, now_ns: int) -> list[Any]:
        """The keys whose time is not over."""
        return [key for key in self.keys() if self.ends.get(key, now_ns + 1) > now_ns]


class Tables(Shelves):
    """The verbs of tables."""

    EMPTY: ClassVar = {**Shelves.EMPTY, "table": Drawer}

    def _expecting(self, key: Key, expected: Any, drawer: Drawer) -> None:
        """Refuse a key that is not as expected: there, not there, or of a seq."""
        self.compare(repr(key), drawer.items[key][1] if key in drawer.shown(self.now_ns()) else 0, expected)

    def table_put(self, where: str, key: Any, value: Any, *, expires: timedelta | None = None, **given: Any) -> None:
        options = Options(**given)

        def decide(drawer: Drawer) -> Change:
            self._expecting(key, options.expected, drawer)
            prior = drawer.items.get(key, (None, 0))[1]
            end = 0 if expires is None else self.now_ns() + expires // timedelta(microseconds=1) * 1_000

            def effect(now: Drawer, row: Row) -> None:
                put(now.items, row, key, value, prior)
                now.ends = {each: at for each, at in now.ends.items() if each in now.items and each != key}
                if end and not row.erased:
                    now.ends[key] = end

            return Change(effect, "replaced" if prior else None)

        asked = ("put", key, repr(value), expires)
        self.note(f"table/{where}", asked, decide, replace(options, expected="any"))

    def table_set_expires(
        self, where: str, key: Any, expires: timedelta | None, *, slack: timedelta | None, **given: Any
    ) -> bool:
        """Let an item end at another time; return whether that changed anything."""
        options = Options(**given)

        def decide(drawer: Drawer) -> Change | None:
            self._expecting(key, options.expected, drawer)
            held, end = drawer.ends.get(key, 0), 0
            if expires is not None:
                end = self.now_ns() + expires // timedelta(microseconds=1) * 1_000
            near = slack is not None and not held
            if slack is not None and held and end:
                near = abs(held - end) < slack // timedelta(microseconds=1) * 1_000
            if key not in drawer.shown(self.now_ns()) or held == end or near:
                return None
            put_at = drawer.items[key][1]

            def effect(now: Drawer, _: Row) -> None:
                if key in now.items and now.items[key][1] == put_at:
                    now.ends = {each: at for each, at in now.ends.items() if each != key} | ({key: end} if end else {})

            return Change(effect)

        asked = ("set_expires", key, expires, slack)
        return self.note(f"table/{where}", asked, decide, replace(options, expected="any")) is not None

    def table_delete(self, where: str, key: Key, **given: Any) -> bool:
        """Delete an item; return whether it was there."""
        options = Options(**given)

        def decide(drawer: Drawer) -> Change | None:
            self._expecting(key, options.expected, drawer)
            return self._deletion(drawer, [key] if key in drawer.items else [])

        return self.note(f"table/{where}", ("delete", key), decide, replace(options, expected="any")) is not None

    def table_delete_prefix(self, where: str, prefix: Key, **given: Any) -> int:
        """Delete what begins so; return how many."""
        return self._delete_all(where, ("delete_prefix", prefix), lambda drawer: drawer.keys(prefix), given)

    def table_expire(self, where: str, **given: Any) -> int:
        """Delete what is over; return how many."""
        now_ns = self.now_ns()

        def ended(drawer: Drawer) -> list[Any]:
            return [key for key, end in drawer.ends.items() if end <= now_ns]

        return self._delete_all(where, ("expire",), ended, given)

    def table_restore(self, where: str, name: str, *, at: int | None, **given: Any) -> None:
        """Go on from what a table held at a seq, or from what is committed of it."""
        stream, branch = f"table/{name}", self.branch
        seq = self.last_seq(stream, self.committed if at is None else at)
        then = self.state_in(branch, stream, seq) if seq else Drawer()
        change = Change(nothing, base=(branch, stream, seq))

        def decide(drawer: Drawer) -> Change | None:
            return None if then.hashed() == drawer.hashed() else change

        self.note(f"table/{where}", ("restore", name, at), decide, Options(**given))

    def _delete_all(self, where: str, asked: Any, choose: Callable[[Drawer], list[Any]], given: Any) -> int:
        row = self.note(
            f"table/{where}", asked, lambda drawer: self._deletion(drawer, choose(drawer)), Options(**given)
        )
        return 0 if row is None else row.about[1]

    def _deletion(self, drawer: Drawer, keys: list[Any]) -> Change | None:
        priors = {key: drawer.items[key][1] for key in keys}

        def effect(now: Drawer, row: Row) -> None:
            for key, prior in priors.items():
                drop(now.items, row, key, prior)
            now.ends = {key: end for key, end in now.ends.items() if key in now.items}

        return Change(effect, ("deleted", len(keys))) if keys else None
