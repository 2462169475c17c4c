"""``python -m tests.mirror.crashes PLACE EDITS_AGAIN BEGIN STEP``: rounds of a mirror that are killed, and their ends.

A round begins with edits by hand and changes of the log, some of them at odds, and with an erasure that concerns what
an earlier one kept beside. Each point is a call that changes a file or commits; the process dies before it, or half way
through a write. Then, maybe after more edits, another process does the round, and has to end where it would have ended
undisturbed: nothing lost, nothing twice. Every process is a fork of this one.

Prints one line of JSON for each point; point 0 dies nowhere, and counts the points.
"""

import json
import os
import shutil
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from refold import Memory
from refold.engine.engine import Engine
from refold.mirror import files
from tests.mirror.files import day_path, everything, facts_in, held, kept, put, put_facts, rendered, texts_of
from tests.support.memories import assert_sound

CALLS: Final = ("open", "mkdir", "write", "fsync", "rename", "link", "unlink")
DAYS: Final = ["2026-11-18", "2026-11-19", "2026-11-20", "2026-11-21", "2026-11-22"]
ERASED, CHANGED, EDITED, BEGUN, FOLLOWED = DAYS


class Doom:
    """Counts calls, and kills the process at one of them."""

    def __init__(self, point: int) -> None:
        self.point = point
        self.count = 0

    def pass_by(self, half: Callable[[], object] = lambda: None) -> None:
        """Count a call; where it is the one, do half of it and die."""
        self.count += 1
        if self.count == self.point:
            half()
            os.kill(os.getpid(), signal.SIGKILL)

    def wrapped(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        """Return a call that may be the last one."""

        def passing(*arguments: Any, **options: Any) -> Any:
            if name == "write":
                self.pass_by()
                file, content = arguments
                self.pass_by(lambda: call(file, content[: len(content) // 2]))
            else:
                self.pass_by()
            return call(*arguments, **options)

        return passing


class System:
    """The module ``os`` as the files of a mirror see it, some of its calls deadly."""

    def __init__(self, doom: Doom) -> None:
        for name in CALLS:
            setattr(self, name, doom.wrapped(name, getattr(os, name)))

    def __getattr__(self, name: str) -> Any:
        """Return any other name as it is."""
        return getattr(os, name)


def prepare(place: Path) -> dict[str, Any]:
    """Make a store and a mirror in step; then change both."""
    with Memory(place / "store") as memory:
        profile, journal = memory.profile(), memory.journal()
        for key, value in (("theme", "dark"), ("user", "Mike"), ("city", "Oslo"), ("same", "old")):
            profile.set(key, value)
        for day, text in ((CHANGED, "Chose LMDB."), (EDITED, "first"), (EDITED, "second")):
            journal.append(text, day=day)
        journal.append("swordfish\nplain", day=ERASED)
        secret = memory.head
        memory.mirror(place / "mirror").close()
        put(day_path(place / "mirror", ERASED), f"# {ERASED}\n\nswordfish\nmine\nplain\n")
        memory.mirror(place / "mirror").close()
        memory.erase([secret])
        profile.set("city", "Bergen")
        profile.set("same", "new")
        profile.set("tea", "green")
        journal.append("third", day=EDITED)
        journal.append("log alone", day=FOLLOWED)
    directory = place / "mirror"
    put_facts(directory, {"theme": "light", "city": "Rome", "same": "new", "pet": "cat"})
    put(day_path(directory, CHANGED), f"# {CHANGED}\n\nChose SQLite.\n")
    put(day_path(directory, EDITED), f"# {EDITED}\n\nfirst\nhand between\nsecond\nhand behind\n")
    put(day_path(directory, BEGUN), "hand alone\n")
    return {}


def suffer(place: Path, point: int) -> dict[str, Any]:
    """Do the round that dies."""
    doom = Doom(point)
    commit = Engine.commit
    with Memory(place / "store") as memory:
        vars(files).update(os=System(doom), exchange=doom.wrapped("exchange", files.exchange))
        Engine.commit = doom.wrapped("commit", commit)  # type: ignore[method-assign]
        memory.mirror(place / "mirror").close()
    return {"points": doom.count}


def edit_again(place: Path) -> None:
    """Edit whatever the crash has left."""
    directory = place / "mirror"
    put_facts(directory, facts_in(directory) | {"late": "yes"})
    for day in (EDITED, BEGUN):
        path = day_path(directory, day)
        text = path.read_text(encoding="utf-8")
        put(path, text + f"late on {day}\n")


def wrong_beside(directory: Path) -> list[str]:
    """Say what is wrong with what was kept beside the files."""
    beside = kept(directory)
    wrong = [f"what was erased is in {beside}"] if b"swordfish" in everything(directory) else []
    wanted = {"202611/20261119.md": "Chose SQLite.", "profile.json": "Rome"}
    if {name.partition(".conflict-")[0] for name in beside} != wanted.keys() or len(beside) != len(wanted):
        wrong.append(f"kept beside are {beside}")
    return wrong + [f"{text} is not kept" for name, text in wanted.items() if text not in str(beside)]


def judge(place: Path, *, again: bool) -> dict[str, Any]:
    """Do the round again and say what is wrong with where it ends."""
    directory = place / "mirror"
    wrong: list[str] = []
    with Memory(place / "store") as memory:
        with memory.mirror(directory) as mirror:
            first = mirror.report
            second = mirror.sync()
        if second:
            wrong.append(f"a second round still had something to tell: {second}")
        facts = {"theme": "light", "city": "Bergen", "same": "new", "tea": "green", "pet": "cat"}
        if dict(memory.profile().items()) != (facts | {"late": "yes"} if again else facts):
            wrong.append(f"the profile is {memory.profile().items()}")
        late = {day: [f"late on {day}"] if again else [] for day in (EDITED, BEGUN)}
        expected = {
            CHANGED: ["Chose LMDB."],
            EDITED: ["first", "hand behind", "hand between", "second", "third"],
            BEGUN: ["hand alone"],
            FOLLOWED: ["log alone"],
        }
        for day, texts in expected.items():
            lines = sorted("\n".join(texts_of(memory, day)).split("\n"))
            if lines != sorted([*texts, *late.get(day, [])]):
                wrong.append(f"{day} has {lines}")
        if held(directory) != rendered(memory, DAYS):
            wrong.append(f"the files are {held(directory)}")
        wrong += wrong_beside(directory)
        leftovers = [path.name for path in directory.rglob(".refold-*")]
        if sorted(leftovers) != [".refold-mirror", ".refold-mirror.lock"]:
            wrong.append(f"left over are {leftovers}")
        assert_sound(memory)
    return {"wrong": wrong, "conflicts": len(first.conflicts)}


def in_child(into: Path, call: Callable[[], dict[str, Any]]) -> dict[str, Any] | None:
    """Return what a call returns in a forked child, ``None`` if that was killed."""
    into.unlink(missing_ok=True)
    child = os.fork()
    if not child:
        try:
            answer = call()
        except BaseException:  # noqa: BLE001 - whatever it is, the parent tells it
            answer = {"wrong": [traceback.format_exc()]}
        into.write_text(json.dumps(answer), encoding="utf-8")
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL:
        return None
    told: dict[str, Any] = json.loads(into.read_text(encoding="utf-8"))
    return told


def tried(place: Path, point: int, *, again: bool) -> dict[str, Any]:
    """Return what is wrong where a round dies at a point."""
    case = place / "case"
    shutil.rmtree(case, ignore_errors=True)
    shutil.copytree(place / "prepared", case)
    died = in_child(place / "answer", lambda: suffer(case, point))
    if died is not None and (point or "wrong" in died):
        return {"point": point, "wrong": [f"it did not die: {died}"]}
    if again:
        edit_again(case)
    judged = in_child(place / "answer", lambda: judge(case, again=again))
    assert judged is not None, "the judge was killed"
    return {"point": point, **(died or {}), **judged}


def main(place: Path, *, again: bool, begin: int, step: int) -> None:
    """Try point 0, and every ``step``-th one from ``begin`` on."""
    (place / "prepared").mkdir()
    prepared = in_child(place / "answer", lambda: prepare(place / "prepared"))
    assert prepared == {}, prepared
    counted = tried(place, 0, again=again)
    for result in (counted, *(tried(place, point, again=again) for point in range(begin, counted["points"] + 1, step))):
        print(json.dumps(result), flush=True)  # noqa: T201 - its parent reads it


if __name__ == "__main__":
    main(Path(sys.argv[1]), again=sys.argv[2] == "again", begin=int(sys.argv[3]), step=int(sys.argv[4]))
