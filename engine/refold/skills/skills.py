"""The handle on skills: those in files and those in the library as one, and the tool that a model meets."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Unpack

from msgspec import Struct

from refold import checks
from refold.agent.context import skills_text
from refold.agent.hooks import (
    BEFORE_TOOL,
    SESSION_END,
    USER_MESSAGE,
    BeforeToolResult,
    HookContext,
    Hooks,
    UserMessageResult,
)
from refold.agent.providers import JsonProvider
from refold.agent.tools import FORBIDDEN, FunctionTool, Tool, ToolContext, ToolDefinition, ToolRegistry, ToolResult
from refold.errors import InvalidInput, NotFound
from refold.limits import SOURCES_COUNT_MAX
from refold.memory.options import Door
from refold.results import SessionSummary
from refold.skills import files, selection
from refold.skills.format import SKILL_FILE, check_name, render_skill, skill_id
from refold.skills.library import CompleteJson, Generation, SkillLibrary, Writing, maybe_generate
from refold.skills.selection import (
    DetectedSkill,
    SelectionPolicy,
    Selector,
    SkillMatch,
    detect_skills,
    text_of,
    with_settings,
)
from refold.skills.skill import SOURCES, Diagnostic, Skill, SkillSummary
from refold.skills.sources import SKILL_DIRECTORIES, RefreshStats, SkillIndex, SkillLoader, SkillRoots
from refold.text import sha256
from refold.views.skills import ACTIVE, LearnedSkill, Selection
from refold.views.work import WORK_EVENTS, ToolExecuted

if TYPE_CHECKING:
    from numpy import float32
    from numpy.typing import NDArray


# Counts of the skills that there are. Pure.


class Overview(Struct, frozen=True):
    """Skills by source, those switched off, detected and shadowed, learned ones by status, diagnostics by severity."""

    total: int
    by_source: dict[str, int]
    disabled: tuple[str, ...]
    detected: tuple[str, ...]
    shadowed: int
    learned: dict[str, int]
    diagnostics: dict[str, int]


def overview_of(index: SkillIndex, detected: Iterable[str], learned: Sequence[LearnedSkill]) -> Overview:
    """Return the counts of an index.

    >>> overview_of(SkillIndex(()), (), ()).total
    0
    """
    sources = Counter(skill.source for skill in index.skills)
    return Overview(
        len(index),
        {source: sources[source] for source in SOURCES if sources[source]},
        tuple(skill.name for skill in index.skills if not skill.enabled),
        tuple(detected),
        len(index.shadowed),
        dict(sorted(Counter(skill.status for skill in learned).items())),
        dict(sorted(Counter(said.severity for said in index.diagnostics).items())),
    )


# The handle on skills: those in files and those that were learned, as one; what was switched, selected and used.

GENERATED_PRIORITY: Final = 201
"""Of a learned skill: above the user's, below every file of the project."""

_LIBRARY_PATH: Final = "library/"


