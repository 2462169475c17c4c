"""The REST routes as a table, and the OpenAPI document made from it."""

import re
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from starlette.requests import Request
from starlette.responses import Response

from refold import RANKINGS, __version__
from refold.entry import CATEGORIES, STATUSES
from refold.importers.values import KIND_NAMES
from refold.limits import SKILL_DESCRIPTION_CHARS_MAX, SKILL_NAME_CHARS_MAX, WINDOW_TOKENS_MAX
from refold.memory.board_parts import ALIASES
from refold.message import ROLES
from refold.skills.format import SOURCES
from refold.views.board import PARTS
from refold.web import api, comparison, reasons, working_memory
from refold.web.parameters import NUMBER_MAX
from refold.web.problems import PROBLEM_JSON
from refold.web.site import Site
from refold.web.working_memory import SCOPE

Schema = dict[str, Any]
Handler = Callable[[Site, Request, dict[str, Any]], Response]

_TEXT: Final[Schema] = {"type": "string"}
_NAME: Final[Schema] = {"type": "string", "minLength": 1}
_WORDS: Final[Schema] = _NAME | {"pattern": r"\S"}
_NUMBER: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": NUMBER_MAX}
_SEQ: Final[Schema] = _NUMBER | {"minimum": 1}
_ETAG: Final[Schema] = {"type": "string", "pattern": r'^(W/)?"?(\*|[0-9]{1,18})(-[0-9]{1,18}(-[0-9a-f]{16})?)?"?$'}
_FLAG: Final[Schema] = {"type": "boolean"}
_ANY: Final[Schema] = {}
_OBJECT: Final[Schema] = {"type": "object"}
_JSON: Final[Schema] = {"$ref": "#/components/schemas/Json"}
_SOURCE: Final[Schema] = {"anyOf": [{"type": "null"}, _NAME, _SEQ]}
_BUDGET: Final[Schema] = {"type": "integer", "minimum": 1, "maximum": WINDOW_TOKENS_MAX}
_CONTENT: Final[Schema] = {
    "type": ["string", "array", "null"],
    "items": {"type": "object", "minProperties": 1},
    "description": "A text, or blocks as a provider has them; a block that no provider takes is refused.",
}
_IMPORTANCE: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 1}


def _one_of(*names: str) -> Schema:
    return {"type": "string", "enum": list(names)}


def _any_of(*names: str) -> Schema:
    """Return the schema of a filter: one of the names, or blank for no filter."""
    return _one_of(*names, "")


# All query parameters, by name.
_QUERY: Final[dict[str, tuple[dict[str, Any], str]]] = {
    "at": (_NUMBER, "As of this seq, not as it is."),
    "after": (_TEXT, "What the page begins behind: `next` of the page before; of a stream, the last seq seen."),
    "until": (_NUMBER, "The last seq of the page."),
    "limit": (_NUMBER, "The length of a page; longer than 1,000 becomes 1,000."),
    "offset": (_NUMBER, "How many to leave out at the beginning."),
    "kind": (_any_of(*sorted(KIND_NAMES)), "Events of this kind alone, such as message_appended."),
    "full": (_FLAG, "With the numbers of vectors."),
    "a": (_NUMBER, "The seq of the first state."),
    "b": (_NUMBER, "The seq of the second state; the head by default."),
    "q": (_WORDS, "What to look for."),
    "in": (_any_of("memories", "messages"), "Where to look."),
    "project": (_TEXT, "The project whose memories are searched; by default `default`, else the first by name."),
    "session": (_TEXT, "The session whose messages are searched; all by default."),
    "ranking": (_any_of(*RANKINGS), "The name of a ranking."),
    "top_k": (_NUMBER, "How many hits, at most 100."),
    "window_tokens": (_BUDGET, "Another budget."),
    "eviction": (_any_of(*comparison.EVICTIONS), "Another eviction policy."),
    "x": (_WORDS, "A seq, an id, a key, or words that something holds; a number above the last seq counts as words."),
    "missing_from": (_TEXT, "Also why a search for this, or the recall or context at this seq, does not show it."),
    "key": (_NAME, "A key, a part of a board, or the path of a file."),
    "of": (_any_of(*reasons.BLAMED), "What the key is one of; else the first that has it."),
    "name": (_TEXT, "The name of the profile or of the files."),
    "category": (_any_of(*CATEGORIES), "Of this category alone."),
    "status": (_any_of(*STATUSES), "Of this status alone."),
    "source": (_any_of(*SOURCES), "Of this source alone."),
    "session_id": (_NAME, "The session whose working memory is meant."),
    "project_id": (_TEXT, "The project of the node."),
    "node_id": (_TEXT, "The node, where no session is given; else the node that the session works on."),
}

