"""The file of an export: where it may be, what it replaces, and the digest at its end."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from refold import InvalidInput, Memory
from refold.engine import transfer
from tests.engine.test_transfer import fill
from tests.support.memories import Clock, refused, remembering


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    with Memory(clock_ns=Clock()) as memory:
        fill(memory)
        memory.export(tmp_path / "export.jsonl")
    return tmp_path / "export.jsonl"


def test_it_ends_with_a_digest_of_its_lines(exported: Path) -> None:
    *lines, last = exported.read_bytes().splitlines(keepends=True)
    assert json.loads(last) == {"sha256": hashlib.sha256(b"".join(lines)).hexdigest()}


@pytest.mark.parametrize("has_events", [False, True], ids=["empty", "joined"])
def test_it_is_loaded_without_its_digest_too(tmp_path: Path, *, has_events: bool) -> None:
    """It finds damage, and is no signature: whoever edits the file on purpose can take it away."""
    path = tmp_path / "export"
    with Memory() as memory:
        memory.conversation("chat").append("user", "I owe 100 dollars.")
        memory.export(path)
    lines = path.read_text(encoding="utf-8").replace("100", "900").splitlines(keepends=True)
    with Memory() as memory:
        if has_events:
            memory.profile().set("k", "v")
        path.write_text("".join(lines), encoding="utf-8")
        with pytest.raises(InvalidInput, match=r"line 4 .* was changed after it was exported"):
            memory.load(path)
        path.write_text("".join(lines[:-1]), encoding="utf-8")
        memory.load(path)
        assert [message.content for message in memory.conversation("chat").window()] == ["I owe 900 dollars."]


def test_it_replaces_a_file_only_if_the_caller_says_so(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("my thesis")
    (tmp_path / "link").symlink_to(tmp_path / "thesis.txt")
    with Memory(tmp_path / "store") as memory:
        memory.conversation("chat").append("user", "hello")
        for name in ("thesis.txt", "link"):
            with pytest.raises(InvalidInput, match=r"thesis\.txt is there already.*overwrite=True"):
                memory.export(tmp_path / name)
        assert (tmp_path / "thesis.txt").read_text() == "my thesis"
        assert memory.export(tmp_path / "thesis.txt", overwrite=True) == memory.head
        with remembering() as loaded:
            assert loaded.load(tmp_path / "thesis.txt").events == memory.head


def test_it_does_not_replace_a_file_that_came_meanwhile(tmp_path: Path) -> None:
    path = tmp_path / "export"

    def at_the_end(_engine: object, _until: int) -> Iterator[bytes]:
        path.write_text("of another program")
        yield b"{}"

    with Memory() as memory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(transfer, "lines", at_the_end)
        with pytest.raises(InvalidInput, match="is there already"):
            memory.export(path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["export"]
    assert path.read_text() == "of another program"


@pytest.mark.parametrize("overwrite", [False, True])
@pytest.mark.parametrize("place", ["store/data.mdb", "store/new", "link/data.mdb", "store/../store/data.mdb"])
def test_it_never_goes_into_the_store_itself(tmp_path: Path, place: str, *, overwrite: bool) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "store")
    with Memory(tmp_path / "store") as memory:
        memory.conversation("chat").append("user", "hello")
        known = (tmp_path / "store" / "data.mdb").stat().st_ino
        with pytest.raises(InvalidInput, match=r"lies in the store.*give a path outside of it"):
            memory.export(tmp_path / place, overwrite=overwrite)
        memory.conversation("chat").append("user", "more")
        assert (tmp_path / "store" / "data.mdb").stat().st_ino == known
        assert not (tmp_path / "store" / "new").exists()
    with Memory(tmp_path / "store") as memory:
        assert [message.content for message in memory.conversation("chat").window()] == ["hello", "more"]


DAMAGE: dict[str, tuple[bytes, bytes, str]] = {
    "another text": (b'"hello"', b'"jello"', "was changed after it was exported"),
    "another number": (b'"importance":0.9', b'"importance":0.8', "was changed after it was exported"),
    "another store": (b'"store":"', b'"store":"00', "was changed after it was exported"),
    "other ends of lines": (b"\n", b"\r\n", "was changed after it was exported"),
    "an empty line": (b"\n", b"\n\n", "was changed after it was exported"),
    "another digest": (b'{"sha256":"', b'{"sha256":"0', "was changed after it was exported"),
    "half a digest": (b'{"sha256":"', b'{"sha256":', "is not the digest of a refold export"),
}


@pytest.mark.parametrize("what", DAMAGE)
def test_one_with_other_bytes_is_refused(exported: Path, what: str) -> None:
    """What the lines alone do not tell: the events are as valid as those that were exported."""
    before, after, words = DAMAGE[what]
    whole = exported.read_bytes()
    assert before in whole
    exported.write_bytes(whole.replace(before, after, 1))
    memory = Memory()
    last = len(exported.read_bytes().splitlines())
    with refused(memory, InvalidInput, f"line {last}", words, "export again"):
        memory.load(exported)
    assert memory.head == 0


def test_lines_behind_the_digest_are_refused(exported: Path) -> None:
    whole = exported.read_bytes()
    exported.write_bytes(whole + whole.splitlines(keepends=True)[-2])
    memory = Memory()
    with refused(memory, InvalidInput, f"line {len(whole.splitlines()) + 1} is behind the digest"):
        memory.load(exported)
