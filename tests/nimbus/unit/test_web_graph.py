"""Layout, folds and critical path of the graphs that pages show."""

from __future__ import annotations

import itertools
import random
import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest

from nimbus.api.explain import task as explain_task
from nimbus.api.explain.task import ClusterFacts
from nimbus.api.runs.models import run_model
from nimbus.api.services import HistoryServers
from nimbus.domain.ids import TaskName, WorkerId
from nimbus.domain.pipelines.pipeline import TaskKind, TaskSpec
from nimbus.domain.runs.run import Run, RunState
from nimbus.domain.runs.task_run import Attempt, Outcome, TaskRun, TaskState
from nimbus.domain.runs.tasks import Tasks
from nimbus.web.run import graph
from nimbus.web.run.gantt import WaitBar, critical_path, waits
from nimbus.web.run.gantt import svg as gantt_svg
from nimbus.web.run.graph import MAX_ALIKE, MAX_EDGES, TooManyEdgesError, draw, kept_drawing, svg
from nimbus.web.run.layout import NODE_HEIGHT, GraphLayout, place
from nimbus.web.run.page import node_text
from tests.nimbus.integration.conftest import World
from tests.nimbus.integration.web_samples import fan

_WIDTH = 150


def _placed(needs: dict[str, list[str]]) -> GraphLayout:
    return place(needs, dict.fromkeys(needs, _WIDTH))


def _random_graph(count: int, seed: int) -> dict[str, list[str]]:
    dice, names = random.Random(seed), [f"t{number}" for number in range(count)]
    return {
        name: dice.sample(names[max(0, n - 12) : n], min(n, dice.choice((0, 1, 2, 3))))
        for n, name in enumerate(names)
    }


def _crossings(layout: GraphLayout) -> int:
    """Number of pairs of edges that cross as straight lines between two layers."""
    lines = [line for edge in layout.edges.values() for line in itertools.pairwise(edge)]
    return sum(
        one[0][0] == other[0][0] and (one[0][1] - other[0][1]) * (one[1][1] - other[1][1]) < 0
        for one, other in itertools.combinations(lines, 2)
    )


@pytest.mark.parametrize("seed", range(20))
def test_layout_lays_no_node_on_another_and_each_right_of_what_it_needs(seed: int) -> None:
    needs = _random_graph(40, seed)

    layout = _placed(needs)

    for (x, y), (other_x, other_y) in itertools.combinations(layout.nodes.values(), 2):
        assert x != other_x or abs(y - other_y) >= NODE_HEIGHT
    for name, of in needs.items():
        assert all(layout.nodes[need][0] + _WIDTH < layout.nodes[name][0] for need in of)
    assert all(0 <= x <= layout.width - _WIDTH for x, _ in layout.nodes.values())
    assert all(0 <= y <= layout.height - NODE_HEIGHT for _, y in layout.nodes.values())
    assert len(layout.edges) == sum(map(len, needs.values()))


def test_layout_uncrosses_what_need_not_cross() -> None:
    needs: dict[str, list[str]] = {"a": [], "b": [], "c": ["b"], "d": ["a"], "e": ["c"], "f": ["d"]}

    assert _crossings(_placed(needs)) == 0


def test_layout_of_nothing_and_of_a_long_chain_is_made() -> None:
    chain = {f"t{n}": [f"t{n - 1}"] if n else [] for n in range(3000)}

    assert _placed({}).nodes == {}
    assert _placed(chain).height < 2 * NODE_HEIGHT


def test_layout_has_roots_at_one_level_and_is_symmetric() -> None:
    needs: dict[str, list[str]] = {"a": [], "b": ["a"], "late": [], "c": ["b", "late"], "d": ["b"]}
    needs |= {"e": ["c", "d"]}
    nodes = _placed(needs).nodes

    assert nodes["a"][0] == nodes["late"][0] < nodes["b"][0]
    assert nodes["e"][1] == pytest.approx((nodes["c"][1] + nodes["d"][1]) / 2, abs=2)
    many: dict[str, list[str]] = {f"r{n}": [] for n in range(9)}
    spread = _placed(many | {f"s{n}": [f"r{n}", f"s{n - 1}"] if n else ["r0"] for n in range(9)}).nodes
    assert len({spread[name][0] for name in many}) == 9


def test_layout_uses_the_width_of_a_page() -> None:
    chain = {f"t{n}": [f"t{n - 1}"] if n else [] for n in range(7)}

    assert 1200 < _placed(chain).width <= 1320


