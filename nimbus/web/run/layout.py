"""Places the nodes of a directed acyclic graph in layers, left to right. Pure: equal graphs, equal layouts.

The method is Sugiyama's: layers by longest path; edges across several layers become chains of bends; sweeps
by barycentres with swaps of neighbours order each layer; least squares give the positions within a layer.

Source: Sugiyama, Tagawa, Toda 1981; Gansner et al. 1993; de Leeuw et al. 2009.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

NODE_HEIGHT = 40
_MIN_GAP, _MAX_GAP, _USED_WIDTH = 34, 100, 1320
"""Gaps between layers are as wide as the page allows, within limits."""
_GAP, _MARGIN = 14, 8
_FEW_ROOTS = 8
_SWEEPS, _SWAPS, _LARGEST_TO_SWAP = 8, 3, 40_000
_BENDS_PER_NODE = 2
"""With more bends, edges are straight: single edges cannot be followed in such a graph."""
_BEND_GAP = 10

Node = str | tuple[str, str, int]
"""A node's name, or a bend: both ends of its edge, and its layer."""
Point = tuple[int, int]


@dataclass(frozen=True, slots=True)
class GraphLayout:
    """Positions of nodes and edges, in pixels."""

    width: int
    height: int
    nodes: Mapping[str, Point]
    """Upper left corners."""
    edges: Mapping[tuple[str, str], Sequence[Point]]
    """Points of each edge: from the right side of a node, through its bends, to the dependent node."""


def place(needs: Mapping[str, Sequence[str]], widths: Mapping[str, int]) -> GraphLayout:
    """Compute the layout of a graph without cycles. `needs`: for each node, those that it needs."""
    if not needs:
        return GraphLayout(0, 0, {}, {})
    depth = _depths(needs)
    chains = _chains(needs, depth)
    layers: list[list[Node]] = [[] for _ in range(max(depth.values()) + 1)]
    for name in needs:
        layers[depth[name]].append(name)
    for chain in chains.values():
        for bend in chain[1:-1]:
            if not isinstance(bend, str):
                layers[bend[2]].append(bend)
    earlier: dict[Node, list[Node]] = {node: [] for layer in layers for node in layer}
    later: dict[Node, list[Node]] = {node: [] for layer in layers for node in layer}
    for chain in chains.values():
        for first, other in pairwise(chain):
            earlier[other].append(first)
            later[first].append(other)
    _order(layers, earlier, later)
    middles = _middles(layers, earlier, later)
    return _layout(layers, chains, middles, widths)


def _depths(needs: Mapping[str, Sequence[str]]) -> dict[str, int]:
    """Layer of each node, by its longest path. Not recursive, because a chain may have any length."""
    depth: dict[str, int] = {}
    for start in needs:
        stack = [start]
        while stack:
            name = stack[-1]
            missing = [need for need in needs[name] if need not in depth] if name not in depth else []
            if missing:
                stack += missing
                continue
            depth.setdefault(name, max((1 + depth[need] for need in needs[name]), default=0))
            stack.pop()
    roots = sum(not of for of in needs.values())
    others = Counter(depth[name] for name, of in needs.items() if of)
    if roots <= max((_FEW_ROOTS, *others.values())):
        return depth
    # Each of many roots is placed just before its dependents, so that the first layer does not get them all.
    first_use: dict[str, int] = {}
    for name, of in needs.items():
        for need in of:
            first_use[need] = min(depth[name], first_use.get(need, depth[name]))
    return {name: depth[name] if needs[name] else first_use.get(name, 1) - 1 for name in needs}


def _chains(
    needs: Mapping[str, Sequence[str]], depth: Mapping[str, int]
) -> dict[tuple[str, str], list[Node]]:
    """Each edge as a chain of nodes in neighbouring layers."""
    edges = [(need, name) for name, of in needs.items() for need in dict.fromkeys(of)]
    bends = sum(depth[name] - depth[need] - 1 for need, name in edges)
    if bends > _BENDS_PER_NODE * len(needs):
        return {(need, name): [need, name] for need, name in edges}
    return {
        (need, name): [need, *((need, name, at) for at in range(depth[need] + 1, depth[name])), name]
        for need, name in edges
    }


def _order(
    layers: list[list[Node]], earlier: Mapping[Node, list[Node]], later: Mapping[Node, list[Node]]
) -> None:
    """Order each layer so that few edges cross."""
    at = {node: float(place) for layer in layers for place, node in enumerate(layer)}
    for sweep in range(_SWEEPS):
        onward = sweep % 2 == 0
        for layer in layers if onward else reversed(layers):
            beside = earlier if onward else later
            middle = {node: _mean([at[other] for other in beside[node]], at[node]) for node in layer}
            layer.sort(key=middle.__getitem__)
            at.update((node, float(place)) for place, node in enumerate(layer))
    for _ in range(_SWAPS if sum(map(len, earlier.values())) < _LARGEST_TO_SWAP else 0):
        swapped = sum(_swap(layer, at, earlier, later) for layer in layers)
        if not swapped:
            break


