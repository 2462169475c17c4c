"""``refold bisect``: the simple predicates, a file of one's own, and what it says where there is nothing to find."""

from pathlib import Path

import pytest

from refold import Memory
from tests.support.command import Run, running


@pytest.fixture
def refold(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Run:
    return running(monkeypatch, capfd)


@pytest.fixture
def store(tmp_path: Path, refold: Run, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: ARG001 - it clears the environment first
    path = tmp_path / "store"
    monkeypatch.setenv("REFOLD_DB", str(path))
    with Memory(path) as memory:
        chat = memory.conversation("trip", project="acme", window_tokens=20)
        project = memory.project("acme")
        memory.profile().set("city", "Oslo")  # 1
        chat.append("user", "The booking code is XK-77.", tokens=10)  # 2, 3
        chat.append("user", "Thanks.", tokens=10)  # 4
        lost = project.add("The port is 5432.")  # 5
        chat.append("user", "And now?", tokens=10)  # 6: the code leaves
        chat.scratchpad.set("plan", "hotel")  # 7
        chat.state.set("count", 3)  # 8
        project.delete(lost.id)  # 9
        memory.profile().set("city", "Bergen")  # 10
        chat.append("user", "What was XK-77?", tokens=10)  # 11
        chat.append("user", "Never mind.", tokens=10)  # 12
        chat.append("user", "Bye.", tokens=10)  # 13: the code leaves again
    return path


@pytest.mark.usefixtures("store")
class TestBisect:
    @pytest.mark.parametrize(
        ("arguments", "seq"),
        [
            (("trip", "--window-lacks", "XK-77"), 13),
            (("trip", "--window-lacks", "XK-77", "--until", 10), 6),
            (("trip", "--window-lacks", "XK-77", "--until", 10, "--after", 3), 6),
            (("trip", "--key", "plan=hotel"), 7),
            (("trip", "--key", "count=3"), 8),
            (("--key", "city=Bergen"), 10),
            (("--key", "city=Oslo", "--until", 9), 1),
            (("--memory-lost", "5432", "--project", "acme"), 9),
            (("trip", "--memory-lost", "5432"), 9),
        ],
    )
    def test_it_finds_the_event(self, refold: Run, arguments: tuple[object, ...], seq: int) -> None:
        ended = refold("bisect", *arguments, "--json")
        assert ended.code == 0, ended.err
        assert ended.json["seq"] == seq
        assert f"seq {seq} " in refold("bisect", *arguments).out

    def test_of_a_long_event_the_first_lines_are_printed(self, refold: Run, store: Path) -> None:
        with Memory(store) as memory:
            said = memory.conversation("long").append("tool", "\n".join(f"line {number}" for number in range(130)))
        (store.parent / "when.py").write_text("any('line 1' in each.content for each in chat.window())")
        lines = refold("bisect", "long", "--python", store.parent / "when.py").out.splitlines()
        assert lines[0].startswith(f"seq {said.seq} ")
        assert (len(lines), lines[-1]) == (22, f"  111 more lines; `refold show --seq {said.seq}`")

    def test_a_file_holds_an_expression_over_the_memory_and_the_conversation(self, refold: Run, tmp_path: Path) -> None:
        file = tmp_path / "when.py"
        file.write_text("# Since when?\nlen(chat.window()) == 2 and memory.profile().get('city') == 'Bergen'\n")
        assert refold("bisect", "trip", "--python", file, "--json").json["seq"] == 10
        file.write_text("while True: pass")
        ended = refold("bisect", "trip", "--python", file)
        assert ended.code == 1
        assert "when.py is not a Python expression" in ended.err

    def test_an_expression_that_fails_is_told_with_its_state(self, refold: Run, tmp_path: Path) -> None:
        file = tmp_path / "when.py"
        file.write_text("len(chat.window()) > 5")
        ended = refold("bisect", "--python", file)
        assert ended.code == 1
        assert ended.err.startswith(f"refold: {file} at seq ")
        assert "AttributeError" in ended.err
        assert "without a CONVERSATION, `chat` is None" in ended.err
        file.write_text("nothing > 5")
        ended = refold("bisect", "trip", "--python", file)
        assert ended.code == 1
        assert "NameError: name 'nothing' is not defined; mend the expression" in ended.err

    @pytest.mark.parametrize(
        ("arguments", "code", "said"),
        [
            ((), 2, "give one of --window-lacks, --key, --memory-lost and --python"),
            (("trip", "--key", "a=b", "--memory-lost", "x"), 2, "give one of"),
            (("--window-lacks", "x"), 2, "--window-lacks needs a CONVERSATION"),
            (("--key", "city"), 2, "--key is 'city'; give KEY=VALUE"),
            (("trip", "--window-lacks", "never said"), 1, "'never said' was never in conversation/trip;"),
            (("trip", "--window-lacks", "Bye"), 1, "it is not true at seq 13: message 13 still holds it;"),
            (("trip", "--window-lacks", "XK-77", "--until", 12), 1, "it is not true at seq 12: message 11 still holds"),
            (("--key", "city=Rome"), 1, "it is not true at seq 13;"),
            (("trap", "--key", "a=b"), 1, "did you mean 'trip'?"),
        ],
    )
    def test_what_cannot_be_found_is_said(
        self, refold: Run, arguments: tuple[object, ...], code: int, said: str
    ) -> None:
        ended = refold("bisect", *arguments)
        assert ended.code == code
        assert said in ended.err