def _fan(count: int) -> dict[str, list[str]]:
    parts = [f"p{number}" for number in range(count)]
    return {"split": [], **{part: ["split"] for part in parts}, "join": parts}


def test_graph_folds_more_than_twelve_alike_into_one_node() -> None:
    assert not draw(_fan(MAX_ALIKE)).folds
    drawing = draw(_fan(1000))

    assert set(drawing.layout.nodes) == {"split", "p0", "join"}
    assert len(drawing.folds["p0"]) == 1000


def test_graph_folds_chains_that_run_side_by_side() -> None:
    chains = {"join": [f"b{n}" for n in range(50)]}
    chains |= {f"a{n}": [] for n in range(50)} | {f"b{n}": [f"a{n}"] for n in range(50)}

    assert set(draw(chains).layout.nodes) == {"a0", "b0", "join"}


def test_group_is_named_by_its_first_and_last_task_in_their_natural_order() -> None:
    drawn = svg(draw(_fan(30)), dict.fromkeys(_fan(30), "waiting") | {"p7": "failed"}, str, str)

    assert drawn.count(">p0 … p29</text>") == 1
    assert "<title>30 alike, p0 to p29: 29 waiting, 1 failed</title>" in drawn
    assert ">1 of 30 failed</text>" in drawn


def test_graph_says_what_each_node_needs_in_the_order_of_its_edges() -> None:
    needs: dict[str, list[str]] = {"a": [], "b": [], "c": ["b", "a"]}
    drawing = draw(needs)

    assert list(drawing.edges) == [("b", "c"), ("a", "c")]
    assert 'data-needs="1 0"' in svg(drawing, dict.fromkeys(needs, "waiting"), str, str)


def test_graph_marks_the_critical_path_and_what_is_searched_through_groups() -> None:
    states = dict.fromkeys(_fan(30), "succeeded")
    drawn = svg(draw(_fan(30)), states, str, str, path=["split", "p9", "join"], found=["p28"])

    assert re.findall(r'<a id="n-(\w+)" \S+ class="succeeded( critical)?( hit)?"', drawn) == [
        ("split", " critical", ""),
        ("p0", " critical", " hit"),
        ("join", " critical", ""),
    ]
    assert drawn.partition('class="edges critical" d="')[2].partition('"')[0].count("M") == 2


def test_graph_draws_a_fold_task_by_task_when_asked() -> None:
    assert len(draw(_fan(20), {"p0"}).layout.nodes) == 22


def test_drawings_are_kept_by_graph() -> None:
    assert kept_drawing(_fan(20)) is kept_drawing(_fan(20))
    assert kept_drawing(_fan(20)) is not kept_drawing(_fan(21))
    assert kept_drawing(_fan(20), {"p0"}) is not kept_drawing(_fan(20))


def test_drawings_are_not_made_again_for_folds_that_are_none() -> None:
    assert kept_drawing(_fan(20), {"x", "p1"}) is kept_drawing(_fan(20))


def test_tasks_of_a_long_chain_are_ordered_by_depth() -> None:
    names = [TaskName(f"t{number}") for number in range(3000)]
    specs = [
        TaskSpec(name=name, kind=TaskKind.PYTHON, script="t.py", needs=tuple(names[at - 1 : at]))
        for at, name in enumerate(names)
    ]
    run = World().new_run("r", tasks=Tasks(TaskRun(spec=spec) for spec in specs))

    assert [task.spec.name for task in run.tasks.by_depth()] == names


def test_tasks_of_one_depth_are_ordered_by_the_numbers_in_their_names() -> None:
    names = ("scan_10", "scan_2", "scan_1", "load")
    tasks = Tasks(
        TaskRun(spec=TaskSpec(name=TaskName(name), kind=TaskKind.PYTHON, script="t.py")) for name in names
    )

    found = [task.spec.name for task in tasks.by_depth()]
    assert found == ["load", "scan_1", "scan_2", "scan_10"]


