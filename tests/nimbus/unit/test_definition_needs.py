"""The graph of needs, compared with a slow way to say the same."""

from __future__ import annotations

import random

import pytest

from nimbus.definition.needs import NeedGraph


def upstream(name: str, needs: dict[str, list[str]]) -> set[str]:
    found: set[str] = set()
    edge = set(needs[name])
    while edge:
        found |= edge
        edge = {need for other in edge & needs.keys() for need in needs[other]} - found
    return found


@pytest.mark.parametrize("seed", range(300))
def test_graph_says_what_a_search_from_each_task_says(seed: int) -> None:
    chance = random.Random(seed)
    names = [f"t{number}" for number in range(chance.randint(1, 9))]
    density = chance.random()
    needs = {
        name: [*(need for need in names if chance.random() < density * 0.5), *["unknown"] * (seed % 2)]
        for name in names
    }
    graph = NeedGraph(needs)
    without_self = {name: [need for need in needed if need != name] for name, needed in needs.items()}
    before = {name: upstream(name, without_self) for name in names}

    in_cycles = {name for name in names if name in before[name]}
    told = [name for cycle in graph.cycles for name in cycle]
    assert len(told) == len(set(told)), "no task is in two cycles that are told"
    for cycle in graph.cycles:
        assert all(need in needs[name] for name, need in zip(cycle, [*cycle[1:], cycle[0]], strict=True))
    for name in in_cycles:
        together = {other for other in before[name] if name in before.get(other, set())}
        assert together & set(told), "each group of tasks that need each other is told"
    for name in names:
        hidden = bool((before[name] | {name}) & in_cycles)
        for other in names:
            assert graph.may_come_later(name, other) == (not hidden and other not in before[name])