_MEMORY: Final[dict[str, Schema]] = {
    "content": _WORDS,
    "category": _one_of(*CATEGORIES),
    "keywords": {"type": "array", "items": _WORDS},
    "importance": _IMPORTANCE,
    "metadata": {"type": ["object", "null"], "additionalProperties": _JSON},
}
_SKILL: Final[dict[str, Schema]] = {
    "description": _WORDS | {"maxLength": SKILL_DESCRIPTION_CHARS_MAX},
    "body": _TEXT,
    "tags": {"type": "array", "items": {"type": "string", "pattern": "^[A-Za-z0-9]+$"}},
}
_SKILL_NAME: Final[Schema] = {
    "type": "string",
    "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$",
    "maxLength": SKILL_NAME_CHARS_MAX,
}
_EDITED: Final[Schema] = {"minProperties": 1, "properties": dict.fromkeys(_SKILL, _ANY), "additionalProperties": False}


_LAST_ID: Final = "Last-Event-ID"


class ApiOperation(NamedTuple):
    """One method of one path: its handler, the parameters of its query, the fields of its body and of its answer."""

    method: str
    path: str
    handler: Handler
    query: tuple[str, ...] = ()
    body: dict[str, dict[str, Any]] | None = None
    answer: dict[str, dict[str, Any]] | None = None
    status: int = 200
    required: tuple[str, ...] = ()
    rules: Schema = {}  # noqa: RUF012 - never changed
    conditions: tuple[str, ...] = ("If-Match", "Idempotency-Key")
    """The headers of conditions that a write takes, or that of a stream."""
    other: str = ""
    """A value of its path's parameter that makes the path of another operation, without this method."""

    @property
    def name(self) -> str:
        """The id of the operation."""
        return self.handler.__name__

    @property
    def is_stream(self) -> bool:
        """Whether it answers with server-sent events."""
        return self.name.startswith("stream_")

    @property
    def is_of_events(self) -> bool:
        """Whether its pages contain events, which are identified by their seqs."""
        return self.path.endswith(("/events", "/track", "/notices"))

    @property
    def writes(self) -> bool:
        """Whether it changes something."""
        return self.method != "GET"


def _list(name: str) -> dict[str, dict[str, Any]]:
    return {name: {"type": "array", "items": _OBJECT}}


_ID: Final[dict[str, Schema]] = {"id": _TEXT}

