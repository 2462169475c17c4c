"""The REST API of a memory: sessions through time, events, searches, memories, skills, notices, the store."""

from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from refold import Project, __version__, checks
from refold.engine.reader import RequestTaken
from refold.errors import InvalidInput, NotFound
from refold.importers.values import KIND_NAMES, entry_json, event_json, event_name, message_json
from refold.memory.blocks import check_blocks
from refold.memory.core import core_of
from refold.skills.format import Skill, SkillSummary
from refold.text import sha256
from refold.web import comparison, projects, reasons, views
from refold.web.parameters import (
    answer,
    check_mark,
    check_seq,
    fields,
    flag,
    is_number,
    limit,
    memory_of,
    moment,
    name_in,
    name_of,
    number,
    options,
    text,
)
from refold.web.problems import problem
from refold.web.site import ACTOR, Site

_MEMORY_FIELDS = ("content", "category", "keywords", "importance", "metadata")
_OPENING_FIELDS: Final = ("project", "window_tokens")
_TRACK_COUNT_DEFAULT: Final = 20_000
_MARK_DIGITS: Final = 16
_TRACK_COUNT_MAX: Final = 50_000
Body = dict[str, Any]


def get_root(site: Site, request: Request, _: Body) -> Response:
    """Return the name and version of the program, the head of the memory, and whether it can be written."""
    shown = {"name": "refold", "version": __version__, "head": site.memory.head, "writes": site.writes}
    return answer(request, shown, seq=site.memory.head)


# Sessions.


def list_sessions(site: Site, request: Request, _: Body) -> Response:
    """List sessions by id."""
    memory = memory_of(request, site.memory)
    listed = views.sessions_page(memory, name_of(request, "after"), limit(request))
    return answer(request, listed, seq=memory.head)


def get_session(site: Site, request: Request, _: Body) -> Response:
    """Read a session, now or as of a seq: scratchpad, state, board, counts."""
    memory, session = memory_of(request, site.memory), name_in(request, "session")
    seq = memory.head
    return answer(request, views.session_json(memory, session), version=memory.conversation(session).version, seq=seq)


def get_window(site: Site, request: Request, _: Body) -> Response:
    """Read the window of a session, now or as of a seq."""
    memory, session = memory_of(request, site.memory), name_in(request, "session")
    seq = memory.head
    return answer(request, views.window_json(memory, session), version=memory.conversation(session).version, seq=seq)


def get_step(site: Site, request: Request, _: Body) -> Response:
    """Read the event of a session at a seq, or the last one before it, with the messages that entered and left."""
    session = name_in(request, "session")
    at = moment(request, site.memory)
    seq = site.memory.head if at is None else at
    step = views.step_at(site.memory, session, seq)
    return answer(request, step | {"left": [message_json(message) for message in step["left"]]}, seq=seq)


def _after(site: Site, request: Request) -> int:
    """Return the seq that a page begins after, at most the head: a backup may have been restored since."""
    return min(number(request, "after", 0), site.memory.head)


def get_session_events(site: Site, request: Request, _: Body) -> Response:
    """Read a page of a session's events."""
    chat = views.find_session(site.memory, name_in(request, "session"))
    rows, following = views.events_page(site.memory, chat.events(_after(site, request)), limit(request))
    return answer(request, {"events": rows, "next": following}, version=chat.version, seq=site.memory.head)


def get_track(site: Site, request: Request, _: Body) -> Response:
    """Read a page of a session's events as columns: their seqs, and the classes of their kinds."""
    count = max(number(request, "limit", _TRACK_COUNT_DEFAULT, _TRACK_COUNT_MAX), 1)
    page = views.track(site.memory, name_in(request, "session"), _after(site, request), count)
    return answer(request, page, version=page["version"], seq=site.memory.head)


def get_diff(site: Site, request: Request, _: Body) -> Response:
    """Compare a session at two seqs."""
    session, head = name_in(request, "session"), site.memory.head
    views.find_session(site.memory, session)
    a, b = (check_seq(site.memory, number(request, key, default)) for key, default in (("a", 0), ("b", head)))
    changes = views.diff_json(site.memory, session, a, b)
    return answer(request, {"session": session, "a": a, "b": b, "changes": changes}, seq=head)