def _mean(values: Sequence[float], otherwise: float) -> float:
    return sum(values) / len(values) if values else otherwise


def _swap(
    layer: list[Node],
    at: dict[Node, float],
    earlier: Mapping[Node, list[Node]],
    later: Mapping[Node, list[Node]],
) -> bool:
    """Swap neighbours in a layer if this leaves fewer crossings. True: some were swapped."""
    swapped = False
    for place in range(len(layer) - 1):
        left, right = layer[place], layer[place + 1]
        now, then = 0, 0
        for beside in (earlier, later):
            lefts, rights = ([at[other] for other in beside[node]] for node in (left, right))
            now += _crossings(lefts, rights)
            then += _crossings(rights, lefts)
        if then < now:
            layer[place], layer[place + 1] = right, left
            at[right], at[left] = float(place), float(place + 1)
            swapped = True
    return swapped


def _crossings(lefts: Sequence[float], rights: Sequence[float]) -> int:
    """Number of crossing pairs of edges of a node and its right neighbour."""
    ordered = sorted(rights)
    return sum(bisect_left(ordered, left) for left in lefts)


def _middles(
    layers: Sequence[Sequence[Node]], earlier: Mapping[Node, list[Node]], later: Mapping[Node, list[Node]]
) -> dict[Node, float]:
    """Vertical middle of each node: near its neighbours in other layers, with gaps within its layer."""
    at: dict[Node, float] = {}
    for layer in layers:
        at.update(zip(layer, _apart(layer, [0.0] * len(layer)), strict=True))
    both = {node: [*earlier[node], *later[node]] for node in earlier}
    for sweep, beside in enumerate([earlier, later] * (_SWEEPS // 2) + [both] * 2):
        for layer in layers if sweep % 2 == 0 else reversed(layers):
            wanted = [_mean([at[other] for other in beside[node]], at[node]) for node in layer]
            at.update(zip(layer, _apart(layer, wanted), strict=True))
    return at


def _height(node: Node) -> int:
    return NODE_HEIGHT if isinstance(node, str) else 0


def _apart(layer: Sequence[Node], wanted: Sequence[float]) -> list[float]:
    """Positions with gaps, as near as possible to `wanted` by least squares."""
    offsets, offset = [], 0.0
    for place, node in enumerate(layer):
        if place:
            before = layer[place - 1]
            gap = _GAP if isinstance(before, str) or isinstance(node, str) else _BEND_GAP
            offset += (_height(before) + _height(node)) / 2 + gap
        offsets.append(offset)
    blocks: list[tuple[float, int]] = []
    for value in (want - offset for want, offset in zip(wanted, offsets, strict=True)):
        total, size = value, 1
        while blocks and blocks[-1][0] / blocks[-1][1] > total / size:
            earlier, more = blocks.pop()
            total, size = total + earlier, size + more
        blocks.append((total, size))
    flat = [total / size for total, size in blocks for _ in range(size)]
    return [value + offset for value, offset in zip(flat, offsets, strict=True)]


def _layout(
    layers: Sequence[Sequence[Node]],
    chains: Mapping[tuple[str, str], Sequence[Node]],
    middles: Mapping[Node, float],
    widths: Mapping[str, int],
) -> GraphLayout:
    """Nodes and bends of a layer begin at the same x; it is as wide as its widest node."""
    top = min(middle - _height(node) / 2 for node, middle in middles.items()) - _MARGIN
    bottom = max(middle + _height(node) / 2 for node, middle in middles.items()) + _MARGIN
    wide = [max((widths[node] for node in layer if isinstance(node, str)), default=0) for layer in layers]
    free = (_USED_WIDTH - 2 * _MARGIN - sum(wide)) // max(len(layers) - 1, 1)
    gap, x, left = min(max(free, _MIN_GAP), _MAX_GAP), _MARGIN, dict[Node, tuple[int, int]]()
    for layer, width in zip(layers, wide, strict=True):
        left.update((node, (x, x + (widths[node] if isinstance(node, str) else width))) for node in layer)
        x += width + gap

    def y(node: Node) -> int:
        return round(middles[node] - top)

    edges = {}
    for (need, name), chain in chains.items():
        bends = [(at, y(bend)) for bend in chain[1:-1] for at in left[bend]]
        edges[need, name] = [(left[need][1], y(need)), *bends, (left[name][0], y(name))]
    nodes = {name: (left[name][0], y(name) - NODE_HEIGHT // 2) for name in widths}
    return GraphLayout(x - gap + _MARGIN, round(bottom - top), nodes, edges)