class Skills:
    """A handle on the skills of a memory: those in files below some roots, and those that it learned.

    Files are those of now, also behind a frozen handle; what was learned, switched, selected and used is that of the
    handle's seq. Files are looked at when they are first needed, and again by ``refresh`` and by every verb that writes
    one: hold on to the handle. Not for several threads at once.

    >>> from refold import Memory
    >>> skills = skills_of(Memory())
    >>> skills.overview().total
    0
    """

    __slots__ = ("_at", "_detected", "_door", "_files", "_loader", "_merged", "_selector", "library", "roots")

    def __init__(
        self, door: Door, at: int | None, *, roots: SkillRoots | None = None, library: str = "default"
    ) -> None:
        self._door = door
        self._at = at
        self.roots = SkillRoots() if roots is None else roots
        self.library = SkillLibrary(door, at, library)
        """The skills that were learned, and the switches and uses of all."""
        self._loader = SkillLoader(self.roots)
        self._files: SkillIndex | None = None
        self._detected: tuple[SkillIndex, tuple[DetectedSkill, ...]] | None = None
        self._merged: tuple[SkillIndex, tuple[LearnedSkill, ...], frozenset[str], SkillIndex] | None = None
        self._selector: Selector | None = None

    def __repr__(self) -> str:
        """Return the handle with its counts."""
        return f"Skills({self._door.counts(lambda: f'skills={len(self.index())}, learned={len(self.library.list())}')})"

    def below(self, roots: SkillRoots) -> "Skills":
        """Return a handle on the same library that looks for files below other roots."""
        return Skills(self._door, self._at, roots=roots, library=self.library.name)

    # Looking.

    def index(self) -> SkillIndex:
        """Return every skill, each name once; it is the same object for as long as nothing has changed."""
        if self._files is None:
            self.refresh()
        files = self._files
        assert files is not None, "a look at the files leaves an index"
        learned = tuple(self.library.list(ACTIVE))
        disabled = self.library.disabled()
        merged = self._merged
        if merged is None or merged[0] is not files or merged[1:3] != (learned, disabled):
            index = files.with_skills(map(_as_skill, learned)).switched_off(disabled)
            self._merged = merged = (files, learned, disabled, index)
        return merged[3]

    def refresh(self) -> RefreshStats:
        """Look at the files again and return what became of them since the look before."""
        self._files, self._detected = self._loader.load(), None
        return self._loader.stats

    def list(
        self, *, source: str | None = None, include_disabled: bool = True, open_to: str | None = None
    ) -> tuple[SkillSummary, ...]:
        """Return the skills without their bodies, the highest priority first; ``detected`` says which apply here.

        ``open_to`` is ``"user"`` for those that a user may call by name, ``"model"`` for those that a model may.
        """
        if open_to not in (None, "user", "model"):
            raise InvalidInput(f"open_to is {checks.shown(open_to)}; give 'user', 'model' or None")
        if source is not None and source not in SOURCES:
            raise InvalidInput(f"source is {checks.shown(source)}; give one of {', '.join(SOURCES)}")
        detected = frozenset(found.name for found in self.detect())
        every = self.index().summaries(detected=detected)
        return tuple(
            skill
            for skill in every
            if (include_disabled or skill.enabled)
            and source in {None, skill.source}
            and (open_to is None or getattr(skill, f"{open_to}_invocable"))
        )

    def get(self, name: str) -> Skill:
        """Return a skill by its name or id; raises ``NotFound``."""
        found = self.index().get(checks.text(name, "name"))
        if found is None:
            raise NotFound(f"there is no skill {checks.shown(name)}; `refold skills list` shows those that there are")
        return found

    def find(self, name: str) -> Skill:
        """Return a skill by its name or id, a learned one also before its review; raises ``NotFound``."""
        found = self.index().get(checks.text(name, "name"))
        if found is None:
            found = next((_as_skill(skill) for skill in self.library.list() if name in {skill.name, skill.id}), None)
        return self.get(name) if found is None else found

    def diagnostics(self) -> tuple[Diagnostic, ...]:
        """Return what is odd about the files, and what shadows what."""
        return self.index().diagnostics

    def detect(self) -> tuple[DetectedSkill, ...]:
        """Return the skills that apply to the project, nothing without a project."""
        if self.roots.project is None:
            return ()
        index = self.index()
        if self._detected is None or self._detected[0] is not index:
            self._detected = (index, detect_skills(index.skills, self.roots.project))
        return self._detected[1]

    def overview(self) -> Overview:
        """Return counts: skills by source, those switched off, detected, pending review, and what is odd."""
        detected = (found.name for found in self.detect())
        return overview_of(self.index(), detected, self.library.list())

    # Selecting.

    def select(
        self,
        query: str,
        *,
        policy: SelectionPolicy | None = None,
        phase: str | None = None,
        forced: Iterable[str] = (),
    ) -> tuple[SkillMatch, ...]:
        """Return the skills to put before a model; nothing is recorded.

        Without a policy the counts are those of the configuration. What is switched off, or is not for models to call
        for, is selected only where it is forced. See ``Selector.select``.
        """
        index = self.index()
        if self._selector is None or self._selector.index is not index:
            self._selector = Selector(index, vectors=self._vectors)
        chosen = with_settings(SelectionPolicy(), index) if policy is None else policy
        detected = [found.name for found in self.detect()]
        return self._selector.select(
            query,
            policy=chosen,
            phase=phase,
            detected=detected,
            forced=forced,
            is_enabled=lambda skill: skill.enabled and skill.model_invocable,
        )

    def choose(
        self,
        query: str,
        *,
        conversation: str = "",
        policy: SelectionPolicy | None = None,
        phase: str | None = None,
        forced: Iterable[str] = (),
        **writing: Unpack[Writing],
    ) -> tuple[SkillMatch, ...]:
        """Select and record what was selected, for ``selected`` and for every later look back."""
        matches = self.select(query, policy=policy, phase=phase, forced=forced)
        given = "seed" if policy is None else policy.ranking
        ranking = given if isinstance(given, str) else str(getattr(given, "name", given))
        self.library.record(matches, query=query, conversation=conversation, phase=phase, ranking=ranking, **writing)
        return matches

    def selected(self, conversation: str = "") -> Selection | None:
        """Return what was selected last for a conversation, as of this handle's seq."""
        return self.library.selected(conversation)

    def _vectors(self, texts: Sequence[str]) -> "NDArray[float32]":
        import numpy  # noqa: PLC0415 - loads only for those who compare meanings

        rows = self._door.embedding.embedder.embed([*texts])
        lengths: NDArray[float32] = numpy.linalg.norm(rows, axis=1, keepdims=True)
        return numpy.divide(rows, lengths, dtype=numpy.float32)  # Embedders may give vectors of any length.

    # For a model that chooses itself.

    def catalog(self) -> str:
        """Return the skills that a model may call for, as XML; empty without any."""
        return selection.catalog(self.index().summaries())

    def activate(self, name: str) -> str:
        """Return the text of a skill that a model called for, with the names of the files beside it.

        Raises ``NotFound`` for one that is not there, switched off, or not for models.
        """
        skill = self.get(name)
        if not skill.enabled or not skill.model_invocable:
            raise NotFound(f"the skill {skill.name!r} is not open to models; choose one of the catalog")
        return selection.activation(skill, self.resources(name))

    def allowed_tools(self, names: Iterable[str]) -> frozenset[str] | None:
        """Return the tools that active skills allow, together; ``None`` where none of them restricts any."""
        restricted = [set(tools) for name in names if (tools := self.get(name).allowed_tools)]
        return frozenset(set[str]().union(*restricted)) if restricted else None

    # Files beside a skill.

    def resources(self, name: str) -> tuple[str, ...]:
        """Return the names of the files beside a skill, nothing for one that has no directory of its own."""
        directory = self._directory(self.get(name))
        return () if directory is None else files.resources(directory, without=SKILL_FILE)

    def read_resource(self, name: str, resource: str) -> bytes:
        """Return a file beside a skill; raises ``NotFound``, ``InvalidInput`` for a name that leads out of it."""
        skill = self.get(name)
        directory = self._directory(skill)
        if directory is None:
            raise NotFound(f"the skill {skill.name!r} has no files beside it")
        return files.read_resource(directory, checks.text(resource, "resource"))

    def _directory(self, skill: Skill) -> str | None:
        is_alone = skill.source == "generated" or not skill.path.lower().endswith(f"/{SKILL_FILE.lower()}")
        return None if is_alone else files.parent_of(self._path(skill))

    def _path(self, skill: Skill) -> str:
        return skill.path if self.roots.project is None else files.joined(self.roots.project, skill.path)

    # Writing files.

    def create(self, name: str, description: str, body: str, *, tags: Sequence[str] = ()) -> Skill:
        """Write a new skill into the project's ``.skills`` and return it.

        Raises ``InvalidInput`` for what the specification refuses, for a skill that is there, and without a project.
        """
        text = render_skill(name, description, body, tags=tags)
        files.write_new(self._own_directory(), f"{name}/{SKILL_FILE}", text.encode())
        self.refresh()
        return self.get(name)

    def remove(self, name: str) -> str:
        """Delete a skill: the project's own file, or the learned skill; return its path.

        Raises ``NotFound``, and ``InvalidInput`` for a skill that comes from elsewhere.
        """
        skill = self.get(name)
        if skill.source == "generated":
            self.library.delete(skill.name)
            return skill.path
        prefix = f"{SKILL_DIRECTORIES[0]}/"
        if skill.source != "project" or not skill.path.startswith(prefix):
            raise InvalidInput(
                f"{skill.path} is no skill of the project's {SKILL_DIRECTORIES[0]}; switch it off instead"
            )
        path = files.remove(self._own_directory(), skill.path.removeprefix(prefix))
        self.refresh()
        return path

    def _own_directory(self) -> str:
        if self._at is not None:
            self._door.refuse_frozen("skills", self._at)
        if self.roots.project is None:
            raise InvalidInput("these skills have no project to write into; give SkillRoots(project=...)")
        files.inside(self.roots.project, SKILL_DIRECTORIES[0])  # A link that leads out is not written through.
        return files.joined(self.roots.project, SKILL_DIRECTORIES[0])

    def export(self, name: str, directory: str | None = None) -> str:
        """Write a skill as a valid SKILL.md below a directory, by default the project's ``.skills``; return its path.

        It is the skill's own text with what the specification allows. Raises ``InvalidInput`` where the name is taken.
        """
        place = self._own_directory() if directory is None else checks.text(directory, "directory")
        text = self.rendered(name)
        path = files.write_new(place, f"{check_name(self.find(name).name)}/{SKILL_FILE}", text.encode())
        self.refresh()
        return path

    def rendered(self, name: str) -> str:
        """Return a skill as the text of a valid SKILL.md; a learned one also before its review."""
        skill = self.find(name)
        metadata = {key: value for key, value in skill.metadata.items() if isinstance(value, str)}
        return render_skill(
            skill.name,
            skill.description,
            skill.body,
            tags=skill.tags,
            version=skill.version,
            license=skill.license,
            compatibility=skill.compatibility,
            allowed_tools=skill.allowed_tools,
            metadata={key: metadata[key] for key in metadata if key not in {"tags", "version"}},
        )

    # The hooks of a session.

    def register_hooks(self, hooks: Hooks, provider: JsonProvider | None = None) -> None:
        """Register the hooks that put skills before a user's message and refuse the tools that those do not allow.

        With a provider, a skill is learned of a session that went well, if the setting `skills_auto_generate` is on.
        """

        def generate_at_end(context: HookContext, summary: SessionSummary) -> None:
            settings, chat = context.memory.settings, context.conversation
            if provider is None or not (settings.get("skills_enabled") and settings.get("skills_auto_generate")):
                return
            work = [(event, stamp.seq) for event, stamp in chat.events() if isinstance(event, WORK_EVENTS)]
            calls = [event for event, _ in work if isinstance(event, ToolExecuted)]
            self.maybe_generate(
                provider,
                summary=chat.session.to_text(),
                tool_calls=[(event.name, event.arguments.decode()[:_ARGUMENTS_CHARS_MAX]) for event in calls],
                session=context.session_id,
                succeeded=summary.success,
                sources=[seq for _, seq in work][-SOURCES_COUNT_MAX:],
            )

        hooks.register(USER_MESSAGE, self.inject)
        hooks.register(BEFORE_TOOL, refuse_tool)
        if provider is not None:
            hooks.register(SESSION_END, generate_at_end)

    def inject(self, context: HookContext, text: str) -> UserMessageResult | None:
        """Put the skills that a user's message selects before it, and record the selection."""
        context.shared.pop(_TOOLS, None)
        settings = context.memory.settings
        chars = int(settings.get("skills_max_injected_chars"))
        matches = self.select(text) if settings.get("skills_enabled") and chars else ()
        if not matches:
            return None
        context.write(text, lambda sources: self.choose(text, conversation=context.session_id, sources=sources))
        allowed = self.allowed_tools(match.skill.name for match in matches)
        context.shared[_TOOLS] = RestrictedRegistry(context.memory.tools, allowed)
        return UserMessageResult(
            f"{skills_text([(match.skill.name, match.body) for match in matches], chars)}\n\n{text}"
        )

    # Learning.

    def maybe_generate(
        self,
        complete_json: CompleteJson,
        *,
        summary: str,
        tool_calls: Sequence[tuple[str, str]],
        session: str | None = None,
        succeeded: bool = True,
        sources: Sequence[Any] = (),
    ) -> Generation:
        """Learn a skill from a session that went well; see ``generating.maybe_generate``."""
        pending = [skill for skill in self.library.list() if skill.status != ACTIVE]
        existing = [text_of(skill) for skill in (*self.index().skills, *map(_as_skill, pending))]
        return maybe_generate(
            self.library,
            complete_json,
            summary=summary,
            tool_calls=tool_calls,
            existing=existing,
            vectors=self._vectors,
            session=session,
            succeeded=succeeded,
            sources=sources,
        )