def get_branches(site: Site, request: Request, _: Body) -> Response:
    """List the forks that start in a session, the restores that lead back into it, and its origins."""
    chat = views.find_session(site.memory, name_in(request, "session"))
    links = site.branches.of(chat.id)
    shown = {name: [each._asdict() for each in branches] for name, branches in links.items()}
    return answer(request, shown, version=chat.version, seq=site.memory.head)


def get_what_if(site: Site, request: Request, _: Body) -> Response:
    """Compare a session with itself under another budget or eviction policy: differing windows, and regret."""
    return answer(request, comparison.document(site, comparison.comparison_of(site, request)), seq=site.memory.head)


def get_shown_context(site: Site, request: Request, _: Body) -> Response:
    """Rebuild the context that a model was shown at a seq."""
    return answer(
        request, views.context_json(site.memory, check_seq(site.memory, _seq_in(request))), seq=site.memory.head
    )


def append_message(site: Site, request: Request, body: Body) -> Response:
    """Append a message to a session; the first message creates the session, with its project and its budget."""
    names = ("role", "content", "tokens", "name", "tool_calls", "tool_call_id", "pinned", "metadata")
    values = fields(body, *names, *_OPENING_FIELDS)
    if "role" not in values:
        checks.invalid("role is missing; give user, assistant, system or tool")
    check_blocks(values["role"], values.get("content"))
    opening = {name: values.pop(name, None) for name in _OPENING_FIELDS}
    chat = site.memory.conversation(name_in(request, "session"), **opening)
    with site.memory.acting(ACTOR):
        message = chat.append(values.pop("role"), values.pop("content", None), **values, **options(request))
    return answer(request, message_json(message), version=chat.version, seq=site.memory.head, status=201)


def fork_session(site: Site, request: Request, body: Body) -> Response:
    """Fork a session at a seq."""
    values = fields(body, "id", "at")
    chat = views.find_session(site.memory, name_in(request, "session"))
    name, at = checks.name(values.get("id"), "id"), _parse_seq(site, values.get("at"))
    with site.memory.acting(ACTOR):
        try:
            fork = chat.fork(name, at=at, **options(request))
        except InvalidInput as error:
            is_there = bool(site.memory.conversation(name).version)
            return _conflict(
                error, is_there, f"there is a session {checks.brief(name)} already; give an id that is new"
            )
    return answer(request, {"id": fork.id}, version=fork.version, seq=site.memory.head, status=201)


def _conflict(error: InvalidInput, is_there: bool, text: str = "") -> Response:  # noqa: FBT001 - whether the name exists
    """Answer that a name is taken, if that is the cause, with a text or that of the error; else raise the error."""
    if not is_there or isinstance(error, RequestTaken):
        raise error
    return problem(409, "It is there already", text or str(error))


def _parse_seq(site: Site, value: Any) -> Any:
    """Return a seq from a body, even if JSON wrote it as 5.0; return any other value unchanged."""
    seq = int(value) if isinstance(value, float) and value.is_integer() else value
    return check_seq(site.memory, seq) if isinstance(seq, int) and not isinstance(seq, bool) else seq


# Events.


def list_events(site: Site, request: Request, _: Body) -> Response:
    """Read a page of the log, with the events of one kind or of all kinds."""
    after, until, kind = _after(site, request), moment(request, site.memory, "until"), text(request, "kind")
    if kind is not None and kind not in KIND_NAMES:
        checks.invalid(f"there is no kind of event {checks.brief(kind)}; the page on the format lists them")
    events = site.memory.events(after=after, until=until)
    of_kind = (recorded for recorded in events if kind in (None, event_name(recorded)))
    rows, following = views.events_page(site.memory, of_kind, limit(request))
    return answer(request, {"events": rows, "next": following}, seq=site.memory.head)


def get_event(site: Site, request: Request, _: Body) -> Response:
    """Read one event in full."""
    event = event_json(site.memory, site.memory.event(_seq_in(request)), full=flag(request, "full"))
    return answer(request, event, seq=site.memory.head)


