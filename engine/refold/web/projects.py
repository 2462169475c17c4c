"""The pages of a project: its memories, its skills, and the panel that summarizes both."""

from collections.abc import Callable, Sequence
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response

from refold import ANY, Memory, checks
from refold.errors import InvalidInput, NotFound, RefoldError
from refold.memory.core import core_of
from refold.skills import Skill, Skills, SkillSummary
from refold.skills.format import SOURCES
from refold.web import views
from refold.web.parameters import limit, name_in, name_of, number, text
from refold.web.render import page, url
from refold.web.site import Site

Fields = dict[str, str]
_DEFAULT: Final = "default"
_PRUNE_BOUND: Final = 0.2
_PREVIEW_COUNT: Final = 20
_PANEL_COUNT: Final = 5
_OWN: Final = frozenset(("project", "generated"))


def show_projects(site: Site, request: Request) -> Response:
    """List the projects with their numbers of memories."""
    listed = views.projects_page(site.memory, name_of(request, "after"), limit(request))
    rows, following = listed["projects"], listed["next"]
    return page(site, request, "projects.html", here="projects", rows=rows, following=following)


def project_to_search(memory: Memory, request: Request) -> str:
    """Return the project that a request searches: by default `default`, or the first by name if that was never used."""
    name = name_of(request, "project")
    if name is not None:
        return name
    names = [*memory.projects(prefix=_DEFAULT, limit=1), *memory.projects(limit=1)]
    return _DEFAULT if not names or _DEFAULT in names else names[-1]


def show_project(site: Site, request: Request) -> Response:
    """Show the memories or the skills of a project."""
    name = name_in(request, "project")
    tab = "skills" if text(request, "tab") == "skills" else "memory"
    with site.skills() as skills:
        if text(request, "refresh"):
            skills.refresh()
        overview = skills.overview()
        shown = _skills(skills, request) if tab == "skills" else {}
    counts = site.memory.project(name).stats()
    if tab == "memory":
        shown = _memories(site, request, name)
    return page(
        site,
        request,
        "project.html",
        here="projects",
        project=name,
        tab=tab,
        counts=counts,
        overview=overview,
        q=text(request, "q") or "",
        **shown,
    )


def _memories(site: Site, request: Request, name: str) -> dict[str, Any]:
    project, query = site.memory.project(name), text(request, "q")
    category, offset, count = text(request, "category"), number(request, "offset", 0), limit(request)
    if query is not None:
        categories = None if category is None else [category]
        hits = project.search(query, top_k=count, categories=categories, min_importance=0.0, floor=0)
        entries = [hit.entry for hit in hits]
    else:
        entries = project.list(category=category, offset=offset, limit=count)
    requested = name_of(request, "memory")
    selected = project.get(requested) if requested is not None else entries[0] if entries else None
    source = None if selected is None else selected.source
    return {
        "entries": entries,
        "category": category or "",
        "offset": offset,
        "following": offset + count if query is None and len(entries) == count else None,
        "selected": selected,
        "source_url": _source_url(site.memory, source),
        "stale": project.prune(_PRUNE_BOUND, dry_run=True).removed if site.writes else 0,
        "stale_entries": _stale_entries(project) if site.writes else [],
        "prune_bound": _PRUNE_BOUND,
    }


def _stale_entries(project: Any) -> list[Any]:
    """Return the first memories that a prune would remove."""
    entries = project.list(limit=1_000)
    return [entry for entry in entries if entry.importance < _PRUNE_BOUND][:_PREVIEW_COUNT]


def _source_url(memory: Memory, source: Any) -> str | None:
    """Return the URL of the moment that a memory comes from, if that is in a session."""
    if isinstance(source, str):
        return url("sessions", source) if memory.conversation(source).version else None
    seq = source if isinstance(source, int) else getattr(source, "seq", None)
    if not isinstance(seq, int) or not 0 < seq <= memory.head:
        return None
    try:
        root, _, session = memory.event(seq).stamp.stream.partition("/")
    except RefoldError:
        return None
    return f"{url('sessions', session)}?at={seq}" if root == "conversation" else None


