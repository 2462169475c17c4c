"""``refold verify`` of stores that cannot be opened: the errors of opening say to run it, so it has to say more."""

import json
import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from refold import Memory, StoreCorrupt, StoreVersion
from refold.cli import doctor, main
from tests.support.command import Run, running
from tests.support.memories import Clock

Damage = Callable[[Path], object]


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return running(monkeypatch, capfd)


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store as a killed process leaves it: no checkpoint row covers its events."""
    with Memory(tmp_path / "open", clock_ns=Clock()) as memory:
        for number in range(12):
            memory.conversation("chat").append("user", f"hello {number}", tokens=1)
        shutil.copytree(tmp_path / "open", tmp_path / "store")
    return tmp_path / "store"


def change(store: Path, table: str, key: bytes, value: bytes | None) -> None:
    with lmdb.open(str(store), max_dbs=16) as env:
        database = env.open_db(table.encode())
        with env.begin(write=True, db=database) as txn:
            if value is None:
                txn.delete(key)
            else:
                txn.put(key, value)


def key_of(seq: int) -> bytes:
    return seq.to_bytes(8, "big")


def drop_record(store: Path) -> None:
    change(store, "log", key_of(7), None)


def cut_record(store: Path) -> None:
    change(store, "log", key_of(7), b"short")


def damage_the_last_record(store: Path) -> None:
    change(store, "log", key_of(13), b"no record")


def repeat_a_record(store: Path) -> None:
    with lmdb.open(str(store), max_dbs=16) as env:
        database = env.open_db(b"log")
        with env.begin(write=True, db=database) as txn:
            txn.put(key_of(14), txn.get(key_of(7)) or b"")


def overwrite_pages(store: Path) -> None:
    content = bytearray((store / "data.mdb").read_bytes())
    content[8_192:] = bytes(len(content) - 8_192)
    (store / "data.mdb").write_bytes(content)


DAMAGES: dict[str, tuple[Damage, str, int, int]] = {
    "a record is missing": (drop_record, "gap", 7, 13),
    "a record is cut off": (cut_record, "record", 7, 13),
    "the last record is damaged": (damage_the_last_record, "record", 13, 13),
    "a record stands behind the last one once more": (repeat_a_record, "gap", 14, 14),
    "the pages are gone": (overwrite_pages, "file", 0, 0),
}
"""Damage -> which check finds it, at which seq, and how many events are known of."""


@pytest.mark.parametrize("what", DAMAGES)
def test_the_command_says_what_is_wrong_and_where(
    store: Path, what: str, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    damage, check, seq, events = DAMAGES[what]
    damage(store)
    with pytest.raises(StoreCorrupt) as refused:
        Memory(store, readonly=True)

    def run(*arguments: str) -> str:
        monkeypatch.setattr(sys, "argv", ["refold", "verify", "--db", str(store), *arguments])
        assert main() == 3
        printed = capfd.readouterr()
        assert printed.err == ""
        return printed.out

    report: dict[str, Any] = json.loads(run("--json"))
    assert (report["ok"], report["events"], report["first_bad_seq"], report["state_hash"]) == (False, events, seq, "")
    opening, *found = report["findings"]
    assert opening == {"check": "opening", "seq": 0, "message": str(refused.value), "fault": "damage"}
    assert (check, seq) in [(finding["check"], finding["seq"]) for finding in found]
    shown = run()
    assert shown.startswith("opening at seq 0: ")
    assert (f"the first bad seq is {seq}" in shown) == bool(seq)


def zeros(begin: int, end: int) -> Damage:
    def damage(store: Path) -> None:
        content = bytearray((store / "data.mdb").read_bytes())
        content[begin:end] = bytes(end - begin)
        (store / "data.mdb").write_bytes(content)

    return damage


NO_DATABASE: dict[str, Damage] = {
    "the first page is gone": zeros(0, 4_096),
    "the second page is gone": zeros(4_096, 8_192),
    "both are gone": zeros(0, 8_192),
    "the file is empty": lambda store: os.truncate(store / "data.mdb", 0),
    "the file ends with its first page": lambda store: os.truncate(store / "data.mdb", 4_096),
    "the file holds something else": lambda store: (store / "data.mdb").write_bytes(b"hello" * 4_000),
    "the file is gone": lambda store: (store / "data.mdb").unlink(),
}


@pytest.mark.parametrize("what", NO_DATABASE)
@pytest.mark.parametrize("is_backup", [False, True])
def test_a_store_whose_file_is_no_database_any_more_is_damaged(
    store: Path, tmp_path: Path, what: str, is_backup: bool, refold: Run
) -> None:
    if is_backup:
        with Memory(store) as memory:
            memory.backup(tmp_path / "backup")
        store = tmp_path / "backup"
    NO_DATABASE[what](store)
    ended = refold("verify", "--db", store, "--json")
    assert (ended.code, ended.json["fault"]) == (3, "damage")
    assert [finding["check"] for finding in ended.json["findings"]][:2] == ["opening", "file"]
    assert "restore a backup" in refold("verify", "--db", store).out
    ended = refold("doctor", "--db", store, "--json")
    last = ended.json["checks"][-1]
    assert (ended.code, last["next_step"]) == (3, doctor.RESTORE)
    assert not any(advice in last["message"] for advice in ("restore", "remove", "give the directory"))
    for ended in (refold("list", "--db", store), refold("recover", store, tmp_path / "new")):
        assert (ended.code, ended.err.count("restore a backup"), "give an" in ended.err) == (3, 1, False)
    if not is_backup:
        with pytest.raises((StoreCorrupt, StoreVersion), match=r"restore a backup|lmdb verify"):
            Memory(store)


@pytest.mark.parametrize("content", [b"", b"hello" * 4_000, bytes(20_000)], ids=range(3))
def test_a_directory_that_never_was_a_store_is_no_damage(tmp_path: Path, content: bytes, refold: Run) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "data.mdb").write_bytes(content)
    for _ in range(2):
        ended = refold("verify", "--db", tmp_path / "other")
        assert (ended.code, "cannot be opened as a store" in ended.err) == (1, True)
    assert (tmp_path / "other" / "data.mdb").read_bytes() == content


def test_a_newer_store_is_no_damage(store: Path, refold: Run) -> None:
    change(store, "meta", b"format", b"\x07")
    ended = refold("verify", "--db", store)
    assert (ended.code, "upgrade refold" in ended.err) == (1, True)


def test_a_store_that_is_not_there_is_no_damage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["refold", "verify", "--db", str(tmp_path / "none")])
    assert main() == 1
