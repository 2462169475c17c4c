"""Paths of files as a model gives them: one form for each place, and nothing that leads out of ``/memories``.

Nothing of it touches a disk. What other programs might take for a way out is refused even though it is none here: a
mirror or an export may bring these names to a file system one day.
"""

from refold import checks
from refold.errors import InvalidInput, LimitExceeded
from refold.views.files import PATH_BYTES_MAX, PATH_DEPTH_MAX, PATH_NAME_BYTES_MAX, ROOT, SUSPICIOUS


def placed(path: object, what: str = "path") -> str:
    """Return a path in its one form: beginning with the root, without ``.``, ``..``, empty names and a last slash.

    Raises ``InvalidInput`` for a path that does not begin with the root, that leads out of it, or that holds
    backslashes, control characters or encoded dots and slashes; ``LimitExceeded`` for one that is too long or deep.
    """
    given = checks.text(path, what, PATH_BYTES_MAX, "PATH_BYTES_MAX")
    if given != ROOT and not given.startswith(f"{ROOT}/"):
        message = f"Path must start with {ROOT}, got: {given}"
        raise InvalidInput(message)
    found = SUSPICIOUS.search(given)
    if found is not None:
        checks.invalid(f"{what} {checks.shown(given)} holds {found.group()!r}; use plain names between slashes")
    names = _walked(given)
    if len(names) > PATH_DEPTH_MAX:
        message = f"{what} is {len(names)} names deep, over PATH_DEPTH_MAX = {PATH_DEPTH_MAX}; use fewer directories"
        raise LimitExceeded(message)
    for name in names:
        checks.text(name, f"a name in {what}", PATH_NAME_BYTES_MAX, "PATH_NAME_BYTES_MAX")
    return "/".join((ROOT, *names))


def _walked(path: str) -> list[str]:
    """Return the names below the root that a path leads to; it may leave the root on its way, but not end outside."""
    names: list[str] = []
    for name in path.split("/"):
        if name == ".." and names:
            names.pop()
        elif name == "..":
            raise _escaping(path)
        elif name not in {"", "."}:
            names.append(name)
    if names[:1] != [ROOT[1:]]:
        raise _escaping(path)
    return names[1:]


def _escaping(path: str) -> InvalidInput:
    return InvalidInput(f"Path {path} would escape {ROOT} directory")
