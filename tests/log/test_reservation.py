"""Reservations: one holder of a name at a time, in any process, and none after its process."""

import os
from pathlib import Path

import pytest

from refold import Memory, StoreError
from refold.log.reservation import RESERVATIONS, Reservation
from tests.support.memories import Child

HOLDS = """
import sys
from refold.log.reservation import Reservation
reservation = Reservation(sys.argv[1], "name")
print(reservation.take(), flush=True)
sys.stdin.readline()
"""


def test_one_at_a_time_has_a_name_and_the_last_leaves_nothing(tmp_path: Path) -> None:
    first, second, other = (Reservation(str(tmp_path), name) for name in ("name", "name", "other"))
    assert (first.take(), second.take(), other.take()) == (True, False, True)
    second.release()
    assert not second.take(), "who did not get it cannot give it back"
    first.release()
    first.release()
    assert second.take()
    assert not first.take()
    for each in (second, other):
        each.release()
    assert list((tmp_path / RESERVATIONS).iterdir()) == []


def test_a_name_is_free_once_its_process_has_died(tmp_path: Path) -> None:
    own = Reservation(str(tmp_path), "name")
    with Child(HOLDS, str(tmp_path)) as child:
        assert child.read() == "True"
        assert not own.take()
        child.kill()
        assert own.take(), "the file that stayed behind is no obstacle"
    own.release()


def test_a_file_that_was_removed_before_it_was_locked_is_not_the_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second, third = (Reservation(str(tmp_path), "name") for _ in range(3))
    assert first.take()
    opened = os.open

    def late(*given: object, **options: object) -> int:
        file = opened(*given, **options)  # type: ignore[arg-type]
        monkeypatch.setattr("refold.log.reservation.os.open", opened)
        first.release()
        return file

    monkeypatch.setattr("refold.log.reservation.os.open", late)
    assert second.take()
    assert not third.take()
    second.release()


def test_a_link_is_no_reservation(tmp_path: Path) -> None:
    (tmp_path / RESERVATIONS).mkdir()
    (tmp_path / RESERVATIONS / "name.lock").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(StoreError, match="check who owns it, and that it is a file and no link"):
        Reservation(str(tmp_path), "name").take()
    assert not (tmp_path / "elsewhere").exists()


def test_a_search_for_erased_text_leaves_reservations_out(tmp_path: Path) -> None:
    with Memory(tmp_path / "store") as memory:
        message = memory.conversation("c").append("user", "My number is 555-0199-8876-1234.")
        (tmp_path / "store" / RESERVATIONS).mkdir()
        (tmp_path / "store" / RESERVATIONS / "gone.lock").symlink_to(tmp_path / "nowhere")
        assert memory.erase([message.seq]).occurrences == 0
