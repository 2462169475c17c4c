"""The state machine is complete, and it finds nothing: in this process quickly, in child processes at length."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase

from refold import Board, Conversation, Journal, Memory, Profile, Project, Snapshot
from refold.memory import Files, Scratchpad
from tests.machine.machine import MemoryMachine, main
from tests.support.paths import ROOT
from tests.support.sizes import sizes

STEPS = 50
ENVIRONMENTS = [(hash_seed, zone) for hash_seed in ("0", "1") for zone in ("UTC", "Asia/Kathmandu")]
SCOPES = type(Memory().conversation("any").state)
HANDLES: tuple[type[Any], ...] = (
    Memory,
    Board,
    Conversation,
    Scratchpad,
    Project,
    SCOPES,
    Profile,
    Journal,
    Files,
    Snapshot,
)

RULES = {
    Memory: {
        "acting": "act",
        "add": "remember",
        "aio": "append",
        "at": "look_back",
        "backup": "look_from_elsewhere",
        "batch": "enter_batch",
        "close": "reopen",
        "diff": "look_back",
        "erase": "erase",
        "export": "look_from_elsewhere",
        "flush": "look_from_elsewhere",
        "fork": "fork_whole",
        "load": "look_from_elsewhere",
        "mirror": "look_from_elsewhere",
        "recall": "recall",
        "reembed": "reembed",
        "restore": "restore_whole",
        "snapshot": "keep_whole",
        "subscribe": "look_from_elsewhere",
        "upsert": "upsert",
    },
    Board: {
        "append_message": "append_to_board",
        "at": "look_back",
        "erase": "erase_board",
        "hydrate": "hydrate_board",
        "initialise": "set_part",
        "set": "set_part",
        "set_elements_graph": "set_part",
        "set_fetched_context": "set_part",
        "set_last_user_message": "set_part",
        "set_messages": "set_board_messages",
        "set_messages_meta": "set_part",
        "set_node_context": "set_part",
        "set_project_graph": "set_part",
        "set_project_structure": "set_part",
        "set_session": "set_part",
        "set_working_history": "set_part",
        "subscribe": "listen",
        "subscribe_settings": "listen",
        "update_settings": "set_part",
    },
    Conversation: {
        "append": "append",
        "at": "restore",
        "clear_window": "clear_window",
        "close": "close",
        "end": "end",
        "end_round": "end_round",
        "erase": "erase_conversation",
        "fork": "fork",
        "pin": "pin",
        "remove": "remove",
        "replay": "look_back",
        "restore": "restore",
        "set_window_tokens": "set_window_tokens",
        "snapshot": "name_snapshot",
        "unpin": "pin",
    },
    Scratchpad: {"clear": "clear", "delete": "delete", "note": "note", "set": "set"},
    Project: {
        "add": "remember",
        "approve": "review",
        "archive": "review",
        "at": "unmerge",
        "clear": "empty_project",
        "compact": "compact",
        "decay": "decay",
        "delete": "forget",
        "erase": "erase_project",
        "prune": "prune",
        "recall": "recall",
        "record_episode": "try_something",
        "reject": "review",
        "review": "review",
        "unmerge": "unmerge",
        "update": "update",
        "upsert": "upsert",
    },
    SCOPES: {
        "delete": "delete_state",
        "pop": "delete_state",
        "set": "set_state",
        "setdefault": "set_state",
        "update": "set_state",
    },
    Profile: {"delete": "delete_fact", "set": "set_fact"},
    Journal: {"append": "write"},
    Files: {
        "create": "write_file",
        "delete": "remove_path",
        "insert": "edit_file",
        "rename": "move_path",
        "str_replace": "edit_file",
    },
    Snapshot: {"from_bytes": "keep", "to_bytes": "keep"},
}
"""Which rule drives a verb."""

READS = {
    Memory: {
        *("board", "context", "files", "hooks", "rebuild", "settings", "show"),
        *("conversation", "conversations", "events", "forks", "head", "journal", "profile", "project", "projects"),
        *("replay_hash", "search", "search_messages", "skills", "snapshots", "state_hash", "stats", "tools", "verify"),
    },
    Board: {
        *("bundle", "events", "get", "get_settings", "node", "place", "project", "session", "to_dict", "to_json"),
        "version",
    },
    Conversation: {
        *("session",),
        *("events", "id", "messages", "place", "project", "scratchpad", "search", "state"),
        *("token_count", "version", "window", "window_tokens"),
    },
    Scratchpad: {"get", "items", "keys", "notes", "to_dict", "to_json"},
    Project: {
        *("count", "events", "get", "history", "list", "name", "place", "search", "search_episodes", "search_many"),
        "stats",
    },
    SCOPES: {"get", "items", "keys", "values"},
    Profile: {"get", "items", "name"},
    Journal: {"day", "name", "recent"},
    Files: {"list", "name", "read", "view"},
    Snapshot: {"branch", "messages", "name", "origin", "seq", "stream", "to_json", "tokens"},
}
"""What the invariants read after each step."""


def public_names(handle: type[Any]) -> set[str]:
    """The public methods and properties of a handle."""
    return {name for name in dir(handle) if not name.startswith("_")}


@pytest.mark.parametrize("handle", HANDLES)
def test_every_public_name_has_a_rule_or_is_read_by_an_invariant(handle: type[Any]) -> None:
    assert public_names(handle) == RULES[handle].keys() | READS[handle]
    assert not RULES[handle].keys() & READS[handle]


def test_every_rule_that_is_named_exists() -> None:
    named = {rule for rules in RULES.values() for rule in rules.values()}
    machine = MemoryMachine()
    assert named <= {rule.function.__name__ for rule in machine.rules}
    machine.teardown()


def recorder(called: set[str], name: str, verb: Callable[..., Any]) -> Callable[..., Any]:
    """The verb, which says that it was called."""

    def recording(*args: Any, **options: Any) -> Any:
        called.add(name)
        return verb(*args, **options)

    return recording


def watch(monkeypatch: pytest.MonkeyPatch, called: set[str]) -> set[str]:
    """Lets every public method and property say that it was called; returns the names of all that can."""
    watched: set[str] = set()
    for handle in HANDLES:
        for name, attribute in vars(handle).items():
            full_name = f"{handle.__name__}.{name}"
            if name.startswith("_"):
                continue
            if isinstance(attribute, property):
                assert attribute.fget is not None
                monkeypatch.setattr(handle, name, property(recorder(called, full_name, attribute.fget)))
            elif isinstance(attribute, staticmethod):
                monkeypatch.setattr(handle, name, staticmethod(recorder(called, full_name, attribute.__func__)))
            elif callable(attribute):
                monkeypatch.setattr(handle, name, recorder(called, full_name, attribute))
            else:
                continue  # A plain field.
            watched.add(full_name)
    return watched


def test_a_quick_run_finds_nothing() -> None:
    """What fails here is made small by ``python -m tests.machine.machine 0 4 50``."""
    main(0, 4, STEPS, phases=(Phase.generate,))


@pytest.mark.slow
def test_every_verb_is_called(monkeypatch: pytest.MonkeyPatch) -> None:
    called: set[str] = set()
    watched = watch(monkeypatch, called)
    for number in range(16):  # The first find nearly all of them; what one draws depends on more than its number.
        main(number, 10, STEPS, phases=(Phase.generate,))
        if called == watched:
            break
    assert called == watched
    assert len(called) > 50


def run_in_child(directory: Path, number: int, examples: int, hash_seed: str, zone: str) -> None:
    """Runs the machine in a process with a hash seed and a time zone of its own."""
    command = [sys.executable, "-W", "error", "-m", "tests.machine.machine", str(number), str(examples), str(STEPS)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": hash_seed, "TZ": zone}
    result = subprocess.run(command, cwd=directory, env=environment, capture_output=True, text=True, check=False)
    assert result.returncode == 0, f"{' '.join(command)}\n{result.stdout}{result.stderr}"


@sizes("examples", slow=25, soak=2_000)
@pytest.mark.parametrize(("hash_seed", "zone"), ENVIRONMENTS)
def test_the_machine_finds_nothing(tmp_path: Path, examples: int, hash_seed: str, zone: str) -> None:
    """Each environment sees other examples, and each soak; a command that failed is printed with its seed."""
    number = 1 + ENVIRONMENTS.index((hash_seed, zone)) if examples < 100 else int.from_bytes(os.urandom(4))
    run_in_child(tmp_path, number, examples, hash_seed, zone)