def skills_of(memory: Any, roots: SkillRoots | None = None, *, library: str = "default") -> Skills:
    """Return the skills of a memory, with files below some roots; frozen where the memory is."""
    door: Door = memory._door  # noqa: SLF001 - what the handles of one memory share; rooms above have no other way
    at: int | None = memory._at  # noqa: SLF001 - as above
    return Skills(door, at, roots=roots, library=library)


def _as_skill(learned: LearnedSkill) -> Skill:
    digest = sha256(learned.body.encode()).hex()
    return Skill(
        id=skill_id(learned.name, digest),
        name=learned.name,
        description=learned.description,
        body=learned.body,
        path=f"{_LIBRARY_PATH}{learned.id}",
        hash=digest,
        tags=learned.tags,
        source="generated",
        priority=GENERATED_PRIORITY,
    )


SKILL_USE: Final = "skill_use"
_DESCRIPTION: Final = (
    "Load a skill: written instructions for a kind of task. Call it before you begin a task that a skill of the "
    "catalog is for. With `resource`, read one of the files beside a skill that its instructions name."
)
_HINTS: Final = {"readOnlyHint": False, "destructiveHint": False, "idempotentHint": False, "openWorldHint": False}


def skill_tool(skills: Skills) -> FunctionTool | None:
    """Return the tool that lets a model call for a skill, ``None`` while no skill is open to models.

    Its schema lists the names as they are now: make it anew when the skills change. A skill that was called for is
    recorded as used; a file beside it is not.
    """
    names = [skill.name for skill in skills.list(include_disabled=False) if skill.model_invocable]
    if not names:
        return None
    properties = {
        "name": {"type": "string", "enum": names, "description": "The name of the skill"},
        "resource": {"type": "string", "description": "A file beside the skill, as its resources name it"},
    }
    parameters = {"type": "object", "properties": properties, "required": ["name"]}

    def use(arguments: dict[str, Any], context: ToolContext) -> str:
        name, resource = checks.text(arguments.get("name"), "name"), arguments.get("resource")
        text = skills.activate(name)
        if resource is not None:
            return skills.read_resource(name, checks.text(resource, "resource")).decode(errors="replace")
        conversation = None if context.conversation is None else context.conversation.id
        skills.library.use(name, conversation=conversation, sources=context.sources(opens=False))
        return text

    return FunctionTool(SKILL_USE, _DESCRIPTION, parameters, use, annotations=_HINTS)


