"""Writing a skill as a file that the specification of Agent Skills takes. Pure."""

from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from refold import checks
from refold.errors import InvalidInput, LimitExceeded
from refold.store.limits import SKILL_FILE_BYTES_MAX
from refold.tools.skills.frontmatter import quoted, scalar
from refold.tools.skills.limits import SKILL_DESCRIPTION_CHARS_MAX
from refold.tools.skills.validating import name_errors, validate_skill


def render_skill(
    name: str,
    description: str,
    body: str,
    *,
    tags: Sequence[str] = (),
    version: str | None = None,
    license: str | None = None,  # noqa: A002 - the word of the file
    compatibility: str | None = None,
    allowed_tools: Sequence[str] = (),
    metadata: Mapping[str, str] | None = None,
) -> str:
    r"""Return the text of a valid SKILL.md; version and tags, of which the specification knows nothing, go to metadata.

    The body stands there as it is. Raises ``InvalidInput`` naming what the specification refuses.

    >>> print(render_skill("greet", "Say hello.", "Wave.\n", tags=["manners"]), end="")
    ---
    name: greet
    description: "Say hello."
    metadata:
      tags: "manners"
    ---
    Wave.
    """
    check_name(name)
    lines = [f"name: {scalar(name)}", f"description: {quoted(checks.text(description, 'description').strip())}"]
    for key, value in (("license", license), ("compatibility", compatibility)):
        if value:
            lines.append(f"{key}: {quoted(checks.text(value, key))}")
    if allowed_tools:
        lines.append(f"allowed-tools: {quoted(' '.join(_texts(allowed_tools, 'allowed_tools')))}")
    extra = _mapping(metadata) | ({"version": checks.text(version, "version")} if version else {})
    if tags:
        extra["tags"] = ", ".join(_texts(tags, "tags"))
    if extra:
        lines.append("metadata:")
        lines += [f"  {scalar(key)}: {quoted(extra[key])}" for key in extra]
    text = "\n".join(["---", *lines, "---", checks.text(body, "body")])
    _check(text, name)
    return text


def check_name(name: object) -> str:
    """Return a name that a skill may be written under; it is a directory's too, so nothing else can stand in it."""
    errors = name_errors(checks.text(name, "name"))
    if errors:
        message = f"{errors[0]}; give a name such as 'release-notes'"
        raise InvalidInput(message)
    return str(name)


def trimmed(description: str) -> str:
    """Return a description cut to what the specification allows."""
    if len(description) <= SKILL_DESCRIPTION_CHARS_MAX:
        return description
    return description[: SKILL_DESCRIPTION_CHARS_MAX - 3].rstrip() + "..."


def listed(given: Iterable[str], what: str) -> list[str]:
    """Return what was given as a list; raises ``InvalidInput`` for one text, which would be a list of its letters."""
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):  # pyright: ignore[reportUnnecessaryIsInstance]
        message = f"{what} must be a list of str, not {type(given).__name__} ({checks.shown(given)})"
        raise InvalidInput(message)
    return list(given)


def _mapping(given: object) -> dict[str, str]:
    if given is not None and not isinstance(given, Mapping):
        message = f"metadata must be a dict of str, not {type(given).__name__} ({checks.shown(given)})"
        raise InvalidInput(message)
    held = cast("Mapping[object, object]", given or {}).items()
    return {checks.text(key, "a key of metadata"): checks.text(value, "a value of metadata") for key, value in held}


def _texts(given: Iterable[str], what: str) -> list[str]:
    return [checks.text(text, f"an item of {what}").strip() for text in listed(given, what)]


def _check(text: str, name: str) -> None:
    content = text.encode()
    if len(content) > SKILL_FILE_BYTES_MAX:
        message = (
            f"the skill is {len(content):,} bytes, over SKILL_FILE_BYTES_MAX = {SKILL_FILE_BYTES_MAX:,}; shorten it"
        )
        raise LimitExceeded(message)
    errors = validate_skill(content, name)
    if errors:
        message = f"{errors[0]}; a skill that breaks the specification is not written"
        raise InvalidInput(message)