OPERATIONS: Final = (
    ApiOperation("GET", "/api/", api.get_root, answer={"version": _TEXT, "head": _NUMBER, "writes": _FLAG}),
    ApiOperation(
        "GET",
        "/api/working-memory",
        working_memory.get_working_memory,
        (*SCOPE, "at"),
        answer={"memory": _OBJECT},
    ),
    ApiOperation(
        "GET",
        "/api/working-memory/context",
        working_memory.get_context,
        (*SCOPE, "at"),
        answer={
            **_list("messages"),
            "messages_meta": _OBJECT,
            "working_history": _TEXT,
            "last_user_message": _TEXT,
        },
        required=("session_id",),
    ),
    ApiOperation(
        "PATCH",
        "/api/working-memory/{part}",
        working_memory.patch_part,
        SCOPE,
        body={**dict.fromkeys(SCOPE, _NAME), "value": _ANY, "options": _OBJECT},
        answer={"part": _TEXT, "value": _ANY, "changed": _FLAG},
        required=("value",),
        rules={"anyOf": [{"required": ["session_id"]}, {"required": ["project_id", "node_id"]}]},
        other="context",
    ),
    ApiOperation("GET", "/api/sessions", api.list_sessions, ("after", "limit", "at"), answer=_list("sessions")),
    ApiOperation("GET", "/api/sessions/{session}", api.get_session, ("at",), answer={**_ID, "scratchpad": _OBJECT}),
    ApiOperation("GET", "/api/sessions/{session}/window", api.get_window, ("at",), answer=_list("messages")),
    ApiOperation("GET", "/api/sessions/{session}/step", api.get_step, ("at",), answer=_list("changes")),
    ApiOperation(
        "GET", "/api/sessions/{session}/events", api.get_session_events, ("after", "limit"), answer=_list("events")
    ),
    ApiOperation(
        "GET",
        "/api/sessions/{session}/track",
        api.get_track,
        ("after", "limit"),
        answer={"seqs": {"type": "array", "items": _NUMBER}, "kinds": {"type": "array", "items": _NUMBER}},
    ),
    ApiOperation("GET", "/api/sessions/{session}/diff", api.get_diff, ("a", "b"), answer=_list("changes")),
    ApiOperation("GET", "/api/sessions/{session}/branches", api.get_branches, answer=_list("branches")),
    ApiOperation(
        "GET",
        "/api/sessions/{session}/what-if",
        api.get_what_if,
        ("window_tokens", "eviction"),
        answer={**_list("columns"), **_list("regret")},
    ),
    ApiOperation(
        "POST",
        "/api/sessions/{session}/messages",
        api.append_message,
        body={
            **dict.fromkeys(("name", "tool_call_id"), _TEXT),
            "role": _one_of(*ROLES),
            "content": _CONTENT,
            "tool_calls": _ANY,
            "tokens": _NUMBER,
            "pinned": _FLAG,
            "metadata": _OBJECT,
            "project": _NAME | {"description": "The session's project, recorded by its first message; then it stays."},
            "window_tokens": _BUDGET | {"description": "The session's budget, recorded by its first message."},
        },
        answer={"seq": _NUMBER, "role": _TEXT},
        status=201,
        required=("role",),
    ),
    ApiOperation(
        "POST",
        "/api/sessions/{session}/fork",
        api.fork_session,
        body={"id": _NAME, "at": _SEQ},
        answer=_ID,
        status=201,
        required=("id",),
    ),
    ApiOperation(
        "GET",
        "/api/contexts/{seq}",
        api.get_shown_context,
        answer={"matches": {"type": ["boolean", "null"]}, **_list("parts")},
    ),
    ApiOperation("GET", "/api/events", api.list_events, ("after", "until", "limit", "kind"), answer=_list("events")),
    ApiOperation("GET", "/api/events/{seq}", api.get_event, ("full",), answer={"seq": _NUMBER, "kind": _TEXT}),
    ApiOperation(
        "GET",
        "/api/why",
        api.get_why,
        ("x", "session", "missing_from", "at"),
        answer={"about": _TEXT, "is_there": _FLAG, **_list("steps")},
        required=("x",),
    ),
    ApiOperation(
        "GET",
        "/api/blame",
        api.get_blame,
        ("key", "of", "session", "name", "project_id", "node_id", "at"),
        answer=_list("revisions"),
        required=("key",),
    ),
    ApiOperation(
        "GET",
        "/api/search",
        api.search,
        ("q", "in", "project", "session", "ranking", "top_k", "at"),
        answer={"project": {"type": ["string", "null"]}, **_list("hits")},
        required=("q",),
    ),
    ApiOperation("GET", "/api/projects", api.list_projects, ("after", "limit"), answer=_list("projects")),
    ApiOperation("GET", "/api/projects/{project}", api.get_project, ("at",), answer={**_ID, "memories": _NUMBER}),
    ApiOperation(
        "GET",
        "/api/projects/{project}/memories",
        api.list_memories,
        ("category", "status", "offset", "limit", "at"),
        answer={**_list("memories"), "total": _NUMBER},
    ),
    ApiOperation(
        "POST",
        "/api/projects/{project}/memories",
        api.add_memory,
        body={**_MEMORY, "source": _SOURCE, "status": _one_of(*STATUSES)},
        answer=_ID,
        status=201,
        required=("content",),
    ),
    ApiOperation(
        "GET",
        "/api/projects/{project}/memories/{memory}",
        api.get_memory,
        ("at",),
        answer={**_ID, **_list("history")},
    ),
    ApiOperation("PATCH", "/api/projects/{project}/memories/{memory}", api.update_memory, body=_MEMORY, answer=_ID),
    ApiOperation(
        "DELETE", "/api/projects/{project}/memories/{memory}", api.delete_memory, body={}, answer={"deleted": _FLAG}
    ),
    ApiOperation(
        "POST",
        "/api/projects/{project}/prune",
        api.prune_memories,
        body={"min_importance": _IMPORTANCE, "dry_run": _FLAG},
        answer={"removed": _NUMBER},
    ),
    ApiOperation("POST", "/api/projects/{project}/clear", api.clear_memories, body={}, answer={"cleared": _FLAG}),
    ApiOperation("GET", "/api/skills", api.list_skills, ("source", "q"), answer=_list("skills")),
    ApiOperation("POST", "/api/skills/refresh", api.refresh_skills, body={}, answer={}, conditions=()),
    ApiOperation("GET", "/api/skills/{skill}", api.get_skill, answer={"name": _TEXT, "body": _TEXT}),
    ApiOperation(
        "POST",
        "/api/skills",
        api.add_skill,
        body={"name": _SKILL_NAME, **_SKILL},
        answer={"name": _TEXT, "status": _TEXT},
        status=201,
        required=("name", "description", "body"),
    ),
    ApiOperation(
        "PATCH",
        "/api/skills/{skill}",
        api.update_skill,
        body={"enabled": _FLAG, **_SKILL},
        answer={"name": _TEXT, "enabled": _FLAG},
        rules={"anyOf": [{"required": ["enabled"], "maxProperties": 1}, _EDITED]},
    ),
    ApiOperation(
        "DELETE", "/api/skills/{skill}", api.delete_skill, body={}, answer={"deleted": _FLAG}, conditions=("If-Match",)
    ),
    ApiOperation("GET", "/api/boards", api.list_boards, answer=_list("boards")),
    ApiOperation("GET", "/api/stats", api.get_stats, answer={"events": _NUMBER}),
    ApiOperation("GET", "/api/verify", api.verify, answer={"ok": _FLAG, "findings": {"type": "array"}}),
    ApiOperation("GET", "/api/verify/progress", api.stream_verification),
    ApiOperation("GET", "/api/notices", api.stream_notices, ("after",), conditions=(_LAST_ID,)),
)

