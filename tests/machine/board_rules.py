"""The rules of the state machine for boards."""

import threading
from itertools import count, pairwise
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from refold import Board, NotFound, Recorded
from tests.machine.chat_rules import GIVEN, drawn_rule
from tests.machine.driver import Drawn, drawn_options, names
from tests.machine.fact_rules import FactRules
from tests.machine.model import Options
from tests.machine.model_boards import BOARDS, GRAPHS, Both, Row, Whose, check_board, iso

boards = st.sampled_from(BOARDS)
graphs = st.sampled_from(
    [
        {"nodes": [], "edges": []},
        {"nodes": [{"id": "1", "label": "", "type": "t", "builder": "t"}], "edges": []},
        {"nodes": [], "edges": [{"from": "1", "to": "2", "type": "LINKS_TO"}]},
    ]
)
texts = st.sampled_from(["", "one", "two \U0001f600", "long " * 60])
fields: dict[str, st.SearchStrategy[Any]] = {
    "session": st.sampled_from(
        [
            {"session.project_id": "p", "session.active_node_id": "n"},
            {"session.project_id": "p"},
            {"session.timestamp": "then"},
            {"session.timestamp": ""},
        ]
    ),
    **{name: graphs.map(lambda graph, name=name: {name: graph}) for name in GRAPHS},  # type: ignore[misc]
    "project_structure": st.fixed_dictionaries({}, optional=dict.fromkeys(GRAPHS, graphs)).filter(bool),
    "node_context": st.sampled_from(
        [
            {"node_context": {}},
            {"node_context": {"id": "n", "label": "N", "type": "", "meta": {"notes": "x"}}},
        ]
    ),
    "fetched_context": st.sampled_from([{"fetched_context": value} for value in ({}, {"a": [1, {"z": None}]})]),
    "working_history": texts.map(lambda text: {"working_history": text}),
    "messages_meta": st.sampled_from([{"messages_meta": value} for value in ({}, {"total_count": 50})]),
    "last_user_message": st.sampled_from([{"last_user_message": text} for text in ("", "said")]),
    "config": st.sampled_from(
        [
            {"config.history_length": 2},
            {"config.history_length": 20, "config.include_context": False},
            {"config.include_project_structure": False},
            {"config.include_working_history": False, "config.include_context": True},
            {"config.auto_refresh_interval": 600},
        ]
    ),
}
rows = st.fixed_dictionaries(
    {
        "id": st.sampled_from(["", "1", "2", "b"]),
        "role": st.sampled_from(["user", "assistant"]),
        "content": texts,
        "created": st.sampled_from([None, "no date", "2026-11-21", "1969-12-31T23:59:59Z"]),
    }
)
TIMES = {"no date": None, "": None, "2026-11-21": 1_795_219_200 * 10**9, "1969-12-31T23:59:59Z": -(10**9)}

changes = st.sampled_from(sorted(fields)).flatmap(lambda part: st.tuples(st.just(part), fields[part]))

GIVEN |= {
    "set_parts": {"whose": boards, "several": st.lists(changes, min_size=6, max_size=12)},
    "set_part": {
        "whose": boards,
        "change": changes,
        "by_name": st.booleans(),
        "drawn": drawn_options,
    },
    "set_board_messages": {"whose": boards, "given": st.lists(rows, max_size=4), "drawn": drawn_options},
    "append_to_board": {"whose": boards, "given": rows, "drawn": drawn_options},
    "hydrate_board": {"whose": boards, "name": names, "drawn": drawn_options},
}
SETTERS = {"config": "update_settings"}
"""The setters that are not called by their part."""


def row_of(given: dict[str, Any], created: str, created_ns: int | None) -> Row:
    """The message that the model puts on a board."""
    said = {name: given[name] for name in ("id", "role", "content")}
    rest = {"session_id": "", "node_id": None, "message_type": "", "created_at": created}
    return Row(given["id"], created_ns, said | rest)


