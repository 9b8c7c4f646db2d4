"""Definitions of tasks that no worker runs: what they become, and what is refused."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nimbus.definition import InvalidDefinitionError, parse_definition
from nimbus.domain.pipeline import TaskKind, TaskSpec
from nimbus.domain.schema import newer_part
from nimbus.domain.waits import DataSource, DataWait
from tests.in_process_templates import InProcessTemplates


def only_task(keys: str, more: str = "") -> TaskSpec:
    text = f"schema: 1\nname: p\n{more}tasks:\n  a: {{{keys}}}\n"
    (task,) = parse_definition(text.encode(), "pipeline.yaml", InProcessTemplates()).tasks
    return task


def refusal(keys: str) -> str:
    with pytest.raises(InvalidDefinitionError) as refused:
        only_task(keys)
    return str(refused.value)


def test_approval_becomes_a_task_that_no_worker_runs() -> None:
    task = only_task('type: approval, prompt: "Release {{ ds }}?", timeout: 2d')

    assert (task.kind, task.args, task.timeout) == (
        TaskKind.APPROVAL,
        ("Release {{ ds }}?",),
        timedelta(days=2),
    )
    assert not task.kind.uses_worker
    assert newer_part(task) == "kind approval", "schema 1 does not have it"


def test_timeout_of_attempts_is_not_that_of_an_approval() -> None:
    assert only_task("type: approval, prompt: ok?", "defaults: {timeout: 10m}\n").timeout is None


def test_wait_becomes_a_task_with_an_address_for_each_thing() -> None:
    task = only_task(
        'type: wait, waits_for: [{s3: "s3://bucket/{{ ds }}/_SUCCESS"}, {http: "http://host/x", status: 204}]'
    )

    assert task.args == ("s3://bucket/{{ ds }}/_SUCCESS", "http://host/x")
    assert task.waits_for == (
        DataWait(source=DataSource.S3),
        DataWait(source=DataSource.HTTP, status=204),
    )
    assert newer_part(task) == "kind wait"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("type: wait", "tasks.a.waits_for: is missing"),
        ("type: wait, waits_for: [{}]", "tasks.a.waits_for[0]: must have one of s3, file, http"),
        ("type: wait, waits_for: [{s3: 's3://b/k', file: /k}]", "must have one of s3, file, http"),
        ("type: wait, waits_for: [{http: 'ftp://host/'}]", "must be http://host[:port]/path"),
        ("type: wait, waits_for: [{file: there}]", "must be an absolute path"),
        ("type: wait, waits_for: [{file: /there, status: 200}]", "is of an HTTP answer; remove it"),
        ("type: wait, waits_for: [{file: '/{{ nonsense }}'}]", "nonsense"),
        ("type: wait, waits_for: [{file: /x}], runs_on: [gpu]", "no worker runs a task of type wait"),
        ("type: wait, waits_for: [{file: '/{{ tasks.b.result.x }}'}]", "cannot use results of other"),
        ("type: python, script: a.py, waits_for: [{file: /x}]", "a python task has no waits_for"),
        ("type: approval", "tasks.a.prompt: is missing; an approval task needs it"),
        ("type: approval, prompt: ok?, script: a.py", "has no script"),
        ("type: approval, prompt: ok?, retries: {limit: 1}", "no worker runs a task of type approval"),
        ("type: approval, prompt: ok?, pool: {p: 1}", "it has no pool; remove it"),
        ('type: approval, prompt: "{{ nonsense }}"', "nonsense"),
        ('type: approval, needs: [b], prompt: "{{ tasks.b.result.rows }}?"', "cannot use results of other"),
        ("type: python, script: a.py, prompt: ok?", "a python task has no prompt"),
    ],
)
def test_approval_is_refused_with_its_place_and_what_to_do(keys: str, words: str) -> None:
    assert words in refusal(keys)
