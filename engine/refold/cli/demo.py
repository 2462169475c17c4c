"""The demonstration: imports recorded sessions, travels through time in one, and kills a writer.

Everything goes through the public API. The output depends on the samples alone and, where REFOLD_CLOCK_NS is set, the
fixed clock: no paths, no process ids, no timings.
"""

import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from refold.cli.output import Console, changes_text, message_text, token_bar
from refold.cli.root import opened
from refold.errors import InvalidInput, RefoldError

if TYPE_CHECKING:
    from refold import Memory, Snapshot


SAMPLE: Final = Path(__file__).parent / "samples" / "airline.jsonl"
_SESSION: Final = "openai/airline/1"
_FORK: Final = "what-if"
_CRASH: Final = "crash"
_WINDOW_TOKENS: Final = 600
# The snapshot is taken behind this message: the agent has offered two flights, the customer is about to choose.
_SNAPSHOT_MESSAGE: Final = 13
_ACKNOWLEDGED: Final = 20
_CHILD_SECONDS: Final = 60


def demonstrate(path: str, console: Console) -> dict[str, Any]:
    """Run the demonstration in a new store and return its facts; `ok` where every promise was kept."""
    facts: dict[str, Any] = {}
    console.line(("refold: state is the fold of a log; a replay folds it again.", "bold"))
    with opened(path, window_tokens=_WINDOW_TOKENS) as memory:
        if memory.head:
            raise InvalidInput(
                f"the store at {path} already has {memory.head} events; give the demo a path that is new"
            )
        facts["imported"] = _import(memory, console)
        facts["window"] = _fill_window(memory, console)
        facts["travel"] = _travel(memory, console)
    facts["crash"] = _crash(path, console)
    with opened(path) as memory:
        facts["crash"] |= _reopen(memory, facts["crash"]["acknowledged"], console)
        facts["replay"] = _replay(memory, console)
    facts["ok"] = facts["travel"]["restored"] and facts["crash"]["survived"] and facts["replay"]["equal"]
    return facts


def _heading(console: Console, text: str) -> None:
    console.line()
    console.line((text, "bold cyan"))


def _import(memory: "Memory", console: Console) -> dict[str, Any]:
    from refold.importers import import_file

    _heading(console, "1. Import: recorded sessions of an airline's agent (tau-bench, MIT) become events")
    imported = import_file(memory, SAMPLE)
    for conversation_id in memory.conversations():
        chat = memory.conversation(conversation_id)
        messages = chat.version - 1
        console.line(f"   {conversation_id}  {messages} messages, {len(chat.window())} of them in the window")
    console.line(f"   {imported.events} events in the log; state hash {memory.state_hash()[:16]}")
    again = import_file(memory, SAMPLE)
    console.line(f"   importing the file again: {again.events} new events")
    return {"conversations": imported.conversations, "messages": imported.messages, "events": imported.events}


def _fill_window(memory: "Memory", console: Console) -> dict[str, Any]:
    _heading(console, f"2. The window: a budget of {_WINDOW_TOKENS} tokens; the oldest leave, the log keeps them")
    evicted = 0
    fullest = 0
    for step in memory.conversation(_SESSION).replay(after=1):
        tokens = step.after.token_count()
        fullest = max(fullest, tokens)
        evicted += len(step.evicted)
        out = [str(message.seq) for message in step.evicted]
        console.line(
            (f"{step.stamp.seq:>5}", "cyan"),
            f"  {token_bar(tokens, _WINDOW_TOKENS)}  {message_text(step.after.window(last=1)[0])}",
            (f"  out: {' '.join(out)}" if out else "", "yellow"),
        )
    return {"evicted": evicted, "fullest_tokens": fullest, "window_tokens": _WINDOW_TOKENS}


def _travel(memory: "Memory", console: Console) -> dict[str, Any]:
    chat = memory.conversation(_SESSION)
    # The event before the first message opens the conversation.
    seq = [stamp.seq for _, stamp in chat.events()][_SNAPSHOT_MESSAGE]
    moment = chat.at(seq).snapshot()
    _heading(console, f"3. Snapshot and fork at seq {seq}: the customer is about to choose a flight")
    console.line(f"   {moment!r}: a pointer, nothing is copied")
    changes = _fork(memory, moment, console)
    _heading(console, "5. Restore: the session goes on from the snapshot; its history stays")
    console.line(f"   before: {chat!r}")
    chat.restore(moment)
    console.line(f"   after:  {chat!r}")
    restored = chat.window() == chat.at(seq).window() and len(chat.window()) > 0
    events = sum(1 for _ in chat.events())
    console.line(f"   the window is that of seq {seq}: {_yes(restored)}; events of the session in the log: {events}")
    return {"snapshot_seq": seq, "changes": changes, "restored": restored}


