"""The plots of the report as SVG, drawn by matplotlib: they go into the page as they are."""

import io
import re
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.util import find_spec
from typing import Any

from results import Document

ABSENT = "matplotlib is not installed, so there are no plots; tools/bench installs it"


_ID = re.compile(r"""(\sid="|href="#|url\(#)([^")]+)""")
_METADATA = re.compile(r"<metadata>.*?</metadata>", re.DOTALL)
_OTHER = re.compile(r"[^a-z0-9]+")


def is_there() -> bool:
    """Return whether plots can be drawn."""
    return find_spec("matplotlib") is not None


def drawn(title: str, draw: Callable[[Any], None]) -> str:
    """Return a plot as SVG; the same figures give the same bytes."""
    matplotlib: Any = import_module("matplotlib")
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "refold", "svg.fonttype": "none", "font.size": 9})
    figures: Any = import_module("matplotlib.figure")
    figure = figures.Figure(figsize=(7.5, 4.2), layout="constrained")
    axes = figure.subplots()
    draw(axes)
    axes.set_title(title)
    axes.grid(visible=True, alpha=0.3)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7)
    file = io.StringIO()
    figure.savefig(file, format="svg", metadata={"Date": None, "Creator": None})
    # Behind the declaration of XML, which has no place inside of a page.
    return _own("<svg" + file.getvalue().partition("<svg")[2], title)


def _own(svg: str, title: str) -> str:
    """Return a plot whose ids are its own, for a page that has several; what it says of itself is left out."""
    own = _OTHER.sub("-", title.lower())
    return _ID.sub(rf"\1{own}-\2", _METADATA.sub("", svg))


def growth(rows: Sequence[Document]) -> str:
    """Return latency against size."""

    def draw(axes: Any) -> None:
        for row in rows:
            sizes, _, wall_ns = zip(*row["points"], strict=True)
            axes.plot(
                sizes, [each / 1_000 for each in wall_ns], marker="o", label=row["job"].removeprefix("growth of ")
            )
        axes.set(xscale="log", yscale="log", xlabel="events, or memories", ylabel="microseconds for one operation")

    return drawn("Latency against size", draw)


def recall(group: str, points: Sequence[tuple[str, float, float]]) -> str:
    """Return recall against latency: names, microseconds, recalls of a group."""

    def draw(axes: Any) -> None:
        for name, microseconds, share in points:
            axes.scatter([microseconds], [share], label=name)
        axes.set(xscale="log", xlabel="microseconds for one search", ylabel="recall of the ten nearest")

    return drawn(f"Recall against latency: {group}", draw)


def policy_of(eviction: Document) -> str:
    """Return the policy of a result, and whether a search counts too."""
    return f"{eviction['policy']} + search" if eviction.get("with_search") else str(eviction["policy"])


def survival(name: str, evictions: Sequence[Document]) -> str:
    """Return what survived against the budget, a line for each policy."""

    def draw(axes: Any) -> None:
        for policy in dict.fromkeys(map(policy_of, evictions)):
            line = [each for each in evictions if policy_of(each) == policy and each["survival"] is not None]
            style = "--" if policy.startswith("clairvoyant") else "-"
            budgets = [each["budget"] for each in line]
            axes.plot(budgets, [100 * each["survival"] for each in line], style, marker=".", label=policy)
        axes.set_xscale("log", base=2)
        axes.set(xlabel="budget in tokens", ylabel="evidence that was there, %")

    return drawn(f"Survival against budget: {name}", draw)


def found(name: str, figures: Sequence[Document], depth: int) -> str:
    """Return the recall of every ranking, with its interval."""

    def draw(axes: Any) -> None:
        lines = sorted(
            (each for each in figures if each["category"] == "all"), key=lambda each: each["recall"][str(depth)]
        )
        values = [100 * each["recall"][str(depth)] for each in lines]
        low = [value - 100 * each["recall_interval"]["low"] for value, each in zip(values, lines, strict=True)]
        high = [100 * each["recall_interval"]["high"] - value for value, each in zip(values, lines, strict=True)]
        errors = [[max(each, 0) for each in side] for side in (low, high)]
        axes.barh([each["system"] for each in lines], values, xerr=errors, color="#5b8db8", ecolor="#333333")
        axes.set(xlabel=f"evidence recall at {depth}, %, with 95 % intervals over the questions")

    return drawn(f"What rankings find: {name}", draw)
