"""A store worth a look: recorded sessions that evict, recall, branch and show contexts, with what they taught."""

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from typing import Any, Final

from refold import Memory
from refold.skills import SkillRoots
from tests.support.paths import SAMPLE

_SESSIONS_COUNT: Final = 4
_BEGIN_NS: Final = 1_790_000_000_000_000_000
_STEP_NS: Final = 61_000_000_000
_DAY_NS: Final = 86_400_000_000_000
SESSION: Final = "airline-20"
PROJECT: Final = "airline"
_BEFORE, _BRANCHED, _LEFT = 7, 9, 14
"""Messages of the session by their number: one leaves the window when the last of these comes."""

REPORT: Final = {
    "data": "airline.jsonl",
    "vectors": "hashed",
    "depth": 10,
    "figures": [
        {"system": "hybrid", "questions": 7, "recall": {"1": 0.4286, "5": 0.8929, "10": 0.9643}},
        {"system": "window", "questions": 7, "recall": {"1": 0.4286, "5": 0.8571, "10": 0.8571}},
    ],
}
"""What `refold bench retrieval --json` says, in short."""

_FACTS: Final = (
    ("Use the certificate before any card when a customer pays.", "preference", 0.85, ("payment", "certificate")),
    ("Every change of a flight is confirmed by the customer before it is made.", "convention", 0.7, ("confirm",)),
    ("A search for direct flights comes before one with stops.", "pattern", 0.6, ("search",)),
    ("Never cancel a basic economy ticket after 24 hours; it was refused twice.", "correction", 0.95, ("cancel",)),
    ("James Taylor flies from Las Vegas.", "fact", 0.35, ("james",)),
    ("Bags are counted per reservation, not per passenger.", "fact", 0.5, ("bags",)),
    ("The old fare table was removed in spring.", "fact", 0.1, ("old",)),
)
_GUIDE: Final = """# Direct flights first

Look for a direct flight before one with stops.

1. Ask for origin, destination and date.
2. Search for direct flights; only then for those with a stop.
3. Say the price *before* you book, and wait for a yes.
"""


def clock() -> Callable[[], int]:
    """Return a clock that goes on by a minute whenever it is read, from the same time in every run."""
    now = [_BEGIN_NS]

    def read() -> int:
        now[0] += _STEP_NS
        return now[0]

    return read


def told(memory: Memory) -> Memory:
    """Fill a memory with the story."""
    with SAMPLE.open(encoding="utf-8") as lines:
        for _, line in zip(range(_SESSIONS_COUNT), lines, strict=False):
            _session(memory, json.loads(line))
    project = memory.project(PROJECT)
    for content, category, importance, keywords in _FACTS:
        project.add(content, category=category, importance=importance, keywords=keywords, source=SESSION)
    project.recall("how to pay with a certificate")
    chat = memory.conversation(SESSION)
    chat.fork("without-the-voucher", at=_seq(memory, _BRANCHED))
    chat.fork("a-direct-flight", at=_seq(memory, _LEFT))
    skills = memory.skills.library
    skills.learn("rebook-a-flight", "Moves a booking to another day, with the customer's yes.", _GUIDE, status="active")
    board = memory.board(session=SESSION)
    board.initialise(project_id=PROJECT, active_node_id="booking")
    board.set_node_context({"id": "booking", "label": "Change of a booking"})
    board.set_working_history("The customer wants to fly direct, and to pay with a certificate.")
    board.append_message({"id": "1", "content": "Is there a direct flight on Friday?", "created_at": "2026-09-21"})
    return memory


def _seq(memory: Memory, number: int) -> int:
    """Return the seq of a message of the session, counted from one."""
    appended = (s for e, s in memory.conversation(SESSION).events() if type(e).__name__ == "MessageAppended")
    return next(islice(appended, number - 1, None)).seq


def _session(memory: Memory, recorded: dict[str, Any]) -> None:
    chat = memory.conversation(f"airline-{recorded['task_id']}", project=PROJECT, window_tokens=900)
    for place, message in enumerate(recorded["traj"]):
        content = message.get("content")
        calls = {name: message[name] for name in ("tool_calls", "tool_call_id") if message.get(name)}
        chat.append(message["role"], content if isinstance(content, str | None) else json.dumps(content), **calls)
        if place % 5 == 2:
            chat.scratchpad.set("reservation" if place % 2 else "step", f"1N99U6 at message {place}")
        if place % 6 == 4:
            chat.scratchpad.note(f"The customer confirmed step {place}.")
        if place % 7 == 5:
            memory.show(memory.context(chat, query="flight change", budget=4_000))
        if place % 9 == 6:
            chat.state.set("stage", {"step": place, "open": True})
            memory.project(PROJECT).recall("refund change", conversation=chat)


def skilled(directory: Path) -> SkillRoots:
    """Write skills of a project: one that its files ask for, one of its own, and one that nothing asks for."""
    (directory / "package.json").write_text('{"dependencies": {"react": "18"}}')
    for name, below, about in (
        ("react-guide", "shared", "How components are written and measured here."),
        ("vue-guide", "shared", "How templates are written."),
        ("direct-flights-first", ".skills", "Looks for direct flights before those with stops."),
    ):
        folder = directory / below / name
        folder.mkdir(parents=True)
        front = f"name: {name}\ndescription: {about}\nlicense: MIT\nmetadata:\n  author: example\n  version: 1.2.0"
        (folder / "SKILL.md").write_text(f"---\n{front}\n---\n\n{_GUIDE}")
    known = {
        name: {"source": "shared", "skill_path": name, "priority": 100, "detect": _asked(word)}
        for name, word in (("react-guide", '"react"'), ("vue-guide", '"vue"'))
    }
    sources = {"shared": {"type": "submodule", "path": "shared"}}
    (directory / "external-skills.json").write_text(json.dumps({"sources": sources, "skills": known}))
    return SkillRoots(project=str(directory))


def _asked(word: str) -> dict[str, list[str]]:
    return {"files": ["package.json"], "patterns": [word]}


def pages(memory: Memory) -> dict[str, tuple[str, str, str]]:
    """Return each page by a name: its address, what is clicked on it, and what is there once it is ready."""
    context = next(stamp.seq for event, stamp in memory.events() if type(event).__name__ == "ContextShown")
    before, left = _seq(memory, _BEFORE), _seq(memory, _LEFT)
    session, ready, dialog = f"/sessions/{SESSION}?at={left}", "#scrubber[data-ready]", "#dialog .sheet"
    return {
        "sessions": ("/", "", "tbody tr"),
        "session": (session, "", ready),
        "why": (session, "li.left a.ask", "#dialog .chain"),
        "blame": (session, "dd a.ask", "#dialog .chain"),
        "what-if": (f"/sessions/{SESSION}/what-if?at={left}&window_tokens=1200", "", ready),
        "diff": (f"/sessions/{SESSION}/diff?a={before}&b={left}", "", "tbody tr"),
        "context": (f"/contexts/{context}", "", ".part"),
        "search": (f"/search?q=payment+certificate&project={PROJECT}", "", ".hit"),
        "memories": (f"/projects/{PROJECT}", "", ".rows"),
        "skills": (f"/projects/{PROJECT}?tab=skills", "", ".prose"),
        "panel": (session, ".title a[data-ask]", dialog),
        "boards": ("/boards", "", ".card"),
        "board": ("/boards", ".card a", "#dialog #live"),
        "store": ("/store", "form[data-progress] button", "#verify .good"),
    }