_TOOLS: Final = "tools of the active skills"
"""The key under which hooks share the registry that the active skills restrict."""

_ARGUMENTS_CHARS_MAX: Final = 200
"""The part of a call's arguments that a model sees which makes a skill of a session."""


def refuse_tool(context: HookContext, name: str, arguments: dict[str, Any]) -> BeforeToolResult | None:  # noqa: ARG001
    """Refuse a tool that the skills before the last message do not allow."""
    tools: RestrictedRegistry | None = context.shared.get(_TOOLS)
    if tools is None or tools.permits(name):
        return None
    return BeforeToolResult(skip=True, skip_reason=tools.refused(name).message)


class RestrictedRegistry:
    """A registry of which only some tools may be called: those that the active skills allow, and ``skill_use``.

    An entry such as ``Bash(git:*)`` allows ``Bash``: what it says of arguments is for the tool's own host. Nothing of
    the registry itself is changed.
    """

    __slots__ = ("_allowed", "_registry")

    def __init__(self, registry: ToolRegistry, allowed: Iterable[str] | None) -> None:
        self._registry = registry
        self._allowed = None if allowed is None else {SKILL_USE, *(entry.partition("(")[0] for entry in allowed)}

    def permits(self, name: str) -> bool:
        """Return whether a tool of that name may be called."""
        return self._allowed is None or name in self._allowed

    def get(self, name: str) -> Tool | None:
        """Return a tool that may be called, ``None`` where there is none."""
        return self._registry.get(name) if self.permits(name) else None

    def names(self) -> list[str]:
        """Return the names of the tools that may be called, in the order of registration."""
        return [name for name in self._registry.names() if self.permits(name)]

    def definitions(self) -> list[ToolDefinition]:
        """Return how those tools are described."""
        return [definition for definition in self._registry.definitions() if self.permits(definition.name)]

    def execute(self, name: str, arguments: object = None, context: ToolContext | None = None) -> ToolResult:
        """Call a tool and return what came of it; a tool that is not allowed is a forbidden one."""
        return self._registry.execute(name, arguments, context) if self.permits(name) else self.refused(name)

    async def execute_async(
        self, name: str, arguments: object = None, context: ToolContext | None = None
    ) -> ToolResult:
        """Call a tool and return what came of it, as ``execute``."""
        if not self.permits(name):
            return self.refused(name)
        return await self._registry.execute_async(name, arguments, context)

    def refused(self, name: str) -> ToolResult:
        """Return what a call of a tool that is not allowed comes to."""
        allowed = ", ".join(self.names()) or "no tool"
        return ToolResult(name, FORBIDDEN, message=f"forbidden: the active skills allow {allowed}, not {name}")
