"""The graph of a run as SVG: the layout is computed once for a release, states are added for each page.

More than twelve tasks with the same place in the graph are drawn as one node: a thousand side by side would
be 180,000 pixels wide.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from types import MappingProxyType

from markupsafe import Markup

from nimbus.domain.errors import NimbusError
from nimbus.web.run.layout import NODE_HEIGHT, NODE_WIDTH, Layout, place

MOST_ALIKE = 12
"""Up to this number, tasks with the same place in the graph are drawn one by one."""
MOST_EDGES = 5_000
"""Limit of edges of a folded graph. With more, it is not drawn: it would be megabytes, and unreadable."""
_LONGEST_LABEL = 18
_LAYOUTS_KEPT = 64

Needs = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph without states."""

    layout: Layout
    folds: Mapping[str, Sequence[str]]
    """Tasks of folded nodes, by the first task."""
    edges: Markup
    """All edges, as the attribute `d` of one SVG path."""


class TooManyEdgesError(NimbusError):
    """A graph has too many edges to be drawn."""

    code = "too_many_edges"

    def __init__(self, edges: int) -> None:
        super().__init__(f"This graph has {edges:,} edges, of which at most {MOST_EDGES:,} are drawn.")


class Drawings:
    """A cache of the last drawings. Any thread."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._kept: OrderedDict[object, Drawing] = OrderedDict()

    def of(self, needs: Needs, unfolded: frozenset[str]) -> Drawing:
        """The drawing of a graph; all runs of a release share it.

        Args:
            needs: For each task, the tasks that it needs.
            unfolded: Folded nodes that are drawn task by task; other names are ignored.

        Raises:
            TooManyEdgesError: the graph has too many edges.
        """
        folded = self._kept_or_made(needs, frozenset())
        known = unfolded.intersection(folded.folds)
        return self._kept_or_made(needs, known) if known else folded

    def _kept_or_made(self, needs: Needs, unfolded: frozenset[str]) -> Drawing:
        key = (tuple((name, tuple(of)) for name, of in needs.items()), unfolded)
        with self._lock:
            if key in self._kept:
                self._kept.move_to_end(key)
                return self._kept[key]
        drawing = draw(needs, unfolded)
        with self._lock:
            self._kept[key] = drawing
            while len(self._kept) > _LAYOUTS_KEPT:
                self._kept.popitem(last=False)
        return drawing


def draw(needs: Needs, unfolded: Iterable[str] = ()) -> Drawing:
    """Fold a graph and compute its layout. Raises TooManyEdgesError."""
    folds = {first: names for first, names in _alike(needs).items() if first not in unfolded}
    node = {name: first for first, names in folds.items() for name in names}
    folded: dict[str, dict[str, None]] = {}
    for name, of in needs.items():
        into = folded.setdefault(node.get(name, name), {})
        into.update((node.get(need, need), None) for need in of)
    edges = sum(map(len, folded.values()))
    if edges > MOST_EDGES:
        raise TooManyEdgesError(edges)
    layout = place({name: list(of) for name, of in folded.items()})
    return Drawing(layout, folds, Markup("{}").format("".join(map(_curve, layout.edges))))


def _alike(needs: Needs) -> dict[str, list[str]]:
    """Groups of more than `MOST_ALIKE` tasks with the same place in the graph, by the first task."""
    dependents: dict[str, list[str]] = {name: [] for name in needs}
    for name, of in needs.items():
        for need in of:
            dependents[need].append(name)
    above, below = _places(needs, dependents), _places(dependents, needs)
    groups: dict[tuple[int, int], list[str]] = {}
    for name in needs:
        groups.setdefault((above[name], below[name]), []).append(name)
    return {names[0]: names for names in groups.values() if len(names) > MOST_ALIKE}


def _places(needs: Needs, dependents: Needs) -> dict[str, int]:
    """A number for each node, which is equal for nodes with the same place in the graph."""
    numbers: dict[tuple[int, ...], int] = {}
    places: dict[str, int] = {}
    left = {name: len(of) for name, of in needs.items()}
    ready = [name for name, count in left.items() if not count]
    while ready:
        name = ready.pop()
        key = tuple(sorted(places[need] for need in needs[name]))
        places[name] = numbers.setdefault(key, len(numbers))
        for dependent in dependents[name]:
            left[dependent] -= 1
            if not left[dependent]:
                ready.append(dependent)
    return places


def _curve(points: Sequence[tuple[int, int]]) -> str:
    """An edge: straight at bends, curved between layers."""
    (x, y), *others = points
    parts = [f"M{x} {y}"]
    for number, (to_x, to_y) in enumerate(others):
        if x == to_x:
            parts.append(f"V{to_y}")
        elif number % 2:
            parts.append(f"L{to_x} {to_y}")
        else:
            middle = (y + to_y) // 2
            parts.append(f"C{x} {middle} {to_x} {middle} {to_x} {to_y}")
        x, y = to_x, to_y
    return "".join(parts)


def shortened(name: str, longest: int = _LONGEST_LABEL) -> str:
    """A name that fits a label. The middle is left out, because long names differ at their ends."""
    if len(name) <= longest:
        return name
    tail = longest // 2
    return f"{name[: longest - tail - 1]}…{name[-tail:]}"


_ORDER = ("failed", "running", "waiting", "not_run", "skipped", "succeeded")
_SAID = {"not_run": "not run"}


def _state_of(counts: Mapping[str, int]) -> str:
    """The state that a folded node shows: the one that needs attention first."""
    return next((state for state in _ORDER if counts.get(state)), next(iter(counts)))


_SVG = Markup(
    '<svg id="graph" class="graph" width="{w}" height="{h}" viewBox="0 0 {w} {h}" role="group" '
    'aria-label="Graph of {count} {what}"><path class="edges" d="{edges}"/>{nodes}</svg>'
)
_TITLE = Markup("<title>{}</title>")
_NODE = Markup(
    '<a id="n-{name}" href="{href}" class="{state}" transform="translate({x},{y})">{title}'
    '<rect width="{w}" height="{h}" rx="5"/><use href="#i-{icon}" x="8" y="13" width="14" height="14"/>'
    '<text x="28" y="17">{label}</text><text class="w" x="28" y="32">{said}</text></a>'
)


def svg(
    drawing: Drawing,
    states: Mapping[str, str],
    href: Callable[[str], str],
    unfold: Callable[[str], str],
    why: Mapping[str, str] = MappingProxyType({}),
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
) -> Markup:
    """The graph with the states of a run.

    Args:
        drawing: The drawing of the run's release.
        states: States of the tasks, by name; without a run, their kinds.
        href: Returns the URL of a task's page.
        unfold: Returns the URL of the same page with one folded node drawn task by task.
        why: Why a task is not computing, by name.
        labels: Texts instead of names.
    """
    nodes = []
    for name, (x, y) in drawing.layout.nodes.items():
        alike, called = drawing.folds.get(name), labels.get(name, name)
        if alike is None:
            state = states[name]
            label, said, target = shortened(called), _SAID.get(state, state), href(name)
            title = f"{called}: {why.get(name, said)}"
        else:
            counts = Counter(states[one] for one in alike)
            state = _state_of(counts)
            said = f"{counts[state]} {_SAID.get(state, state)}"
            label, target = f"{len(alike)} alike", unfold(name)
            others = ", ".join(f"{count} {_SAID.get(one, one)}" for one, count in counts.most_common())
            title = f"{len(alike)} alike, such as {called}: {others}"
        place_of = {"x": x, "y": y, "w": NODE_WIDTH, "h": NODE_HEIGHT}
        # The texts give the accessible name; a title has what they leave out.
        hint = "" if label == called and name not in why else _TITLE.format(title)
        words = {"name": name, "href": target, "label": label, "said": said, "title": hint}
        nodes.append(
            _NODE.format(**place_of, **words, state=state, icon=state if state in _ORDER else "task")
        )
    return _SVG.format(
        w=drawing.layout.width,
        h=drawing.layout.height,
        count=len(states),
        what="pipelines and datasets" if labels else "tasks",
        edges=drawing.edges,
        nodes=Markup("").join(nodes),
    )
