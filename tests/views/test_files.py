"""Given events, the files of a model."""

import pytest

from refold import fold
from refold.event import Event
from refold.limits import INLINE_BYTES_MAX
from refold.views.files import FILES, FileCreated, FileDeleted, FileEdited, FileRenamed, Tree
from tests.views.fold import Erased, folded, stamp_of

LONG = "line\n" * INLINE_BYTES_MAX
CREATED = FileCreated((), "f", "/memories/a/b", LONG)
EDITED = FileEdited((1,), "f", 5, 4, "other")
MOVED = FileRenamed((), "m", ("f.1", "f"), "/memories/a", "/memories/c/d")
DELETED = FileDeleted((), ("f.1", "f"), "/memories/a")


def tree(*events: Event | Erased) -> Tree:
    found: Tree = folded("files", *events).part(FILES)
    return found


def texts(*events: Event | Erased) -> dict[str, str | None]:
    return {path: node.text for path, node in tree(*events).nodes.items()}


def test_a_file_is_written_edited_moved_and_deleted() -> None:
    after = f"line\nother\n{LONG[10:]}"
    assert texts(CREATED) == {"/memories/a": None, "/memories/a/b": LONG}
    assert texts(CREATED, EDITED) == {"/memories/a": None, "/memories/a/b": after}
    assert texts(CREATED, EDITED, MOVED) == {"/memories/c": None, "/memories/c/d": None, "/memories/c/d/b": after}
    assert texts(CREATED, EDITED, DELETED) == {}


def test_what_is_made_on_the_way_has_an_id_after_its_maker() -> None:
    held = tree(CREATED, MOVED)
    assert held.places == {"f.1": "/memories/c/d", "f": "/memories/c/d/b", "m.1": "/memories/c"}
    assert {held.nodes[path].id: path for path in held.nodes} == held.places


def test_a_text_is_read_from_the_events_that_make_it_up() -> None:
    edits = [FileEdited((), "f", place, 1, "x") for place in range(5)]
    assert tree(CREATED, *edits).nodes["/memories/a/b"].chain == (1, 2, 3, 4, 5, 6)
    whole = FileEdited((), "f", 0, len(LONG), "anew")
    assert tree(CREATED, *edits, whole, edits[0]).nodes["/memories/a/b"].chain == (7, 8)
    assert texts(CREATED, *edits, whole, edits[0])["/memories/a/b"] == "xnew"


@pytest.mark.parametrize(
    "events",
    [
        [Erased(CREATED)],
        [Erased(CREATED), EDITED],
        [Erased(CREATED), MOVED],
        [Erased(CREATED), EDITED, MOVED, DELETED],
        [CREATED, Erased(DELETED)],
        [CREATED, MOVED, Erased(FileDeleted((), ("m.1", "f.1", "f"), "/memories/c"))],
    ],
)
def test_what_is_erased_leaves_nothing_and_brings_nothing_back(events: list[Event | Erased]) -> None:
    assert texts(*events) == {}


def test_an_erased_change_takes_its_file_along_and_nothing_else() -> None:
    other = FileCreated((), "g", "/memories/a/c", "kept")
    assert texts(CREATED, other, Erased(EDITED)) == {"/memories/a": None, "/memories/a/c": "kept"}
    assert texts(CREATED, other, Erased(FileRenamed((), "m", ("f",)))) == {"/memories/a": None, "/memories/a/c": "kept"}
    assert texts(CREATED, Erased(EDITED), EDITED, other) == {"/memories/a": None, "/memories/a/c": "kept"}


def test_what_an_erasure_left_behind_makes_way() -> None:
    """The directory that an erased event deleted may still be known from a file that nobody erased."""
    second = FileCreated((), "g", "/memories/a/c", "kept")
    left: list[Event | Erased] = [Erased(CREATED), second, Erased(FileDeleted((), ("f.1", "f", "g")))]
    assert texts(*left) == {"/memories/a": None}
    assert texts(*left, FileCreated((), "h", "/memories/a", "a file now")) == {"/memories/a": "a file now"}
    under = FileCreated((), "i", "/memories/a/x", "under what was a file")
    assert texts(FileCreated((), "h", "/memories/a", "x"), under) == {
        "/memories/a": None,
        "/memories/a/x": "under what was a file",
    }


def test_an_id_is_of_one_file_alone() -> None:
    """No verb gives an id twice, an export that was changed may: a replay and a checkpoint then go on alike."""
    again = FileCreated((), "f", "/memories/other", "again")
    held = tree(CREATED, again)
    assert held.places == {"f.1": "/memories/a", "f": "/memories/other"}
    assert texts(CREATED, again) == {"/memories/a": None, "/memories/other": "again"}


def test_a_copy_goes_on_by_itself() -> None:
    state = folded("files", CREATED)
    twin = fold.copy_state(state)
    assert twin is not None
    before = fold.digests(state)
    fold.fold(twin, stamp_of(2, "files/x"), EDITED)
    fold.fold(twin, stamp_of(3, "files/x"), MOVED)
    assert fold.digests(state) == before != fold.digests(twin)


def test_nothing_is_nothing() -> None:
    assert fold.digests(folded("files")) == []
    assert fold.digests(folded("files", CREATED, DELETED)) == []
    assert fold.plain(folded("files", FileCreated((), "f", "/memories/a/b", "x"))) == {
        "files": {"/memories/a/": "", "/memories/a/b": "x"}
    }
