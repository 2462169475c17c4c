"""Given events, the store's own settings: named snapshots and erasures."""

from refold import fold
from refold.event import Erased, SnapshotNamed
from refold.views.store import SETTINGS, NamedSnapshot
from tests.views.fold import Erased as Blanked
from tests.views.fold import folded


def test_snapshots_are_held_by_stream_and_name() -> None:
    state = folded("store", SnapshotNamed((), 3, 9, "n"), SnapshotNamed((), 4, 5, "n"), SnapshotNamed((), 3, 8, "m"))
    assert state.part(SETTINGS).snapshots == {
        (3, "n"): NamedSnapshot("n", 3, 9, 1),
        (4, "n"): NamedSnapshot("n", 4, 5, 2),
        (3, "m"): NamedSnapshot("m", 3, 8, 3),
    }
    assert fold.plain(state)["settings"] == {"3/n": 9, "4/n": 5, "3/m": 8}


def test_an_erased_name_is_forgotten() -> None:
    assert folded("store", Blanked(SnapshotNamed((), 3, 9, "n"))).part(SETTINGS).snapshots == {}


def test_erasures_are_remembered() -> None:
    state = folded("store", Erased((), (3, 4)), Erased((), (9,)))
    assert state.part(SETTINGS).erased == [3, 4, 9]


def test_nothing_is_nothing() -> None:
    assert fold.digests(folded("store")) == []
