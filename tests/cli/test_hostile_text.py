"""What is stored, or given as an argument, steers no terminal: over every verb of the command line."""

from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from refold import Memory
from tests.support.command import Run, running, terminal_output

click = pytest.importorskip("click", reason="the command line needs the extra refold[cli]")

from refold.cli import output, root  # noqa: E402 - behind the check of what it needs

EVIL = "a\x1b[2Jb\x9b31mc\u202ed\re"
"""An escape, its one-byte form, a turn of the direction of writing, and a return to the beginning of the line."""

FRONT = "---\nname: evil\ndescription: {0}\ntags: [{0}]\n---\nBody {0}\n"


def verbs_of(command: Any, *way: str) -> Iterator[str]:
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from verbs_of(inner, *way, name)
    else:
        yield " ".join(way)


VERBS: dict[str, tuple[object, ...]] = {
    "add": (EVIL, "--project", EVIL),
    "backup": (f"none/{EVIL}",),
    "bench agent": (f"{EVIL}.json",),
    "bench eviction": (f"{EVIL}.json",),
    "bench retrieval": (f"{EVIL}.json",),
    "bisect": (EVIL, "--window-lacks", EVIL),
    "what-if": (EVIL, "--window-tokens", "5"),
    "blame": (EVIL,),
    "board": (EVIL,),
    "clear": ("--project", EVIL),
    "compact": ("--project", EVIL),
    "decay": ("--project", EVIL),
    "delete": (EVIL, "--project", EVIL),
    "demo": ("--db", f"none/{EVIL}"),
    "diff": ("0", "9"),
    "doctor": (),
    "erase": (EVIL,),
    "export": (f"none/{EVIL}",),
    "files list": (),
    "files show": ("/memories/a",),
    "fork": (EVIL, EVIL),
    "history": (EVIL, "--project", EVIL),
    "import": (f"{EVIL}.json",),
    "influence": (EVIL,),
    "journal append": (EVIL,),
    "journal list": ("--full",),
    "list": (),
    "log": ("--full",),
    "mcp": (f"--{EVIL}",),
    "web": (f"--{EVIL}",),
    "memories": ("--project", EVIL, "--full"),
    "mirror": (f"none/{EVIL}",),
    "profile delete": (EVIL,),
    "profile list": ("--full",),
    "profile set": (EVIL, EVIL),
    "prune": ("0.1", "--project", EVIL),
    "move": (f"none/{EVIL}", f"postgresql://127.0.0.1:1/{EVIL}"),
    "recover": (f"none/{EVIL}", EVIL),
    "reembed": (),
    "replay": (EVIL, "--full"),
    "restore": (EVIL, EVIL),
    "review": ("--project", EVIL),
    "search": (EVIL, "--project", EVIL),
    "settings list": (),
    "table list": ("t", "--full"),
    "table show": ("t", "k"),
    "settings set": (EVIL, EVIL),
    "show": (EVIL, "--context"),
    "skills delete": (EVIL,),
    "skills detect": (),
    "skills edit": ("evil", "--description", EVIL),
    "skills export": (EVIL,),
    "skills list": (),
    "skills new": (EVIL,),
    "skills note": ("evil", EVIL),
    "skills overview": (),
    "skills review": (EVIL,),
    "skills search": (EVIL,),
    "skills select": (EVIL,),
    "skills show": ("evil",),
    "skills toggle": (EVIL,),
    "skills validate": (),
    "snapshot": (EVIL, EVIL),
    "stats": (),
    "update": (EVIL, "--project", EVIL),
    "verify": (),
    "why": (EVIL, "--missing-from", EVIL),
}


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return running(monkeypatch, capfd)