def _seq_in(request: Request) -> int:
    value = str(request.path_params["seq"])
    if not is_number(value) or not int(value):
        raise NotFound(f"there is no event {checks.brief(value)}; a seq is a whole number")
    return int(value)


# Questions.


def get_why(site: Site, request: Request, _: Body) -> Response:
    """Explain how something came, when and how it left, what showed it to a model, and why a search did not."""
    return answer(request, msgspec.to_builtins(reasons.why_of(site, request)), seq=site.memory.head)


def get_blame(site: Site, request: Request, _: Body) -> Response:
    """List every value that a key ever had, oldest first, with its writer and the turn that led to it."""
    revisions = msgspec.to_builtins(reasons.revisions_of(site, request))
    return answer(request, {"revisions": revisions}, seq=site.memory.head)


# Searches.


def search(site: Site, request: Request, _: Body) -> Response:
    """Search the memories of a project, or the messages of one or all sessions, with the signals of each score."""
    query, memory = text(request, "q"), memory_of(request, site.memory)
    if query is None:
        checks.invalid("q is missing; give what to look for")
    top_k = max(number(request, "top_k", 10, 100), 1)
    kind, session = text(request, "in", "memories"), name_of(request, "session")
    project = projects.project_to_search(memory, request) if kind == "memories" else None
    if kind == "messages":
        hits = (
            memory.search_messages(query, top_k=top_k, explain=True)
            if session is None
            else views.find_session(memory, session).search(query, top_k=top_k, explain=True)
        )
    elif project is not None:
        ranking = text(request, "ranking", "hybrid") or "hybrid"
        hits = memory.project(project).search(query, top_k=top_k, ranking=ranking, explain=True)
    else:
        checks.invalid(f"in is {checks.brief(kind)}; give memories or messages")
    return answer(request, {"project": project, **views.hits_json(hits)}, seq=memory.head)


# Projects and their memories.


def list_projects(site: Site, request: Request, _: Body) -> Response:
    """List projects by name."""
    listed = views.projects_page(site.memory, name_of(request, "after"), limit(request))
    return answer(request, listed, seq=site.memory.head)


def get_project(site: Site, request: Request, _: Body) -> Response:
    """Read the counts of a project."""
    project = _known_project(site, request)
    shown = {"id": project.name, **msgspec.to_builtins(project.stats())}
    return answer(request, shown, version=_version(project), seq=site.memory.head)


def list_memories(site: Site, request: Request, _: Body) -> Response:
    """Read a page of a project's memories, optionally of one category or status."""
    project, offset, count = _known_project(site, request), number(request, "offset", 0), limit(request)
    kinds = {"category": text(request, "category"), "status": text(request, "status")}
    entries = project.list(**kinds, offset=offset, limit=count)
    shown = {
        "memories": [entry_json(entry) for entry in entries],
        "total": project.count(**kinds),
        "next": offset + count if len(entries) == count else None,
    }
    return answer(request, shown, version=_version(project), seq=site.memory.head)


def get_memory(site: Site, request: Request, _: Body) -> Response:
    """Read one memory with its history."""
    project, entry_id = _project(site, request), name_in(request, "memory")
    entry = project.get(entry_id)
    if entry is None:
        raise NotFound(f"Memory not found: {entry_id}")
    history = [event_json(site.memory, recorded) for recorded in project.history(entry_id)]
    return answer(request, {**entry_json(entry), "history": history}, version=_version(project), seq=site.memory.head)


def add_memory(site: Site, request: Request, body: Body) -> Response:
    """Add a memory; for an exact duplicate, return the existing memory."""
    values = fields(body, *_MEMORY_FIELDS, "source", "status")
    project = _project(site, request)
    if "content" not in values:
        checks.invalid("content is missing; give a statement")
    if "source" in values:
        values["source"] = _parse_seq(site, values["source"])
    with site.memory.acting(ACTOR):
        entry = project.add(values.pop("content"), **values, **options(request))
    return answer(request, entry_json(entry), version=_version(project), seq=site.memory.head, status=201)


