"""The working memory over REST, as its first users know it: by `session_id`, or `project_id` and `node_id`."""

from typing import Any, Final, cast

from starlette.requests import Request
from starlette.responses import Response

from refold import Board, checks
from refold.memory.board_parts import part_of
from refold.web.parameters import answer, fields, memory_at, moment, name_of, options
from refold.web.site import ACTOR, Site

SCOPE: Final = ("session_id", "project_id", "node_id")


def _board(site: Site, ids: dict[str, Any], at: int | None = None) -> Board:
    """Return the board of a session, or of a node of a project if no session is given."""
    session, project, node = (_id(ids, name) for name in SCOPE)
    if session is None and (project is None or node is None):
        checks.invalid("project_id and node_id are required when session_id is missing")
    return memory_at(site.memory, at).board(session=session, project=project, node=node)


def _id(ids: dict[str, Any], name: str) -> str | None:
    value = ids.get(name)
    if isinstance(value, int) and not isinstance(value, bool):
        value = str(value)  # From a database that numbers its rows.
    return None if value is None else checks.text(value, name) or None


def scope_of(request: Request) -> dict[str, Any]:
    """Return the ids of a session, a project and a node in a query; `None` for each that is missing."""
    return {name: name_of(request, name) for name in SCOPE}


def get_working_memory(site: Site, request: Request, _: dict[str, Any]) -> Response:
    """Read the working memory of a session or a node, except the parts that its settings hide."""
    board = _board(site, scope_of(request), moment(request, site.memory))
    seq = site.memory.head
    return answer(request, {"memory": board.to_dict()}, version=board.version, seq=seq)


def get_context(site: Site, request: Request, _: dict[str, Any]) -> Response:
    """Read the latest messages, their counts, the working history and the last message of the user."""
    scope = scope_of(request)
    if scope["session_id"] is None:
        checks.invalid("session_id is required")
    board = _board(site, scope, moment(request, site.memory))
    seq = site.memory.head
    return answer(request, board.bundle(), version=board.version, seq=seq)


def patch_part(site: Site, request: Request, body: dict[str, Any]) -> Response:
    """Set one part, and return it as it is shown now; setting the value that it has changes nothing."""
    part = part_of(str(request.path_params["part"]))
    values = fields(body, *SCOPE, "value", "options")
    extra: Any = values.get("options")
    inner_scope = cast("dict[str, Any]", extra) if isinstance(extra, dict) else {}  # Where older clients put the node.
    scope = {name: values.get(name) or inner_scope.get(name) or name_of(request, name) for name in SCOPE}
    if "value" not in values:
        checks.invalid("value is missing; give the value of the part, null for none")
    with site.memory.acting(ACTOR):
        board = _board(site, scope)
        changed = board.set(part, values["value"], **options(request))
    board = _board(site, scope)
    shown = {"part": part, "value": board.get(part), "changed": changed}
    return answer(request, shown, version=board.version, seq=site.memory.head)
