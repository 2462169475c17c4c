"""A store with everything in it: events of every view, in batches and alone, erased, forked, with actors and causes."""

from collections.abc import Callable
from random import Random

from refold import Memory


def fill(memory: Memory, count: int, draw: Random) -> None:
    """Write about so many events."""
    writes = _writes(memory, draw)
    while memory.head < count:
        with memory.batch():
            for _ in range(draw.choice((1, 5, 400))):
                draw.choice(writes)("text " * draw.randrange(60))
        with memory.acting(f"tool:{draw.randrange(3)}", cause=draw.randrange(memory.head)):
            draw.choice(writes)("alone")
    memory.conversation("chat-3").erase()
    memory.fork("other").conversation("chat-1").append("user", "in the fork", tokens=1)
    for _ in range(3):
        memory.erase(draw.sample(range(1, memory.head), 20))


def _writes(memory: Memory, draw: Random) -> list[Callable[[str], object]]:
    """Writes to every view of a memory, each of which takes a text."""
    chats = [memory.conversation(f"chat-{number}") for number in range(40)]
    project, files = memory.project("p"), memory.files()

    def forgotten(_: str) -> None:
        found = project.list(limit=1)
        project.delete(found[0]) if found else None

    def rewritten(text: str) -> None:
        path = f"/memories/{draw.randrange(9)}.md"
        if any(each.path == path for each in files.list()):
            files.delete(path)
        files.create(path, text)

    return [
        lambda text: draw.choice(chats).append("user", text, tokens=1, occurred=draw.randrange(10**18)),
        lambda text: draw.choice(chats).append("assistant", text, tokens=1, name="ada", metadata={"n": [text]}),
        lambda _: draw.choice(chats).clear_window(),
        lambda _: draw.choice(chats).end(),
        lambda text: draw.choice(chats).session.note_finding(f"{text}{draw.randrange(99)}"),
        lambda text: draw.choice(chats).scratchpad.set("key", text),
        lambda text: draw.choice(chats).scratchpad.note(f"noted {text}"),
        lambda text: draw.choice(chats).state.__setitem__(f"temp:{draw.randrange(9)}", [text]),
        lambda text: memory.journal().append(f"did {text}"),
        lambda text: memory.profile().set(f"key-{draw.randrange(9)}", f"{text}{draw.randrange(99)}"),
        lambda text: memory.table("t").put(("key", f"{draw.randrange(9)}"), [text, text.encode()]),
        lambda _: memory.table("t").delete(("key", f"{draw.randrange(9)}")),
        lambda text: project.add(f"{text}{draw.random()}", vector=[1.0, draw.random()], keywords=[text[:4] or "x"]),
        forgotten,
        lambda text: project.record_episode("success", task=f"do {text}", vector=[1.0, draw.random()]),
        lambda text: memory.board(session="s").set_last_user_message(f"{text}{draw.randrange(99)}"),
        lambda _: memory.skills.library.toggle(f"skill-{draw.randrange(9)}", enabled=draw.random() < 0.5),
        lambda _: memory.settings.set("memory_max_injected", 1 + draw.randrange(9)),
        rewritten,
    ]
