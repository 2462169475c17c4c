"""The specification of Agent Skills, strictly: what a validator says of a skill file, word for word where one exists.

The checks and their texts are those of ``skills-ref``, the reference of the specification; where that is wrong (three
hyphens inside a value, a byte order mark, an empty first line) the specification is followed. Pure.
"""

import unicodedata
from typing import Any, Final

from refold.store.limits import SKILL_FILE_BYTES_MAX
from refold.tools.skills import frontmatter
from refold.tools.skills.frontmatter import BlockError
from refold.tools.skills.limits import (
    SKILL_COMPATIBILITY_CHARS_MAX,
    SKILL_DESCRIPTION_CHARS_MAX,
    SKILL_NAME_CHARS_MAX,
)

ALLOWED_KEYS: Final = ("allowed-tools", "compatibility", "description", "license", "metadata", "name")


def validate_skill(content: bytes, directory: str | None = None) -> tuple[str, ...]:
    r"""Return what keeps a skill file from being valid, nothing if it is; ``directory`` is the name of its directory.

    >>> validate_skill(b"---\nname: greet\ndescription: Say hello.\n---\n", "greet")
    ()
    >>> validate_skill(b"---\nname: greet\ndescription: Say hello.\n---\n", "other")
    ("Directory name 'other' must match skill name 'greet'",)
    """
    if len(content) > SKILL_FILE_BYTES_MAX:
        return (f"The file has {len(content):,} bytes, over SKILL_FILE_BYTES_MAX = {SKILL_FILE_BYTES_MAX:,}",)
    try:
        cut = frontmatter.split(content.decode())
    except UnicodeDecodeError as error:
        return (f"The file is not UTF-8 (byte {error.start})",)
    if cut.block is None:
        return (cut.problem,)
    try:
        block = frontmatter.read(cut.block)
    except BlockError as error:
        return (error.reason,)
    if block.oddities:
        return tuple(f"Invalid YAML in frontmatter: {reason}" for _, reason in block.oddities)
    return validate_front(block.values, directory)


def validate_front(front: dict[str, Any], directory: str | None = None) -> tuple[str, ...]:
    """Return what keeps a frontmatter from being valid, given as values by key."""
    errors: list[str] = []
    surplus = sorted(front.keys() - set(ALLOWED_KEYS))
    if surplus:
        named = ", ".join(surplus)
        errors.append(f"Unexpected fields in frontmatter: {named}. Only {list(ALLOWED_KEYS)} are allowed.")
    if "name" in front:
        errors += name_errors(front["name"], directory)
    else:
        errors.append("Missing required field in frontmatter: name")
    if "description" in front:
        errors += _description_errors(front["description"])
    else:
        errors.append("Missing required field in frontmatter: description")
    if "compatibility" in front:
        errors += _compatibility_errors(front["compatibility"])
    return tuple(errors)


def name_errors(given: object, directory: str | None = None) -> list[str]:
    """Return what is wrong with a name: letters and digits of any script in lower case, and single hyphens between."""
    if not isinstance(given, str) or not given.strip():
        return ["Field 'name' must be a non-empty string"]
    name = unicodedata.normalize("NFKC", given.strip())
    limit = f"{SKILL_NAME_CHARS_MAX} character limit ({len(name)} chars)"
    is_plain = all(character.isalnum() or character == "-" for character in name)
    plainly = "Only letters, digits, and hyphens are allowed."
    found = {
        f"Skill name '{name}' exceeds {limit}": len(name) > SKILL_NAME_CHARS_MAX,
        f"Skill name '{name}' must be lowercase": name != name.lower(),
        "Skill name cannot start or end with a hyphen": name.startswith("-") or name.endswith("-"),
        "Skill name cannot contain consecutive hyphens": "--" in name,
        f"Skill name '{name}' contains invalid characters. {plainly}": not is_plain,
        f"Directory name '{directory}' must match skill name '{name}'": (
            directory is not None and unicodedata.normalize("NFKC", directory) != name
        ),
    }
    return [error for error, is_wrong in found.items() if is_wrong]


def _description_errors(given: object) -> list[str]:
    if not isinstance(given, str) or not given.strip():
        return ["Field 'description' must be a non-empty string"]
    if len(given) > SKILL_DESCRIPTION_CHARS_MAX:
        return [f"Description exceeds {SKILL_DESCRIPTION_CHARS_MAX} character limit ({len(given)} chars)"]
    return []


def _compatibility_errors(given: object) -> list[str]:
    if not isinstance(given, str):
        return ["Field 'compatibility' must be a string"]
    if len(given) > SKILL_COMPATIBILITY_CHARS_MAX:
        return [f"Compatibility exceeds {SKILL_COMPATIBILITY_CHARS_MAX} character limit ({len(given)} chars)"]
    return []
