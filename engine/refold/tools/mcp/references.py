"""References of JSON schemas: where they lead within a schema, in the words of its draft; nothing is fetched; pure."""

from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple, cast
from urllib.parse import unquote, urljoin

from refold.tools.mcp.limits import MCP_SCHEMA_PARTS_COUNT_MAX

_OLD_DRAFTS: Final = ("draft-03", "draft-04", "draft-06", "draft-07")
"""Those in which nothing beside a reference counts, and anchors are written as identifiers."""

_OLDEST_DRAFTS: Final = ("draft-03", "draft-04")
"""Those in which an identifier is called ``id``, and ``const`` means nothing."""

_VALUES: Final = frozenset({"const", "enum", "default", "examples"})
"""What holds values, which may look like schemas and are none."""


class Place(NamedTuple):
    """Where in a schema its reading stands: the document that references are of, those that are open, and how deep."""

    document: Any
    known: dict[object, Any]
    """Documents by their URI, and anchors by their document and name; filled when somebody first asks."""
    root: Any
    uri: str = ""
    draft: str = ""
    open: tuple[tuple[int, str], ...] = ()
    depth: int = 0

    @property
    def is_old(self) -> bool:
        """Whether nothing beside a reference counts here."""
        return any(draft in self.draft for draft in _OLD_DRAFTS)

    @property
    def is_oldest(self) -> bool:
        """Whether ``const`` means nothing here."""
        return any(draft in self.draft for draft in _OLDEST_DRAFTS)

    def below(self) -> "Place":
        """One schema further in."""
        return self._replace(depth=self.depth + 1)

    def inside(self, schema: Mapping[str, Any]) -> "Place":
        """The place of a schema that is met here: a document of its own, if it has an identifier."""
        identifier = self._identifier(schema)
        if not identifier or identifier.startswith("#") or schema is self.document:
            return self
        return self._replace(document=schema, uri=_joined(self.uri, identifier), draft=_draft_of(schema) or self.draft)

    def anchors(self, schema: Mapping[str, Any]) -> list[object]:
        """The names by which a schema may be referred to within its document."""
        identifier = self._identifier(schema)
        if self.is_old:
            return [identifier[1:]] if identifier.startswith("#") else []
        return [schema.get("$anchor"), schema.get("$dynamicAnchor")]

    def _identifier(self, schema: Mapping[str, Any]) -> str:
        found = schema.get("id" if self.is_oldest else "$id")
        return found if isinstance(found, str) and not (self.is_old and "$ref" in schema) else ""


def root_of(schema: Mapping[str, Any]) -> Place:
    """Return the place where the reading of a schema begins."""
    return Place(None, {}, schema, draft=_draft_of(schema)).inside(schema)._replace(document=schema)


def resolved(reference: object, place: Place) -> tuple[Mapping[str, Any], Place] | None:
    """Return the schema that a reference leads to, and its place; ``None`` for what is not within the whole schema."""
    if not isinstance(reference, str):
        return None
    uri, _, fragment = reference.partition("#")
    found = _index(place).get(_joined(place.uri, uri)) if uri else place
    if found is None:
        return None
    held = found._replace(open=place.open, depth=place.depth)
    fragment = unquote(fragment)
    if fragment and not fragment.startswith("/"):
        anchored = _index(place).get((id(held.document), fragment))
        return None if anchored is None else (anchored, held)
    return _pointed(fragment.split("/")[1:], held)


def _index(place: Place) -> dict[object, Any]:
    """Return where documents and anchors are, of the whole schema."""
    if place.known:
        return place.known
    for schema, held in _within(place.root):
        if schema is held.document:
            place.known.setdefault(held.uri, held)
        for anchor in held.anchors(schema):
            place.known.setdefault((id(held.document), anchor), schema)
    return place.known


def _pointed(parts: list[str], place: Place) -> tuple[Mapping[str, Any], Place] | None:
    found = place.document
    for part in parts:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(found, Mapping) and name in found:
            found = cast("Mapping[str, object]", found)[name]
        elif isinstance(found, list) and name.isdecimal() and int(name) < len(cast("list[object]", found)):
            found = cast("list[object]", found)[int(name)]
        else:
            return None
        place = place.inside(cast("Mapping[str, Any]", found)) if isinstance(found, Mapping) else place
    if isinstance(found, bool):
        return {} if found else {"not": {}}, place
    return (cast("Mapping[str, Any]", found), place) if isinstance(found, Mapping) else None


def _within(root: Mapping[str, Any]) -> Iterator[tuple[Mapping[str, Any], Place]]:
    """Yield every schema within one, itself first, each with its place; only so many are looked at."""
    left: list[tuple[object, Place]] = [(root, root_of(root))]
    for _ in range(MCP_SCHEMA_PARTS_COUNT_MAX):
        if not left:
            return
        found, held = left.pop()
        if isinstance(found, Mapping):
            inner = cast("Mapping[str, Any]", found)
            held = held.inside(inner)
            yield inner, held
            left += [(value, held) for key, value in inner.items() if key not in _VALUES]
        elif isinstance(found, list):
            left += [(value, held) for value in cast("list[object]", found)]


def _draft_of(schema: Mapping[str, Any]) -> str:
    found = schema.get("$schema")
    return found if isinstance(found, str) else ""


def _joined(base: str, reference: str) -> str:
    """Return the URI that a reference names, without its fragment."""
    try:
        return urljoin(base, reference).partition("#")[0]
    except ValueError:
        return reference.partition("#")[0]