def update_memory(site: Site, request: Request, body: Body) -> Response:
    """Change fields of a memory."""
    values, project = fields(body, *_MEMORY_FIELDS), _project(site, request)
    with site.memory.acting(ACTOR):
        entry = project.update(name_in(request, "memory"), **values, **options(request))
    return answer(request, entry_json(entry), version=_version(project), seq=site.memory.head)


def delete_memory(site: Site, request: Request, _: Body) -> Response:
    """Delete a memory; the log keeps it until it is erased."""
    project = _project(site, request)
    with site.memory.acting(ACTOR):
        project.delete(name_in(request, "memory"), **options(request))
    return answer(request, {"deleted": True}, version=_version(project), seq=site.memory.head)


def prune_memories(site: Site, request: Request, body: Body) -> Response:
    """Remove the memories whose importance is under a bound; with `dry_run` only count them."""
    values, project = fields(body, "min_importance", "dry_run"), _known_project(site, request)
    bound = values.get("min_importance", 0.1)
    with site.memory.acting(ACTOR):
        outcome = project.prune(bound, dry_run=values.get("dry_run", False), **options(request))
    return answer(request, msgspec.to_builtins(outcome), version=_version(project), seq=site.memory.head)


def clear_memories(site: Site, request: Request, _: Body) -> Response:
    """Remove all memories of a project; the log keeps them."""
    project = _known_project(site, request)
    with site.memory.acting(ACTOR):
        project.clear(**options(request))
    return answer(request, {"cleared": True}, version=_version(project), seq=site.memory.head)


def _known_project(site: Site, request: Request) -> Project:
    project = _project(site, request)
    if not _version(project):
        raise NotFound(
            f"there is no project {checks.brief(project.name)}; /api/projects lists those that were written to"
        )
    return project


def _project(site: Site, request: Request) -> Project:
    return memory_of(request, site.memory).project(name_in(request, "project"))


def _version(project: Project) -> int:
    """Return the version of a project's stream, for `If-Match`."""
    core, _ = core_of(project)
    return core.version(f"project/{project.name}")


# Skills.


def list_skills(site: Site, request: Request, _: Body) -> Response:
    """List skills, the highest priority first, with a mark on the detected ones and an overview."""
    with site.skills() as skills:
        query, of_source = text(request, "q"), skills.list(source=text(request, "source"))
        names = {each.name for each in of_source}
        results = of_source if query is None else [each for each in skills.search(query) if each.name in names]
        shown = {"skills": msgspec.to_builtins(results), "overview": msgspec.to_builtins(skills.overview())}
        mark = _mark(*skills.list())
        return answer(request, shown, version=_library_version(site), seq=site.memory.head, mark=mark)


def get_skill(site: Site, request: Request, _: Body) -> Response:
    """Read one skill in full."""
    with site.skills() as skills:
        skill = skills.find(name_in(request, "skill"))
    shown = {name: getattr(skill, name) for name in skill.__struct_fields__ if name not in {"front", "hooks", "detect"}}
    version, seq = _library_version(site), site.memory.head
    return answer(request, shown | {"metadata": skill.metadata}, version=version, seq=seq, mark=_mark(skill))


def add_skill(site: Site, request: Request, body: Body) -> Response:
    """Add a skill to the learned ones; it is active at once."""
    values = fields(body, "name", "description", "body", "tags")
    missing = next((name for name in ("name", "description", "body") if name not in values), None)
    if missing is not None:
        checks.invalid(f"{missing} is missing; give name, description and body")
    with site.skills() as skills, site.memory.acting(ACTOR):
        other = next((each for each in skills.list() if each.name == values["name"]), None)
        if other is not None and other.source != "generated":
            text = f"there is a skill {checks.brief(other.name)} in {other.path} already; give a name that is new"
            return problem(409, "It is there already", text)
        try:
            skill = skills.library.learn(**values, status="active", **options(request))
        except InvalidInput as error:
            return _conflict(error, any(each.name == values["name"] for each in skills.library.list()))
    version, shown = _library_version(site), {"name": skill.name, "status": skill.status}
    return answer(request, shown, version=version, seq=site.memory.head, status=201)


