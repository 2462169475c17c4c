"""What tests do to the files of a mirror, and what has to hold of them after a round."""

import json
from collections.abc import Iterator
from pathlib import Path

from refold import Memory

STATE = {".refold-mirror", ".refold-mirror.lock"}


def day_path(directory: Path, day: str) -> Path:
    """The file of a day."""
    compact = day.replace("-", "")
    return directory / compact[:6] / f"{compact}.md"


def days(directory: Path) -> list[Path]:
    """The files of days."""
    return sorted(directory.glob("*/*.md"))


def facts_in(directory: Path) -> dict[str, str]:
    """What the profile's file says."""
    facts: dict[str, str] = json.loads((directory / "profile.json").read_text(encoding="utf-8"))
    return facts


def put(path: Path, text: str) -> None:
    """Write a file as careful editors do: another one takes its name."""
    path.parent.mkdir(exist_ok=True)
    beside = path.with_name(f"{path.name}~")
    beside.write_text(text, encoding="utf-8")
    beside.rename(path)


def put_facts(directory: Path, facts: dict[str, str]) -> None:
    """Write the profile's file by hand, in another form than a mirror's."""
    put(directory / "profile.json", json.dumps(facts))


def texts_of(memory: Memory, day: str) -> list[str]:
    """The notes of a day."""
    return [note.text for note in memory.journal().day(day)]


def rendered(memory: Memory, days: Iterator[str] | list[str]) -> dict[str, str]:
    """What the files are to hold."""
    files = {"profile.json": json.dumps(dict(memory.profile().items()), ensure_ascii=False, indent=2) + "\n"}
    for day in days:
        texts = texts_of(memory, day)
        if texts:
            name = day.replace("-", "")
            files[f"{name[:6]}/{name}.md"] = f"# {day}\n\n" + "\n".join(texts) + "\n"
    return files


def held(directory: Path) -> dict[str, str]:
    """All files of a directory by name, without what a mirror keeps for itself and without what it kept beside."""
    paths = (path for path in directory.rglob("*") if path.is_file() and path.name not in STATE)
    return {
        path.relative_to(directory).as_posix(): path.read_text(encoding="utf-8")
        for path in paths
        if ".conflict-" not in path.name
    }


def kept(directory: Path) -> dict[str, str]:
    """What was kept beside the files, by name."""
    paths = directory.rglob("*.conflict-*")
    return {path.relative_to(directory).as_posix(): path.read_text(encoding="utf-8") for path in paths}


def everything(directory: Path) -> bytes:
    """All bytes of a directory, its hidden files too."""
    return b"\n".join(path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file())


def assert_private(directory: Path) -> None:
    """Nobody else may read what is there."""
    for path in (directory, *directory.rglob("*")):
        mode = path.stat().st_mode & 0o777
        assert mode == (0o700 if path.is_dir() else 0o600), (path, oct(mode))
