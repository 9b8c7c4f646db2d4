"""Runs that start child runs, as nodes: written runs are read back, and no node grows too large."""

from __future__ import annotations

import json
from dataclasses import replace
from random import Random
from string import ascii_letters, digits

import pytest

from nimbus import records, run_record
from nimbus.adapters.store.calls import LARGEST_REQUEST
from nimbus.definition.task_rules import MAX_GIVEN_LISTS, MAX_ITEMS_OF_PIPELINE
from nimbus.domain.ids import TaskName
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.runs.children import LARGEST_LISTS, MAX_ITEMS, ItemState
from nimbus.domain.runs.run import Run
from tests.nimbus.children_stage import LOAD, Stage, parent, starting

FAN = TaskName("fan")
LARGEST_NODE = 128 * 1024


def begun(count: int, tasks: int = 1) -> Run:
    """A run whose tasks have begun. `count`: number of their items."""
    spec = parent(starting(for_each={"shard": tuple(range(count))}, max_items=count, parameters={}))
    fan = spec.tasks[0]
    many = tuple(replace(fan, name=TaskName(f"fan{number}")) for number in range(tasks))
    stage = Stage(LOAD, PipelineSpec(name=spec.name, tasks=many))
    stage.start()
    return stage.run()


def test_child_runs_and_their_parent_read_back_when_they_are_written() -> None:
    stage = Stage(LOAD, parent(starting(for_each={"region": ("eu", "us")})))
    stage.start()
    first, second = stage.children()
    stage.end(first)

    for run in (stage.run(), second):
        assert run_record.decode(run_record.encode_new(run), "/runs/r") == run
        assert records.RUN.decode(records.RUN.encode(run), "runs/r.json") == run
    assert second.parent is not None


def test_what_an_item_becomes_is_one_write_of_one_node() -> None:
    stage = Stage(LOAD, parent(starting(for_each={"region": ("eu", "us")})))
    stage.start()
    before = stage.run()
    stage.end(stage.children()[0])

    assert run_record.changes(stage.run(), before).keys() == {""}


def test_run_without_child_runs_says_nothing_of_them() -> None:
    stage = Stage(LOAD)
    stage.start("alone", LOAD.name)
    run = stage.run("alone")

    header = json.loads(run_record.encode_new(run)[""])
    assert "parent" not in header


def test_items_that_are_known_at_the_start_take_as_many_nodes_as_they_need() -> None:
    random = Random(1)
    texts = tuple("".join(random.choices(ascii_letters, k=30)) for _ in range(MAX_ITEMS))
    children = starting(for_each={"": texts}, max_items=MAX_ITEMS, max_parallel=2, parameters={})
    stage = Stage(LOAD, parent(children))
    stage.start()

    nodes = run_record.encode_new(stage.run())

    assert {"plan-0", "plan-1", "plan-2"} <= nodes.keys()
    assert max(map(len, nodes.values())) < LARGEST_NODE
    assert run_record.decode(nodes, "/runs/r") == stage.run()


def test_no_node_is_too_large_when_all_items_of_a_pipeline_differ() -> None:
    random = Random(1)
    run = begun(2, MAX_ITEMS_OF_PIPELINE // MAX_ITEMS)
    tasks = []
    for task in run.tasks.values():
        assert task.children is not None
        states = "".join(random.choices([state.value for state in ItemState], k=MAX_ITEMS))
        tried = tuple(random.choices(range(102), k=MAX_ITEMS))
        given = "".join(random.choices(ascii_letters + digits, k=LARGEST_LISTS))
        lists = {"": (given,)} if len(tasks) < MAX_GIVEN_LISTS else {}
        found = replace(task.children, states=states, tried=tried, lists=lists)
        tasks.append(replace(task, children=found))

    nodes = run_record.encode_new(replace(run, tasks=run.tasks.replaced(tasks)))

    largest = max(map(len, nodes.values()))
    assert largest < LARGEST_NODE, largest


def test_lists_without_items_read_back_when_they_are_written() -> None:
    stage = Stage(LOAD, from_file())
    stage.files["r.plan.1", "items.jsonl"] = b""
    stage.start()
    stage.end(stage.run())

    children = stage.run().tasks[FAN].children
    assert children is not None
    assert children.lists == {"": ()}
    assert run_record.decode(run_record.encode_new(stage.run()), "/runs/r") == stage.run()


@pytest.mark.parametrize("lists", ["x", 7, [1], {"fan": "x"}, {"fan": None}])
def test_header_whose_lists_are_broken_is_unreadable(lists: object) -> None:
    header = json.loads(run_record.encode_new(begun(1))[""]) | {"lists": lists}

    with pytest.raises(records.UnreadableRecordError):
        run_record.head_of(json.dumps(header).encode(), "/runs/r")


def from_file() -> PipelineSpec:
    """A pipeline whose first task writes a file, with an item in each line."""
    children = starting(
        for_each={"": "{{ tasks.plan.output }}/items.jsonl"},
        max_items=MAX_ITEMS,
        max_parallel=2,
        parameters={},
    )
    spec = parent(children, needs=(TaskName("plan"),), reads=(TaskName("plan"),))
    plan = TaskSpec(name=TaskName("plan"), kind=TaskKind.PYTHON, script="plan.py")
    return replace(spec, tasks=(plan, *spec.tasks))


def test_items_of_a_file_are_written_once_in_nodes_of_their_own() -> None:
    random = Random(1)
    texts = ["".join(random.choices(ascii_letters + digits, k=48)) for _ in range(MAX_ITEMS)]
    stage = Stage(LOAD, from_file())
    stage.files["r.plan.1", "items.jsonl"] = "\n".join(map(json.dumps, texts)).encode()
    stage.start()
    waiting = stage.run()

    stage.end(waiting)
    begun = stage.run()
    nodes = {name: encode() for name, encode in run_record.changes(begun, waiting).items()}
    lists = {name for name in nodes if name.startswith(run_record.LISTS)}

    assert len(lists) == MAX_ITEMS / run_record.ITEMS_IN_NODE
    assert max(map(len, nodes.values())) < LARGEST_NODE
    assert sum(map(len, nodes.values())) < LARGEST_REQUEST
    stage.end(stage.children()[0])
    assert run_record.changes(stage.run(), begun).keys() == {""}
    whole = run_record.encode_new(stage.run())
    assert lists < {*run_record.head_of(whole[""], "/runs/r").children} | {""}
    assert run_record.decode(whole, "/runs/r") == stage.run()
