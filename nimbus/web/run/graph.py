"""The graph of a run as SVG: the layout is computed once for a release, states are added for each page.

More than twelve tasks with the same place in the graph are drawn as one node: a thousand side by side would
be 180,000 pixels wide.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from types import MappingProxyType

from markupsafe import Markup

from nimbus.domain.errors import NimbusError
from nimbus.domain.wording import natural
from nimbus.web.run.layout import NODE_HEIGHT, GraphLayout, place

MAX_ALIKE = 12
"""Up to this number, tasks with the same place in the graph are drawn one by one."""
MAX_EDGES = 5_000
"""Limit of edges of a folded graph. With more, it is not drawn: it would be megabytes, and unreadable."""
_LONGEST_LABEL = 20
_MIN_WIDTH, _MAX_WIDTH, _LETTER, _ICON = 120, 208, 7.6, 38
"""Widths of a node, of a letter of its label, and of what stands beside the label."""
_DRAWINGS_KEPT = 64

Needs = Mapping[str, Sequence[str]]


@dataclass(frozen=True, slots=True)
class Drawing:
    """A graph without states."""

    layout: GraphLayout
    folds: Mapping[str, Sequence[str]]
    """Tasks of folded nodes, by the first task."""
    edges: Mapping[tuple[str, str], str]
    """Parts of the attribute `d` of an SVG path; the edges to a node follow one another."""
    needs: Mapping[str, str]
    """For scripts: the numbers of the nodes that a node needs."""
    widths: Mapping[str, int]
    names: Mapping[str, str]
    """Name of the node that stands for a task, if it is another one."""


class TooManyEdgesError(NimbusError):
    """A graph has too many edges to be drawn."""

    code = "too_many_edges"

    def __init__(self, edges: int) -> None:
        super().__init__(f"This graph has {edges:,} edges, of which at most {MAX_EDGES:,} are drawn.")
        self.edges = edges


def kept_drawing(needs: Needs, unfold: Iterable[str] = ()) -> Drawing:
    """The drawing of a graph; all runs of a release share it. Raises TooManyEdgesError.

    `unfold`: folded nodes that are drawn task by task; other names are ignored.
    """
    graph = tuple((name, tuple(of)) for name, of in needs.items())
    drawn = _drawn(graph, frozenset())
    if isinstance(drawn, Drawing) and (known := drawn.folds.keys() & {*unfold}):
        drawn = _drawn(graph, frozenset(known))
    if isinstance(drawn, int):
        raise TooManyEdgesError(drawn)
    return drawn


@lru_cache(_DRAWINGS_KEPT)
def _drawn(graph: tuple[tuple[str, tuple[str, ...]], ...], unfolded: frozenset[str]) -> Drawing | int:
    """The drawing, or the number of its edges if it has too many."""
    try:
        return draw(dict(graph), unfolded)
    except TooManyEdgesError as exc:
        return exc.edges


def draw(needs: Needs, unfolded: Iterable[str] = ()) -> Drawing:
    """Fold a graph and compute its layout. Raises TooManyEdgesError."""
    folds = {first: names for first, names in _alike(needs).items() if first not in unfolded}
    node = {name: first for first, names in folds.items() for name in names}
    folded: dict[str, dict[str, None]] = {}
    for name, of in needs.items():
        into = folded.setdefault(node.get(name, name), {})
        into.update((node.get(need, need), None) for need in of)
    count = sum(map(len, folded.values()))
    if count > MAX_EDGES:
        raise TooManyEdgesError(count)
    labels = {name: group_label(folds[name]) if name in folds else shortened(name) for name in folded}
    widths = {
        name: min(max(_ICON + int(_LETTER * len(label)), _MIN_WIDTH), _MAX_WIDTH)
        for name, label in labels.items()
    }
    layout = place({name: list(of) for name, of in folded.items()}, widths)
    number = {name: at for at, name in enumerate(folded)}
    numbers = {name: " ".join(str(number[need]) for need in of) for name, of in folded.items()}
    edges = {ends: _curve(points) for ends, points in layout.edges.items()}
    return Drawing(layout, folds, edges, numbers, widths, node)


def _alike(needs: Needs) -> dict[str, list[str]]:
    """Groups of more than `MAX_ALIKE` tasks with the same place in the graph, by the first task."""
    dependents: dict[str, list[str]] = {name: [] for name in needs}
    for name, of in needs.items():
        for need in of:
            dependents[need].append(name)
    before, after = _places(needs, dependents), _places(dependents, needs)
    groups: dict[tuple[int, int], list[str]] = {}
    for name in needs:
        groups.setdefault((before[name], after[name]), []).append(name)
    return {names[0]: sorted(names, key=natural) for names in groups.values() if len(names) > MAX_ALIKE}


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
    """An edge: straight at bends, curved between layers, with an arrow at its end."""
    (x, y), *others = points
    parts = [f"M{x} {y}"]
    for to_x, to_y in others:
        middle = (x + to_x) // 2
        parts.append(f"H{to_x}" if y == to_y else f"C{middle} {y} {middle} {to_y} {to_x} {to_y}")
        x, y = to_x, to_y
    return "".join((*parts, "m-6-4 6 4-6 4"))


def group_label(names: Sequence[str]) -> str:
    """The name of a folded node: its first and its last task."""
    return f"{shortened(names[0], 10)} … {shortened(names[-1], 10)}"


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
    'aria-label="Graph of {count} {what}"><path class="edges" d="{edges}"/><path class="edges critical" '
    'd="{critical}"/><path id="near" class="edges"/>{nodes}</svg>'
)
_NODE = Markup(
    '<a id="n-{name}" href="{href}" class="{state}{marks}" transform="translate({x},{y})"{needs}>'
    '<title>{title}</title>{behind}<rect width="{w}" height="{h}" rx="5"/>'
    '<use href="#i-{icon}" x="8" y="13" width="14" height="14"/>'
    '<text x="28" y="17">{label}</text><text class="w" x="28" y="32">{said}</text></a>'
)
_BEHIND = Markup('<rect x="4" y="4" width="{}" height="{}" rx="5"/>')
_NEEDS = Markup(' data-needs="{}"')


def svg(
    drawing: Drawing,
    states: Mapping[str, str],
    href: Callable[[str], str],
    unfold: Callable[[str], str],
    why: Mapping[str, str] = MappingProxyType({}),
    *,
    labels: Mapping[str, str] = MappingProxyType({}),
    said: Mapping[str, str] = MappingProxyType({}),
    path: Sequence[str] = (),
    found: Collection[str] = (),
) -> Markup:
    """The graph with the states of a run; without a run, `states` are kinds of tasks.

    `unfold`: returns the URL of the same page with one folded node drawn task by task; `labels`: texts
    instead of names; `said`: the second line of nodes, else the state; `found`: tasks that are marked.
    """
    nodes = []
    critical = dict.fromkeys(drawing.names.get(name, name) for name in path)
    marked = {drawing.names.get(name, name) for name in found}
    for name, (x, y) in drawing.layout.nodes.items():
        alike, called, behind = drawing.folds.get(name), labels.get(name, name), Markup("")
        if alike is None:
            state = states[name]
            label, target = shortened(called), href(name)
            second: str = said.get(name, _SAID.get(state, state))
            exact = why.get(name, "" if second == state else f"{_SAID.get(state, state)} {second}")
            title = f"{called}: {exact or second}"
        else:
            counts = Counter(states[name] for name in alike)
            state = _state_of(counts)
            second = f"{counts[state]} of {len(alike)} {_SAID.get(state, state)}"
            label, target = group_label(alike), unfold(name)
            others = ", ".join(f"{count} {_SAID.get(state, state)}" for state, count in counts.most_common())
            title = f"{len(alike)} alike, {alike[0]} to {alike[-1]}: {others}"
            behind = _BEHIND.format(drawing.widths[name], NODE_HEIGHT)
        marks = f"{' critical' * (name in critical)}{' hit' * (name in marked)}"
        needs = _NEEDS.format(drawing.needs[name]) if drawing.needs[name] else ""
        texts = {"name": name, "href": target, "title": title, "label": label, "said": second}
        shape = {
            "x": x,
            "y": y,
            "w": drawing.widths[name],
            "h": NODE_HEIGHT,
            "needs": needs,
            "behind": behind,
            "marks": marks,
        }
        icon = state if state in _ORDER else "task"
        nodes.append(_NODE.format(**texts, **shape, state=state, icon=icon))
    return _SVG.format(
        w=drawing.layout.width,
        h=drawing.layout.height,
        count=len(states),
        what="pipelines and datasets" if labels else "tasks",
        edges="".join(drawing.edges.values()),
        critical="".join(drawing.edges.get(ends, "") for ends in pairwise(critical)),
        nodes=Markup("").join(nodes),
    )