class BoardRules(FactRules):
    """Every verb of a board that changes something, and what listeners hear."""

    def board(self, whose: Whose) -> Board:
        """The handle on a board."""
        return self.memory.board(**whose.options)

    def _pin(self, whose: Whose, parts: tuple[str, ...], asked: Any, planned: list[Any], options: Options) -> Any:
        """Appends what is planned, what comes along from beneath, and what goes from there."""
        model, asked = self.model, (whose.stream, asked)
        answer = model._known(options.request_id)
        if answer is not None:
            return model._answer(answer, asked)
        model._check_version(whose.stream, options.expected)
        both, first = Both(model, whose), model.head + 1
        entries = [
            model.append(whose.stream, kind, data, sources)
            for kind, data, sources in ([*self._brought(both, parts, planned), *planned] if planned else [])
        ]
        leaving = [name for name in both.beneath.fields if name in parts or name.partition(".")[0] in parts]
        leaving += ["messages"] * ("messages" in parts and both.beneath.has("messages"))
        if entries and leaving:
            assert both.stream is not None
            entries.append(model.append(both.stream, "board_changed", ({}, leaving), ()))
        if options.request_id is not None:
            model.requests[model.branch, options.request_id] = (asked, entries[-1] if entries else None, first)
        return entries

    def _brought(self, both: Both, parts: tuple[str, ...], planned: list[Any]) -> list[Any]:
        replaced = {name for kind, data, _ in planned if kind == "board_changed" for name in data[1]}
        brought: list[Any] = []
        for part in {"session", "config"}.intersection(parts):
            if not both.own.has(part):
                held = {name: value for name, value in both.beneath.fields.items() if name.startswith(f"{part}.")}
                order = [name for name in _ORDER if name in held and name not in replaced]
                brought += [("board_changed", ({name: held[name][0]}, [name]), (held[name][1],)) for name in order]
        if "messages" in parts and "messages" not in replaced:
            known = {row.id for row in both.own.rows} | {data.id for kind, data, _ in planned if kind == "posted"}
            left = [row for row in both.beneath.rows if row.said is not None and (not row.id or row.id not in known)]
            brought += [("posted", Row(row.id, row.created_ns, row.said), (row.seq,)) for row in left]
        return brought

    @drawn_rule("set_parts")
    def set_parts(self, whose: Whose, several: list[tuple[str, dict[str, Any]]]) -> None:
        """A board that is filled, as when somebody begins to work."""
        for change in several:
            self.set_part(whose, change, False, Drawn())  # noqa: FBT003 - what is drawn

    @drawn_rule("set_part")
    def set_part(self, whose: Whose, change: tuple[str, dict[str, Any]], by_name: bool, drawn: Drawn) -> None:
        part, values = change
        if part == "session" and whose.session is None:
            values = {name: value for name, value in values.items() if name == "session.timestamp"}
        board, parts = self.board(whose), tuple(values) if part == "project_structure" else (part,)
        given: Any = {name.partition(".")[2] or name: value for name, value in values.items()}
        if part not in {"session", "config", "project_structure"}:
            given = values[part]

        def call(**options: Any) -> bool:
            if by_name:
                changed: bool = board.set(f" {part.upper()}", given, **options)
                return changed
            if part == "session" and not whose.project and "timestamp" not in given:
                return board.initialise(**given, **options)
            setter = getattr(board, SETTERS.get(part, f"set_{part}"))
            return bool(setter(given, **options))

        def plan(options: Options, _: Any) -> Any:
            both = Both(self.model, whose)
            changed = {name: value for name, value in values.items() if repr(both.value(name)) != repr(value)}
            planned = [("board_changed", (changed, list(changed)), options.sources)] if changed else []
            return self._pin(whose, parts, ("set", part, repr(given)), planned, options)

        self._drive(whose, drawn, call, plan)

    def _drive(self, whose: Whose, drawn: Drawn, call: Any, plan: Any) -> None:
        driven = self.drive(whose.stream, drawn, call, plan)
        assert driven is None or driven[0] is bool(driven[1])

    @drawn_rule("set_board_messages")
    def set_board_messages(self, whose: Whose, given: list[dict[str, Any]], drawn: Drawn) -> None:
        board = self.board(whose)
        made = [row_of(row, row["created"] or "", TIMES[row["created"] or ""]) for row in given]

        def plan(options: Options, _: Any) -> Any:
            held = [row.said for row in Both(self.model, whose).layer("messages").rows if row.said is not None]
            is_same = held == [row.said for row in sorted(made, key=lambda row: row.key)]
            change = ("board_changed", ({"messages": made}, ["messages"]), options.sources)
            return self._pin(whose, ("messages",), ("messages", repr(made)), [] if is_same else [change], options)

        rows = [row.said for row in made]
        self._drive(whose, drawn, lambda **options: board.set_messages(rows, **options), plan)

    @drawn_rule("append_to_board")
    def append_to_board(self, whose: Whose, given: dict[str, Any], drawn: Drawn) -> None:
        board, now_ns = self.board(whose), self.model.now_ns()

        def plan(options: Options, _: Any) -> Any:
            same = [row for row in Both(self.model, whose).layer("messages").rows if row.said and row.id == given["id"]]
            held = same[0] if same and given["id"] else None
            created, created_ns = given["created"], TIMES.get(given["created"])
            if created is None:
                created_ns = held.created_ns if held else now_ns
                created = held.said["created_at"] if held else iso(now_ns)
            row = row_of(given, created, created_ns)
            planned = [] if held and held.said == row.said else [("posted", row, options.sources)]
            return self._pin(whose, ("messages",), ("append", repr(given)), planned, options)

        said = {name: given[name] for name in ("id", "role", "content")} | {"created_at": given["created"]}
        self._drive(whose, drawn, lambda **options: board.append_message(said, **options), plan)

    @drawn_rule("hydrate_board")
    def hydrate_board(self, whose: Whose, name: str, drawn: Drawn) -> None:
        board, now_ns, stream = self.board(whose), self.model.now_ns(), f"conversation/{name}"

        def plan(options: Options, _: Any) -> Any:
            if not self.model.entries(stream):
                raise NotFound(name)
            planned = self._hydrated(whose, name, now_ns, options)
            return self._pin(whose, ("messages",), ("hydrate", name), planned, options)

        driven = self.drive(whose.stream, drawn, lambda **options: board.hydrate(name, **options), plan)
        if driven is not None and isinstance(driven[1], list):
            assert driven[0] == sum(entry.kind == "posted" for entry in driven[1])

    def _hydrated(self, whose: Whose, name: str, now_ns: int, options: Options) -> list[Any]:
        both = Both(self.model, whose)
        held = both.layer("messages").rows
        taken = {row.created_ns // 1_000 for row in held if row.created_ns is not None}
        planned: list[Any] = []
        for line in self.model.state(f"conversation/{name}").lines:
            parts = line.content if isinstance(line.content, list) else [{"text": line.content or ""}]
            text = "\n".join(part["text"] for part in parts if "text" in part)
            if not text or line.id in {row.id for row in held} | {data.id for _, data, _ in planned}:
                continue
            when_ns = line.occurred_ns if line.seq <= self.model.committed and line.occurred_ns else now_ns
            free = next(number for number in count(when_ns // 1_000) if number not in taken)
            taken.add(free)
            node = whose.ids(both.own)["active_node_id"] or None
            said = {"id": line.id, "session_id": name, "node_id": node, "role": line.role, "message_type": ""}
            row = Row(line.id, free * 1_000, said | {"content": text, "created_at": iso(free * 1_000)})
            planned.append(("posted", row, (line.seq, *options.sources)))
        return planned

    @precondition(lambda machine: machine.model.batch is None)
    @rule(given=rows)
    def erase_board(self, given: dict[str, Any]) -> None:
        """One that nobody else goes on from, so that nothing refuses it."""
        self.leave_elsewhere()
        whose = Whose("gone")
        self.append_to_board(whose, given, Drawn())
        for stream in self.board(whose).erase(derived="keep").streams:
            self.model.erase_stream(whose.stream, stream)
        check_board(self.board(whose), self.model, whose)

    @precondition(lambda machine: machine.model.batch is None)
    @rule(whose=boards)
    def listen(self, whose: Whose) -> None:
        """Hears of all that a board ever showed, the last of it as it is now."""
        board, is_told = self.board(whose), threading.Event()
        shown = [_everything(board.at(0))]
        settings = [board.at(0).get_settings()]
        last = max((stamp.seq for _, stamp in self.memory.events()), default=0)

        def mark(recorded: Recorded) -> None:
            if recorded.stamp.seq == last:
                is_told.set()

        with (
            board.subscribe_settings(settings.append, after=0),
            board.subscribe(lambda then: shown.append(_everything(then)), after=0),
            self.memory.subscribe(mark, after=0),  # The last one to hear of each event.
        ):
            assert not last or is_told.wait(60), (shown, settings)
        for told, now in ((shown, _everything(board)), (settings, board.get_settings())):
            assert told[-1] == now
            assert all(one != other for one, other in pairwise(told))


def _everything(board: Board) -> dict[str, Any]:
    return board.to_dict() | {"meta": board.get("messages_meta")}


_ORDER = (
    *("session.project_id", "session.active_node_id", "session.timestamp"),
    *("config.history_length", "config.include_project_structure", "config.include_context"),
    *("config.include_working_history", "config.auto_refresh_interval"),
)