def _groups(skills: Sequence[SkillSummary]) -> tuple[tuple[str, str, list[SkillSummary]], ...]:
    """Return skills in three groups: detected in the project, its own, and all others."""
    return (
        ("autoDetected", "detected", [each for each in skills if each.detected]),
        ("projectSkills", "own", [each for each in skills if not each.detected and each.source in _OWN]),
        ("available", "available", [each for each in skills if not each.detected and each.source not in _OWN]),
    )


def _skills(skills: Skills, request: Request) -> dict[str, Any]:
    query, source, requested = text(request, "q"), text(request, "source"), name_of(request, "skill")
    listed = skills.list(source=source)
    if query is not None:
        names = {each.name for each in listed}
        listed = tuple(each for each in skills.search(query, top_k=100) if each.name in names)
    every, waiting = skills.list(), skills.library.list("pending_review")
    name = requested or (listed[0].name if listed else None)
    selected = None if name is None else skills.find(name)
    via: list[tuple[str, str]] = []
    for each in skills.detect():
        if selected is not None and each.name == selected.name:
            via = [*each.matches] or [(file, "") for file in each.matched_files]
    return {
        "groups": _groups(listed),
        "waiting": waiting,
        "is_waiting": selected is not None and selected.name in {each.name for each in waiting},
        "selected": selected,
        "is_own": selected is not None and _is_own(selected),
        "via": via,
        "source": source or "",
        "sources": SOURCES,
        "has_files": skills.roots.project is not None,
        "enabled_count": sum(each.enabled for each in every),
        "generated_count": sum(each.source == "generated" for each in every),
    }


def _is_own(skill: Skill) -> bool:
    """Return whether a skill can be changed here: a learned one, or a file in the project's own directory of skills."""
    own: bool = skill.source == "generated" or (skill.source == "project" and skill.path.startswith(".skills/"))
    return own


def detected_count(site: Site) -> int:
    """Count the skills that are detected in the project."""
    with site.skills() as skills:
        return len(skills.detect())


def show_panel(site: Site, request: Request) -> Response:
    """Show the skills and memories of a project briefly, in three collapsible sections with quick actions."""
    name = name_in(request, "project")
    project = site.memory.project(name)
    with site.skills() as skills:
        groups = _groups(skills.list())[:2]
    entries = project.list(limit=_PANEL_COUNT)
    total = project.count()
    return page(
        site,
        request,
        "panel.html",
        here="projects",
        project=name,
        groups=groups,
        entries=entries,
        total=total,
        rest=total - len(entries),
    )


def show_file(site: Site, request: Request) -> Response:
    """Show the file of a skill as it is, or a learned skill as the file that it would be."""
    with site.skills() as skills:
        skill = skills.find(name_of(request, "skill") or "")
        try:
            content: bytes = skills.read_resource(skill.name, skill.path.rpartition("/")[2])
        except NotFound:
            content = skills.render(skill.name).encode()
    return Response(content, media_type="text/plain; charset=utf-8")


def _add_memory(site: Site, request: Request, form: Fields) -> str:
    project = site.memory.project(name_in(request, "project"))
    fields = _memory_fields(form)
    entry = project.add(fields.pop("content", ""), **fields)
    return f"{url('projects', project.name)}?{urlencode({'memory': entry.id})}"


def _update_memory(site: Site, request: Request, form: Fields) -> str:
    project = site.memory.project(name_in(request, "project"))
    entry = project.update(form.get("memory", ""), **_memory_fields(form))
    return f"{url('projects', project.name)}?{urlencode({'memory': entry.id})}"


def _memory_fields(form: Fields) -> dict[str, Any]:
    """Return the fields of a memory from a form."""
    fields: dict[str, Any] = {name: form[name].strip() for name in ("content", "category") if name in form}
    words = [word.strip() for word in form.get("keywords", "").split(",") if word.strip()]
    if "importance" in form:
        try:
            fields["importance"] = float(form["importance"])
        except ValueError as error:
            message = f"importance is {checks.brief(form['importance'])}; give a number from 0 to 1"
            raise InvalidInput(message) from error
    return fields | ({"keywords": words} if words else {})


