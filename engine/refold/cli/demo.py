"""The demonstration: an agent forgets a fact and fails; the log says why, and the agent gets the fact back.

Everything goes through the public API and the agent's default path; a few rules stand in for the model. If
REFOLD_CLOCK_NS fixes the clock, the output depends on nothing else except how the command is called: it contains no
process ids and no timings.
"""

import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from refold.cli.output import Console, shorten, token_bar, yes_or_no
from refold.cli.root import open_memory
from refold.errors import InvalidInput, RefoldError

if TYPE_CHECKING:
    from refold import Memory, Step
    from refold.agent import Reply

_CHAT: Final = "trip"
_PROJECT: Final = "alice"
_FORK: Final = "second-try"
_CRASH: Final = "crash"
_WINDOW_TOKENS: Final = 60
_ACKNOWLEDGED: Final = 20
_CHILD_SECONDS: Final = 60

_TOLD: Final = "Hi, I am Alice, and I am allergic to nuts."
_TALK: Final = (
    (_TOLD, "Noted, Alice: nothing with nuts."),
    ("Plan a weekend in Oslo for me.", "Gladly. By train or by plane?"),
    ("By train, please, on Friday.", "There is one at 9:04, with a change in Malmo."),
    ("Fine. Is there a hotel at the harbour?", "The Brygge has a room with a view of the fjord."),
    ("I take it, for two nights.", "Booked: Friday to Sunday, breakfast included."),
)
_QUESTION: Final = "Pick a snack for the train, please."
_FACT: Final = "Alice is allergic to nuts."
_WORD: Final = "allergic to nuts"
_WRONG: Final = "A bag of roasted nuts. Enjoy!"
_RIGHT: Final = "An apple. Nothing with nuts, as you are allergic."


class _RuleModel:
    """A model of a few rules; like any other, it knows only the messages that it is shown."""

    def reply(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]]) -> "Reply":  # noqa: ARG002 - protocol
        from refold.agent import Reply

        prompt = messages[-1]["content"]
        if prompt == _QUESTION:
            return Reply(_RIGHT if any(_WORD in str(message["content"]) for message in messages) else _WRONG)
        return Reply(dict(_TALK)[prompt])


def demonstrate(path: str, console: Console) -> dict[str, Any]:
    """Run the demonstration in a new store and return its facts; `ok` is true if every promise was kept."""
    console.line(("refold: what an agent forgot, why, and how to bring it back", "bold"))
    with open_memory(path, window_tokens=_WINDOW_TOKENS) as memory:
        if memory.head:
            raise InvalidInput(
                f"the store at {path} already has {memory.head} events; give the demo a path that is new"
            )
        facts: dict[str, Any] = {"failure": _fail(memory, console)}
        facts["reason"] = _explain(memory, console)
        facts["second"] = _try_again(memory, facts["reason"]["left_seq"], console)
    facts["crash"] = _crash(path, console)
    with open_memory(path) as memory:
        facts["crash"] |= _reopen(memory, facts["crash"]["acknowledged"], console)
        facts["replay"] = _replay(memory, console)
    facts["ok"] = (
        facts["failure"]["answer"] == _WRONG
        and facts["second"]["answer"] == _RIGHT
        and facts["crash"]["survived"]
        and facts["replay"]["equal"]
    )
    return facts


def _say(memory: "Memory", text: str) -> tuple[str, "Sequence[Step]"]:
    """Send a message to the agent; return its answer and the resulting steps of the conversation."""
    from refold.agent import AgentLoop, ContextBudget

    before = memory.head
    chat = memory.conversation(_CHAT, project=_PROJECT)
    answer = AgentLoop(memory, chat, _RuleModel(), budget=ContextBudget(messages_count=0)).run(text).text
    return answer, list(chat.replay(after=before))


def _fail(memory: "Memory", console: Console) -> dict[str, Any]:
    console.heading("1. An agent is told something, and the conversation moves on")
    console.line("   The model sees only a window: the newest messages that fit a budget, here of")
    console.line(f"   {_WINDOW_TOKENS} tokens, the units in which models count text. The bar shows how full it is.")
    console.line("   Earlier messages that answer a question are shown again by default; here that is off.")
    console.line()
    for text, _ in _TALK:
        _show_steps(_say(memory, text)[1], console)
    console.heading("2. Later it matters, and the agent has forgotten")
    answer, steps = _say(memory, _QUESTION)
    _show_steps(steps, console, style="bold red")
    return {"answer": answer}


def _show_steps(steps: "Sequence[Step]", console: Console, *, style: str = "") -> None:
    """Print the messages among the steps, the agent's in a style, and the messages evicted from the window."""
    for step in steps:
        if type(step.event).__name__ != "MessageAppended":
            continue
        message = step.after.window(last=1)[0]
        is_user = message.role == "user"
        console.line(
            (f"   {token_bar(step.tokens, step.window_tokens)}  ", "dim"),
            ("Alice  " if is_user else "agent  ", "green" if is_user else "magenta"),
            (str(message.content), "" if is_user else style),
        )
        for gone in step.evicted:
            console.line((f"{'left the window:':>30}  {shorten(str(gone.content), 44)}", "yellow"))


