"""Definitions of tasks that no worker runs: results and refusals."""

from __future__ import annotations

from datetime import timedelta

import pytest

from nimbus.definition import InvalidDefinitionError, parse_definition
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.pipeline import PipelineSpec, TaskKind, TaskSpec
from nimbus.domain.pipelines.webhooks import Webhook
from nimbus.domain.starts.waits import SELF, DataSource, DataWait, OnFailed, PipelineWait


def only_task(keys: str, more: str = "") -> TaskSpec:
    text = f"schema: 1\nname: p\n{more}tasks:\n  a: {{{keys}}}\n"
    (task,) = parse_definition(text.encode(), "pipeline.yaml").tasks
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


def test_wait_for_pipelines_says_the_interval_and_what_a_failure_means() -> None:
    task = only_task(
        "type: wait, waits_for: [{pipeline: ods, covers: data_interval}, {file: /x}, {pipeline: self},"
        " {pipeline: rates, last: 1d, on_failed: fail}]"
    )

    assert task.args == ("/x",)
    assert task.awaits_pipelines
    assert task.waits_for == (
        PipelineWait(pipeline=PipelineName("ods")),
        DataWait(source=DataSource.FILE),
        PipelineWait(pipeline=SELF),
        PipelineWait(pipeline=PipelineName("rates"), last=timedelta(days=1), on_failed=OnFailed.FAIL),
    )


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ("type: wait, waits_for: [{pipeline: p}]", "the interval before is `pipeline: self`"),
        ("type: wait, waits_for: [{pipeline: self, last: 1d}]", "self is the interval before"),
        ("type: wait, waits_for: [{pipeline: a, last: 1d, covers: data_interval}]", "sets the interval"),
        ("type: wait, waits_for: [{pipeline: a, status: 200}]", "has no meaning with pipeline"),
        ("type: wait, waits_for: [{file: /x, on_failed: fail}]", "has no meaning with file"),
        ("type: wait, waits_for: [{pipeline: a, file: /x}]", "must have one of"),
        ("type: wait", "tasks.a.waits_for: is missing"),
        ("type: wait, waits_for: [{}]", "tasks.a.waits_for[0]: must have one of s3, file, http, pipeline"),
        ("type: wait, waits_for: [{s3: 's3://b/k', file: /k}]", "must have one of s3, file, http, pipeline"),
        ("type: wait, waits_for: [{http: 'ftp://host/'}]", "must be http://host[:port]/path"),
        ("type: wait, waits_for: [{file: there}]", "must be an absolute path"),
        (
            "type: wait, waits_for: [{file: /there, status: 200}]",
            "waits_for[0].status: has no meaning",
        ),
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


PARAMETERS = "parameters: {region: {type: string, required: true}, n: {type: integer, default: 1}}\n"


def pipeline(webhook: str) -> PipelineSpec:
    text = (
        f"schema: 1\nname: p\n{PARAMETERS}webhook: {webhook}\ntasks: {{a: {{type: python, script: a.py}}}}\n"
    )
    return parse_definition(text.encode(), "pipeline.yaml")


def test_webhook_takes_parameters_from_places_in_the_body() -> None:
    spec = pipeline('{secret: orders-hook, params: {region: "{{ body.region }}"}}')

    assert spec.webhook == Webhook(secret="orders-hook", parameters={"region": "{{ body.region }}"})


@pytest.mark.parametrize(
    ("webhook", "words"),
    [
        ("{params: {}}", "webhook.secret: is missing"),
        ("{secret: s}", "does not give region"),
        ('{secret: s, params: {regoin: "{{ body.x }}", region: "{{ body.x }}"}}', 'did you mean "region"'),
        ('{secret: s, params: {region: "{{ body.x | upper }}"}}', "must be a place in the request's body"),
        ('{secret: s, params: {region: "{{ ds }}"}}', "must be a place in the request's body"),
    ],
)
def test_webhook_is_refused_with_its_place_and_what_to_do(webhook: str, words: str) -> None:
    with pytest.raises(InvalidDefinitionError) as refused:
        pipeline(webhook)
    assert words in str(refused.value)