_JSON_VALUE: Final[Schema] = {
    "anyOf": [
        {"type": ["string", "boolean", "null"]},
        {"type": "number", "minimum": -(2**63), "maximum": NUMBER_MAX},
        {"type": "array", "items": _JSON},
        {"type": "object", "additionalProperties": _JSON},
    ]
}
"""A value that a memory can keep: JSON whose integers fit in 64 bits."""
_PATH: Final[dict[str, Schema]] = {"seq": _SEQ, "part": _one_of(*PARTS, *ALIASES)}
_PARAMETER: Final = re.compile(r"{(\w+)}")
_HEADERS: Final[dict[str, tuple[Schema, str]]] = {
    "If-Match": (_ETAG, "The ETag of what is to be changed; 412 where it has changed meanwhile."),
    "Idempotency-Key": (_WORDS, "The same key and the same request are answered with the first result."),
    _LAST_ID: (_NUMBER, "The id of the last event that was seen; the stream begins after it, whatever `after` says."),
}


def _parameters(operation: ApiOperation) -> list[dict[str, Any]]:
    shown: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": _PATH.get(name, _NAME)}
        for name in _PARAMETER.findall(operation.path)
    ]
    for name in operation.query:
        schema, description = _QUERY[name]
        if name == "after" and operation.is_of_events:
            schema = _NUMBER
        if name in {"q", "session_id"} and name not in operation.required:
            schema = _TEXT
        about = {"required": name in operation.required, "schema": schema, "description": description}
        shown.append({"name": name, "in": "query", **about})
    for name in operation.conditions if operation.writes or _LAST_ID in operation.conditions else ():
        schema, description = _HEADERS[name]
        shown.append({"name": name, "in": "header", "required": False, "schema": schema, "description": description})
    return shown


def _describe(operation: ApiOperation) -> dict[str, Any]:
    answer = operation.answer or {}
    schema = {"type": "object", "properties": answer, "required": sorted(answer)}
    media = (
        {"text/event-stream": {"schema": _TEXT}} if operation.is_stream else {"application/json": {"schema": schema}}
    )
    shown: dict[str, Any] = {
        "operationId": operation.name,
        "summary": (operation.handler.__doc__ or "").strip(),
        "parameters": _parameters(operation),
        "responses": {
            str(operation.status): {"description": "The answer.", "content": media},
            "default": {
                "description": "What failed, the value, the bound and the next step.",
                "content": {PROBLEM_JSON: {"schema": {"$ref": "#/components/schemas/Problem"}}},
            },
        },
    }
    if operation.body is not None:
        body = {"type": "object", "properties": operation.body, "additionalProperties": False, **operation.rules}
        if operation.required:
            body["required"] = list(operation.required)
        shown["requestBody"] = {
            "required": operation.method == "POST" or bool(operation.required or operation.rules),
            "content": {"application/json": {"schema": body}},
        }
    return shown


def document() -> dict[str, Any]:
    """Make the OpenAPI document of all operations."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in OPERATIONS:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _describe(operation)
    problem = {
        "type": "object",
        "properties": {"type": _TEXT, "title": _TEXT, "status": _NUMBER, "detail": _TEXT},
        "required": ["type", "title", "status", "detail"],
    }
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "refold",
            "version": __version__,
            "description": "A memory over REST. A slash in a name is written as %2F.",
        },
        "paths": paths,
        "components": {"schemas": {"Problem": problem, "Json": _JSON_VALUE}},
    }