def test_what_failed_above_many_tasks_is_looked_up_once_and_named_up_to_a_number(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    *above, join = fan(30)
    after = [replace(join, name=TaskName(f"after-{n}"), needs=(join.name,)) for n in range(50)]
    states = [TaskState.SUCCEEDED] + [TaskState.FAILED] * 30
    tasks = [TaskRun(spec=spec, state=state) for spec, state in zip(above, states, strict=True)]
    tasks += [TaskRun(spec=spec, state=TaskState.NOT_RUN) for spec in (join, *after)]
    run = World().new_run("r", tasks=Tasks(tasks), state=RunState.FAILED)
    facts, asked = ClusterFacts(now=_T0, leader="s1", capacity=pytest.fail), list[str]()
    look = explain_task._failed_above
    monkeypatch.setattr(explain_task, "_failed_above", lambda of: asked.append(of.id) or look(of))

    told = {task.why for task in run_model(run, {}, facts, HistoryServers()).tasks if task.state == "not_run"}

    named = ", ".join(f"part-{n:04d}" for n in range(20))
    assert told == {f"not run: {named} and others failed"}
    assert asked == ["r"]


def test_versions_of_a_run_are_ordered_once(monkeypatch: pytest.MonkeyPatch) -> None:
    tasks, named = Tasks(TaskRun(spec=spec) for spec in fan(5)), list[str]()
    monkeypatch.setattr("nimbus.domain.runs.tasks.natural", lambda name: named.append(name) or [name])

    first = tasks.by_depth()
    changed = replace(first[0], state=TaskState.SUCCEEDED)
    again = tasks.replaced([changed]).by_depth()

    assert again == [changed, *first[1:]]
    assert len(named) == len(tasks)


def _task(name: str, needs: list[str], end: int | None) -> Any:
    began = datetime(2026, 3, 1, tzinfo=UTC)
    attempt = SimpleNamespace(ended_at=None if end is None else began + timedelta(seconds=end))
    spec = SimpleNamespace(name=name, needs=needs)
    return SimpleNamespace(spec=spec, attempts=[attempt] if end != 0 else [])


@pytest.mark.parametrize(
    ("tasks", "path"),
    [
        ([], []),
        ([_task("a", [], 0)], []),
        ([_task("a", [], 5), _task("b", [], 9), _task("c", ["a", "b"], 12)], ["b", "c"]),
        ([_task("a", [], 5), _task("b", ["a"], None), _task("c", [], 90)], ["a", "b"]),
    ],
)
def test_critical_path_goes_back_over_what_ended_last(tasks: list[Any], path: list[str]) -> None:
    assert critical_path(tasks) == path


def _complete(count: int) -> dict[str, list[str]]:
    """Each task needs all earlier ones."""
    return {f"t{n}": [f"t{before}" for before in range(n)] for n in range(count)}


def test_graph_is_drawn_up_to_a_number_of_edges_of_its_folds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(draw(_complete(100)).edges) == 4950 <= MAX_EDGES
    with pytest.raises(TooManyEdgesError, match="244,650 edges"):
        kept_drawing(_complete(700))

    drawn: list[int] = []
    monkeypatch.setattr(graph, "draw", lambda needs, _: drawn.append(len(needs)) or draw(needs))
    for _ in range(2):
        with pytest.raises(TooManyEdgesError):
            kept_drawing(_complete(701))
    assert drawn == [701]

    sources = [f"a{n}" for n in range(200)]
    stars = {**{one: [] for one in sources}, **{f"b{n}": sources for n in range(200)}}
    assert len(draw(stars).edges) == 1


_T0 = datetime(2026, 3, 1, tzinfo=UTC)


def _at(seconds: float) -> datetime:
    return _T0 + timedelta(seconds=seconds)


def _run_of_waits(**changes: Any) -> Run:
    """`a` ran from 5 to 10; `b`, which needs it, was opened at 30, failed at 50, and was opened at 60."""
    a, b = (TaskSpec(name=TaskName(name), kind=TaskKind.PYTHON, script="t.py") for name in "ab")
    opened = {"worker": WorkerId("w1"), "opened_by_epoch": 7}
    first = Attempt(number=1, opened_at=_at(0), started_at=_at(5), ended_at=_at(10), **opened)  # type: ignore[arg-type]
    failed = replace(first, opened_at=_at(30), started_at=_at(31), ended_at=_at(50), outcome=Outcome.FAILED)
    again = replace(failed, number=2, opened_at=_at(60), started_at=None, ended_at=None, outcome=None)
    tasks = (
        TaskRun(spec=a, state=TaskState.SUCCEEDED, attempts=(replace(first, outcome=Outcome.SUCCEEDED),)),
        TaskRun(spec=replace(b, needs=(a.name,)), state=TaskState.RUNNING, attempts=(failed, again)),
    )
    return World().new_run("r", tasks=Tasks(tasks), created_at=_T0, started_at=_T0, **changes)


def test_waits_of_a_task_are_for_needs_a_slot_its_driver_and_a_retry() -> None:
    run = _run_of_waits()

    assert waits(run, run.tasks[TaskName("a")]) == [WaitBar("start", _at(0), _at(5))]
    assert waits(run, run.tasks[TaskName("b")]) == [
        WaitBar("needs", _at(0), _at(10)),
        WaitBar("slot", _at(10), _at(30)),
        WaitBar("start", _at(30), _at(31)),
        WaitBar("retry", _at(50), _at(60)),
    ]


def test_wait_is_open_while_a_task_waits_and_unknown_where_the_record_has_no_attempt_of_it() -> None:
    run = _run_of_waits()
    a, b = run.tasks.in_order()
    waiting, retrying = replace(b, attempts=(), state=TaskState.WAITING), replace(b, attempts=b.attempts[:1])
    undone = run.with_tasks(run.tasks.replaced((replace(a, state=TaskState.RUNNING, attempts=()),)))

    assert waits(run, waiting)[-1] == WaitBar("slot", _at(10), None)
    assert waits(undone, waiting) == [WaitBar("needs", _at(0), None)]
    assert waits(undone, replace(waiting, state=TaskState.NOT_RUN)) == []
    assert waits(run, replace(retrying, state=TaskState.WAITING))[-1] == WaitBar("retry", _at(50), None)
    assert [one.kind for one in waits(run, replace(b, attempts=b.attempts[1:]))] == ["needs"]


def test_gantt_ends_where_the_run_ends_and_shows_the_last_success() -> None:
    run = _run_of_waits(state=RunState.FAILED, finished_at=_at(80))
    b = run.tasks[TaskName("b")]
    last = replace(b.attempts[-1], started_at=_at(61), ended_at=_at(80), outcome=Outcome.FAILED)
    run = run.with_tasks(run.tasks.replaced((replace(b, state=TaskState.FAILED, attempts=(last,)),)))
    facts = ClusterFacts(now=_T0, leader="s1", capacity=pytest.fail)
    model = run_model(run, {}, facts, HistoryServers())
    drawn = gantt_svg(run, model, ["b"], _at(500), str, run)

    assert re.findall(r'"tick" x1="([0-9.]+)%".*?>([^<]+)</text>', drawn)[-1] == ("92.0", "1 min 20 s")
    (x, width) = re.findall(r'<rect class="failed" x="([0-9.]+)%" y="\d+" width="([0-9.]+)%"', drawn)[0]
    assert float(x) + float(width) == pytest.approx(92.0)
    assert drawn.count('<line class="earlier"') == 2
    waited = "waited 10 s for its needs, waited 1 s for its driver"
    assert f"<title>b: 2 attempts, failed after 19 s, {waited}, on the critical path, the last" in drawn
    assert "the last success took 19 s" in drawn


@pytest.mark.parametrize(
    ("progress", "said"),
    [
        ({"tasks_total": 4, "tasks_done": 1}, "25 %"),
        ({"tasks_total": "4", "tasks_done": 1}, "running"),
        ({"tasks_total": 4, "tasks_done": [1]}, "running"),
        ({"tasks_total": -1}, "running"),
        ({"tasks_total": 1, "tasks_done": 10**9}, "100 %"),
    ],
)
def test_node_shows_progress_whatever_a_task_reports(progress: dict[str, Any], said: str) -> None:
    began = datetime(2026, 1, 1, tzinfo=UTC)
    attempt = Attempt(number=1, worker=WorkerId("w1"), opened_at=began, opened_by_epoch=1, started_at=began)
    spec = TaskSpec(name=TaskName("load"), kind=TaskKind.PYTHON, script="load.py")
    task = TaskRun(spec=spec, state=TaskState.RUNNING, attempts=(attempt,))

    assert said in re.sub("<[^>]*>", "", str(node_text(task, progress)))


def test_a_long_chain_is_drawn_in_its_own_size_so_that_it_can_be_read() -> None:
    chain = {f"step_{number}": [f"step_{number - 1}"] if number else [] for number in range(12)}
    drawing = draw(chain)

    drawn = svg(drawing, dict.fromkeys(chain, "python"), str, str)

    assert f'class="graph" width="{drawing.layout.width}"' in drawn