@pytest.fixture
def evil(tmp_path: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: ARG001 - it clears the environment first
    path = tmp_path / "store"
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("REFOLD_DB", str(path))
    skill = tmp_path / ".skills" / "evil" / "SKILL.md"
    skill.parent.mkdir(parents=True)
    skill.write_text(FRONT.format(ascii(EVIL).replace("'", '"')), encoding="utf-8")
    (skill.parent / EVIL.replace("\r", "")).write_text(EVIL, encoding="utf-8")
    with Memory(path) as memory:
        chat = memory.conversation(EVIL, project=EVIL)
        call = {"id": "x", "type": "function", "function": {"name": "look", "arguments": f'{{"a": "{EVIL}"}}'}}
        chat.append("user", EVIL, name=EVIL)
        chat.append("assistant", EVIL, tool_calls=[call])
        chat.append("tool", EVIL, tool_call_id="x", name=EVIL)
        chat.scratchpad.set(EVIL, EVIL)
        chat.state.set(EVIL, EVIL)
        memory.profile().set(EVIL, EVIL)
        memory.journal().append(EVIL)
        memory.table("t").put("k", {EVIL: EVIL})
        memory.files().create("/memories/a", EVIL)
        memory.project(EVIL).add(EVIL, status="pending_review")
        memory.show(memory.context(chat))
        chat.snapshot(EVIL)
    return path


def test_every_verb_is_in_the_table() -> None:
    import_module("refold.cli.commands")
    assert sorted(verbs_of(root.cli)) == sorted(VERBS)


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.usefixtures("evil")
def test_a_verb_prints_nothing_that_a_terminal_obeys(refold: Run, verb: str) -> None:
    for form in ((), ("--json",), (f"--{EVIL}",)):
        ended = refold(*verb.split(), *VERBS[verb], *form)
        assert not output._UNPRINTABLE.search(ended.out + ended.err), (ended.out, ended.err)


FORGED = "a\nstore is sound"
"""A name with a line of its own."""


@pytest.mark.parametrize("verb", VERBS)
@pytest.mark.usefixtures("evil")
def test_a_name_adds_no_line_to_what_a_verb_prints(refold: Run, verb: str) -> None:
    with Memory("store") as memory:
        chat = memory.conversation(FORGED, project=FORGED)
        chat.append("user", FORGED, name=FORGED)
        chat.scratchpad.set(FORGED, FORGED)
        chat.state.set(FORGED, FORGED)
        memory.profile().set(FORGED, FORGED)
        memory.table(FORGED).put(FORGED, FORGED)
        memory.project(FORGED).add(FORGED, category="fact")
        memory.board(session=FORGED).set("working_history", FORGED)
        chat.snapshot(FORGED)
        memory.snapshot(FORGED)
        memory.fork(FORGED)
    given = (FORGED if each == EVIL else each for each in VERBS[verb])
    assert "\nstore is" not in "\n" + refold(*verb.split(), *given).out


@pytest.mark.parametrize(
    "arguments",
    [
        ("export",),
        ("export", "--format", "openai"),
        ("skills", "select", "evil", "--inject"),
        ("erase", EVIL, "--yes"),
    ],
    ids=lambda given: " ".join(map(ascii, given)),
)
@pytest.mark.usefixtures("evil")
def test_what_goes_to_a_pipe_as_it_is_steers_no_terminal(arguments: tuple[str, ...]) -> None:
    shown = terminal_output(list(arguments), TERM="dumb", NO_COLOR="1")
    assert shown
    assert not output._UNPRINTABLE.search(shown.replace("\r\n", "\n")), ascii(shown)


@pytest.mark.usefixtures("evil")
def test_a_name_can_be_given_as_it_is_printed(refold: Run) -> None:
    with Memory("store") as memory:
        memory.conversation(FORGED).append("user", "hello")
        memory.project(FORGED).add("a fact")
    printed = FORGED.replace("\n", "\\n")
    assert printed in refold("list").out
    assert "user: hello" in refold("show", printed).out
    assert "a fact" in refold("memories", "--project", printed).out
    with Memory("store") as memory:
        memory.project(printed).add("another fact")
    assert "another fact" in refold("memories", "--project", printed).out, "that of the very name comes first"