def _delete_memory(site: Site, request: Request, form: Fields) -> str:
    site.memory.project(name_in(request, "project")).delete(form.get("memory", ""))
    return url("projects", name_in(request, "project"))


def _prune(site: Site, request: Request, form: Fields) -> str:
    bound = form.get("min_importance", "")
    if bound != str(_PRUNE_BOUND):
        checks.invalid(f"min_importance is {checks.brief(bound)}; the page prunes under {_PRUNE_BOUND}")
    site.memory.project(name_in(request, "project")).prune(_PRUNE_BOUND)
    return url("projects", name_in(request, "project"))


def _clear(site: Site, request: Request, form: Fields) -> str:
    site.memory.project(name_in(request, "project")).clear()
    return url("projects", name_in(request, "project"))


def _skill_url(request: Request, name: str) -> str:
    return f"{url('projects', name_in(request, 'project'))}?{urlencode({'tab': 'skills', 'skill': name})}"


def _toggle(site: Site, request: Request, form: Fields) -> str:
    with site.skills() as skills:
        name = skills.find(form.get("skill", "")).name
        skills.library.toggle(name, enabled=bool(form.get("enabled")))
    return _skill_url(request, name)


def _tags(form: Fields) -> tuple[str, ...]:
    return tuple(tag.strip() for tag in form.get("tags", "").split(",") if tag.strip())


def _add_skill(site: Site, request: Request, form: Fields) -> str:
    name, description = form.get("name", "").strip(), form.get("description", "").strip()
    with site.skills() as skills:
        if form.get("where") == "files":
            name = skills.create(name, description, form.get("body", ""), tags=_tags(form)).name
        else:
            body = form.get("body", "")
            name = skills.library.learn(name, description, body, tags=_tags(form), status="active").name
    return _skill_url(request, name)


def _edit_skill(site: Site, request: Request, form: Fields) -> str:
    changes: dict[str, Any] = {name: form[name] for name in ("description", "body") if name in form}
    with site.skills() as skills:
        name = skills.edit(form.get("skill", ""), **changes, tags=_tags(form) if "tags" in form else None).name
    return _skill_url(request, name)


def delete(skills: Skills, name: str, *, expected: Any = ANY) -> None:
    """Delete a learned skill, even before its review, or the file of a project's own skill; raises `NotFound`.

    ``expected`` is the version that the library must have.
    """
    skill = skills.find(name)
    if skill.source == "generated":
        skills.library.delete(skill.name, expected=expected)
    else:
        core, _ = core_of(skills.library)
        core.check_version(f"skills/{skills.library.name}", expected)
        skills.remove(skill.name)


def _delete_skill(site: Site, request: Request, form: Fields) -> str:
    with site.skills() as skills:
        delete(skills, form.get("skill", ""))
    return f"{url('projects', name_in(request, 'project'))}?tab=skills"


def _review_skill(site: Site, request: Request, form: Fields) -> str:
    with site.skills() as skills:
        name = skills.library.review(form.get("skill", ""), form.get("status", "")).name
    return _skill_url(request, name)


WRITES: Final[dict[str, Callable[[Site, Request, Fields], str]]] = {
    "/projects/{project}/memories/add": _add_memory,
    "/projects/{project}/memories/update": _update_memory,
    "/projects/{project}/memories/delete": _delete_memory,
    "/projects/{project}/memories/prune": _prune,
    "/projects/{project}/memories/clear": _clear,
    "/projects/{project}/skills/toggle": _toggle,
    "/projects/{project}/skills/add": _add_skill,
    "/projects/{project}/skills/edit": _edit_skill,
    "/projects/{project}/skills/delete": _delete_skill,
    "/projects/{project}/skills/review": _review_skill,
}
"""The handlers of the forms of these pages, by their paths."""