def update_skill(site: Site, request: Request, body: Body) -> Response:
    """Switch a skill on or off, from the next model call on, or edit a learned skill or one of the project's own."""
    values, name = fields(body, "enabled", "description", "body", "tags"), name_in(request, "skill")
    edit = {key: value for key, value in values.items() if key != "enabled"}
    if bool(edit) == ("enabled" in values):
        checks.invalid("give enabled alone, or what is to be changed: description, body, tags")
    with site.skills() as skills, site.memory.acting(ACTOR):
        skill, head = skills.find(name), site.memory.head
        check_mark(request, _mark(skill), f"the skill {checks.brief(skill.name)}", _library_version(site))
        if edit:
            skill = skills.edit(name, **edit, **options(request))
            enabled, changed = skill.enabled, site.memory.head > head
        else:
            enabled = checks.flag(values["enabled"], "enabled")
            changed = skills.library.toggle(skill.name, enabled=enabled, **options(request))
        mark = _mark(skills.find(skill.name))
    shown = {"name": skill.name, "enabled": enabled, "changed": changed}
    return answer(request, shown, version=_library_version(site), seq=site.memory.head, mark=mark)


def delete_skill(site: Site, request: Request, _: Body) -> Response:
    """Delete a learned skill, which the log keeps, or a skill file in the project's own directory of skills."""
    with site.skills() as skills, site.memory.acting(ACTOR):
        skill = skills.find(name_in(request, "skill"))
        check_mark(request, _mark(skill), f"the skill {checks.brief(skill.name)}", _library_version(site))
        projects.delete(skills, skill.name, expected=options(request)["expected"])
    return answer(request, {"deleted": True}, version=_library_version(site), seq=site.memory.head)


def refresh_skills(site: Site, request: Request, _: Body) -> Response:
    """Read the skill files again."""
    with site.skills() as skills:
        stats = skills.refresh()
    return answer(request, msgspec.to_builtins(stats), seq=site.memory.head)


def _library_version(site: Site) -> int:
    """Return the version of the stream of learned skills, switches and notes, for `If-Match`."""
    core, _ = core_of(site.memory)
    return core.version("skills/default")


def _mark(*skills: Skill | SkillSummary) -> str:
    """Return a mark of the contents of skills in files, empty if there are none."""
    ids = [skill.id for skill in skills if skill.source != "generated"]  # An id has a digest of the content.
    return sha256(" ".join(ids).encode()).hex()[:_MARK_DIGITS] if ids else ""


# The store.


def list_boards(site: Site, request: Request, _: Body) -> Response:
    """List the boards of sessions and of nodes."""
    rows = [
        {"session_id": board.session, "project_id": board.project, "node_id": board.node, "version": board.version}
        for board in site.memory.boards()
    ]
    return answer(request, {"boards": rows}, seq=site.memory.head)


def get_stats(site: Site, request: Request, _: Body) -> Response:
    """Read counts of the whole store."""
    return answer(request, msgspec.to_builtins(site.memory.stats()), seq=site.memory.head)


def verify(site: Site, request: Request, _: Body) -> Response:
    """Verify the whole log and everything that is computed from it."""
    return answer(request, msgspec.to_builtins(site.verification.run()), seq=site.memory.head)


def stream_verification(site: Site, request: Request, _: Body) -> Response:
    """Verify the whole log, and stream the `progress`, then the `report`, or the error as `failed`."""
    return StreamingResponse(site.verification.pieces(), media_type="text/event-stream")


def stream_notices(site: Site, request: Request, _: Body) -> Response:
    """Stream every event after a seq, or from now on, as it becomes durable, with a notice if it is worth one."""
    after = _after(site, request) if "after" in request.query_params else None
    last = request.headers.get("last-event-id", "").strip()  # Sent by a client that was cut off.
    if last:
        if not is_number(last):
            checks.invalid(f"Last-Event-ID is {checks.brief(last)}; give the id of an event of this stream")
        after = min(int(last), site.memory.head)
    site.hub.check_room()
    return StreamingResponse(site.hub.pieces(after), media_type="text/event-stream")