def _explain(memory: "Memory", console: Console) -> dict[str, Any]:
    console.heading("3. Why? The log has everything that happened, as numbered events")
    chat = memory.conversation(_CHAT)
    message = chat.search(_WORD, roles=["user"])[0].entry
    step = next(step for step in chat.replay() if message.seq in [each.seq for each in step.evicted])
    new = step.after.window(last=1)[0]
    wanted = step.before.token_count() + new.tokens
    console.line(f"   event {message.seq:>2}  Alice said: {message.content}")
    console.line(
        (f"   event {step.stamp.seq:>2}  The agent forgot it", "bold yellow"),
        f", because {wanted} tokens did not fit into {step.window_tokens}:",
    )
    console.line(f'             "{new.content}" came in, and the oldest had to go.')
    shown = [stamp.seq for event, stamp in chat.events() if type(event).__name__ == "ContextShown"][-1]
    context = memory.rebuild(shown).context
    was_shown = any(_WORD in str(message["content"]) for message in context.messages())
    console.line(
        f"   event {shown:>2}  The model was shown a window of {len(context.window)} messages and asked for a snack;"
        f" {'one' if was_shown else 'none'} mentioned nuts."
    )
    return {"said_seq": message.seq, "left_seq": step.stamp.seq, "was_shown": was_shown}


def _try_again(memory: "Memory", left_seq: int, console: Console) -> dict[str, Any]:
    console.heading(f"4. Go back to event {left_seq - 1}, right before it forgot, and make it remember")
    fork = memory.fork(_FORK, at=left_seq - 1)
    console.line("   A fork shares the past up to there and has a future of its own; nothing is copied. Here the agent")
    console.line("   keeps one fact for good, shown to the model above the window, and the conversation goes on:")
    console.line()
    fork.project(_PROJECT).add(_FACT, category="preference", importance=0.9)
    console.line((f"{'kept:':>30}  {_FACT}", "yellow"))
    answered = [message.content for message in fork.conversation(_CHAT).window()]
    for text, answer in _TALK:
        if answer not in answered:
            _show_steps(_say(fork, text)[1], console)
    answer, steps = _say(fork, _QUESTION)
    _show_steps(steps, console, style="bold green")
    first = memory.conversation(_CHAT).window(last=1)[0].content
    console.line(f"   The first attempt is still in the log, unchanged: {first}")
    return {"forked_at": left_seq - 1, "answer": answer}


def _crash(path: str, console: Console) -> dict[str, Any]:
    """Kill a writer in the middle of a commit, and return the seqs acknowledged before."""
    console.heading("5. Crash: another process writes messages and is killed in the middle of one")
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
    console.line(
        f"   {_ACKNOWLEDGED} messages were acknowledged as safe; killed while writing message {_ACKNOWLEDGED + 1}"
    )
    return {"acknowledged": acknowledged}


def _reopen(memory: "Memory", acknowledged: list[int], console: Console) -> dict[str, Any]:
    seqs = [stamp.seq for _, stamp in memory.conversation(_CRASH).events()][1:]
    survived = seqs == acknowledged  # And no others: the unfinished commit left no trace.
    is_sound = memory.verify().ok
    console.line(f"   reopened: {len(seqs)} messages, exactly the acknowledged ones: {yes_or_no(survived)}")
    console.line(f"   every event is exactly as written: {yes_or_no(is_sound)}")
    return {"found": seqs, "survived": survived and is_sound}


def _replay(memory: "Memory", console: Console) -> dict[str, Any]:
    console.heading(f"6. Proof: all {memory.head} events are replayed, from the first, into an empty memory")
    own = sum(1 for _ in memory.events())
    console.line(
        f"   {own} of them belong to this memory, as `refold log` lists them, and {memory.head - own} to the fork"
    )
    live, replayed = memory.state_hash(), memory.replay_hash()
    console.line(f"   hash of the memory  {live}")
    console.line(f"   hash of the replay  {replayed}")
    equal = live == replayed
    console.line(
        ("   equal, to the last byte", "bold green") if equal else ("   NOT EQUAL: please report this", "bold red")
    )
    console.line()
    command = "refold" if shutil.which("refold") else os.path.relpath(sys.argv[0])
    console.line(f"Look around: {command} demo --db demo.refold && {command} replay trip --db demo.refold")
    console.line(f"Try your own sessions: {command} import SESSIONS.jsonl --db my.refold")
    return {"live": live, "replayed": replayed, "equal": equal, "events": memory.head}


# The process that the demonstration kills: it appends, prints the acknowledged seqs, and stops inside a commit.
#
# A commit's last call before its turn to write is to the clock. After the agreed number of messages, the clock never
# returns: the next event is made and checked, and then the process is killed.


def main(path: str, conversation_id: str, count: int) -> None:
    """Append `count` messages, each acknowledged by a line with its seq, and one more that never gets that far."""
    armed = threading.Event()  # noqa: TID251 - used by one thread

    def wrap_clock(clock_ns: Callable[[], int]) -> Callable[[], int]:
        def now_ns() -> int:
            if armed.is_set():
                print("committing", flush=True)
                sys.stdin.read()
                os._exit(1)  # The parent died before it could kill this process.
            return clock_ns()

        return now_ns

    chat = open_memory(path, clock_ns=wrap_clock).conversation(conversation_id)
    for number in range(1, count + 1):
        print(chat.append("user", f"message {number}").seq, flush=True)
    armed.set()
    chat.append("user", f"message {count + 1}")


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