def _fork(memory: "Memory", moment: "Snapshot", console: Console) -> int:
    """Take another way in a fork and show how it differs; return in how many places."""
    chat = memory.conversation(_SESSION)
    fork = chat.fork(_FORK, at=moment.seq)
    fork.append("user", "I would rather take Flight Number HAT175 at 17:00 EST.")
    fork.append("assistant", "HAT175 it is. Shall I go ahead with the change?")
    fork.scratchpad.set("chosen_flight", "HAT175")
    console.line(f"   {fork!r}")
    real = chat.at(moment.seq + 2)
    _heading(console, f"4. Diff: from what really came next (seq {moment.seq + 2}) to the fork")
    changes = memory.diff(real, fork)
    for _, text in changes_text(changes):
        # Without the random id of a message.
        where, colon, rest = text.partition(": ")
        view, messages, _ = where.partition(".messages.")
        line = f"   {view}{' message' if messages else ''}{colon}{rest}"
        console.line((line, {"+": "green", "-": "red"}.get(text[0], "")))
    return len(changes)


def _crash(path: str, console: Console) -> dict[str, Any]:
    """Kill a writer inside a commit; return the seqs that were acknowledged before."""
    _heading(console, "6. Crash: another process appends and is killed with SIGKILL in the middle of a commit")
    command = [sys.executable, "-P", "-m", "refold.cli.demo", path, _CRASH, str(_ACKNOWLEDGED)]
    acknowledged: list[int] = []
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:  # noqa: S603
        assert child.stdout is not None, "the child's stdout is a pipe"
        try:
            for line in child.stdout:
                if not line.strip().isdecimal():
                    break
                acknowledged.append(int(line))
        finally:
            child.kill()
        code = child.wait(_CHILD_SECONDS)
    if len(acknowledged) != _ACKNOWLEDGED or code >= 0:
        raise RefoldError(
            f"the demo's child ended by itself with {code} after {len(acknowledged)} messages; see what it printed"
        )
    console.line(f"   {_ACKNOWLEDGED} messages acknowledged; killed in the commit of message {_ACKNOWLEDGED + 1}")
    return {"acknowledged": acknowledged}


def _reopen(memory: "Memory", acknowledged: list[int], console: Console) -> dict[str, Any]:
    seqs = [stamp.seq for _, stamp in memory.conversation(_CRASH).events()][1:]
    survived = seqs == acknowledged  # And those alone: the unfinished commit left no trace.
    is_sound = memory.verify().ok
    console.line(f"   opened again: {len(seqs)} messages; exactly those that were acknowledged: {_yes(survived)}")
    console.line(f"   verify, from the first event on: {'sound' if is_sound else 'DAMAGED'}")
    return {"found": seqs, "survived": survived and is_sound}


def _replay(memory: "Memory", console: Console) -> dict[str, Any]:
    _heading(console, f"7. Replay: all {memory.head} events are folded again, from seq 1, without any checkpoint")
    live, replayed = memory.state_hash(), memory.replay_hash()
    console.line(f"   live      {live}")
    console.line(f"   replayed  {replayed}")
    equal = live == replayed
    console.line(("   equal", "bold green") if equal else ("   NOT EQUAL: please report this", "bold red"))
    console.line()
    console.line("Next: refold import SESSIONS.jsonl --db my.refold; then refold list, show, replay, log, verify.")
    return {"live": live, "replayed": replayed, "equal": equal, "events": memory.head}


def _yes(value: bool) -> str:  # noqa: FBT001 - it is the value that is shown
    return "yes" if value else "NO"


# The process that the demonstration kills: it appends, prints the acknowledged seqs, and stops inside a commit.
#
# The last call of a commit before its turn to write is that of the clock. After the agreed number of messages the
# clock never returns: the next event is made and checked, and then comes the kill.


def main(path: str, conversation_id: str, count: int) -> None:
    """Append `count` messages, each acknowledged by a line with its seq, and one more that never gets that far."""
    armed = threading.Event()

    def guarded(clock_ns: Callable[[], int]) -> Callable[[], int]:
        def now_ns() -> int:
            if armed.is_set():
                print("committing", flush=True)
                sys.stdin.read()
                os._exit(1)  # The parent is gone before it could kill this process.
            return clock_ns()

        return now_ns

    chat = opened(path, clock_ns=guarded).conversation(conversation_id)
    for number in range(1, count + 1):
        print(chat.append("user", f"message {number}").seq, flush=True)
    armed.set()
    chat.append("user", f"message {count + 1}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
