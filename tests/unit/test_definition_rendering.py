"""Templates: what they see, what they refuse, and that none of them can cost the leader time or memory."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Any

import pytest

from nimbus.definition.rendering import (
    LONGEST_ARGUMENT,
    TemplateError,
    render_context,
    render_tasks,
    render_text,
)
from nimbus.definition.templates import NAMES
from nimbus.domain.ids import PipelineName, TaskName
from nimbus.domain.pipeline import PipelineSpec, TaskKind, TaskSpec

WHEN = datetime(2013, 2, 5, 6, 0, tzinfo=UTC)


def pipeline(*args: str) -> PipelineSpec:
    return PipelineSpec(
        name=PipelineName("flights"),
        tasks=(TaskSpec(name=TaskName("load"), kind=TaskKind.PYTHON, script="load.py", args=args),),
    )


def rendered(text: str, **parameters: Any) -> str:
    (task,) = render_tasks(pipeline(text), run_id="r1", logical_date=WHEN, parameters=parameters)
    (argument,) = task.args
    return argument


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("{{ params.month }}", "3"),
        ("{{ params['month'] + 1 }}", "4"),
        ("{{ run.id }}/{{ ds }}/{{ ds_nodash }}", "r1/2013-02-05/20130205"),
        ("{{ run.logical_date }}", "2013-02-05 06:00:00+00:00"),
        ("{{ run.logical_date.strftime('%d.%m.%Y') }}", "05.02.2013"),
        ("{{ run.logical_date.isoformat() }}", "2013-02-05T06:00:00+00:00"),
        ("{{ pipeline.name }}.{{ task.name }}", "flights.load"),
        ("{{ '%02d' % params.month }} {{ '%02d' | format(params.month) }}", "03 03"),
        ("{% if params.month > 2 %}late{% else %}early{% endif %}", "late"),
        ("{{ params.who | upper | replace('A', 'xy') }} {{ params.who.title() }}", "xyNN Ann"),
        ("{{ 2.345 | round(1) }} {{ [1, 2] | join('+') }} {{ params.who | tojson }}", '2.3 1+2 "ann"'),
        ("{{ 7 * 6 }} {{ 2 ** 10 }} {{ 'ab' * 2 }} {{ 7 % 4 }}", "42 1024 abab 3"),
        ("line\n", "line\n"),
        ("<&>", "<&>"),
    ],
)
def test_argument_is_rendered(text: str, result: str) -> None:
    assert rendered(text, month=3, who="ann") == result


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("{{ nothing }}", "'nothing' is undefined"),
        ("{{ params.nothing }}", "has no attribute 'nothing'"),
        ("{{ params.month.__class__ }}", "unsafe"),
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ params.who.format(1) }}", "unsafe"),
        ("{{ params.who.ljust(9) }}", "unsafe"),
        ("{{ params.who['format'](1) }}", "unsafe"),
        ("{{ params.who | map('upper') }}", "No filter named 'map'"),
        ("{{ 1 / 0 }}", "division by zero"),
        ("{{ params.who + 1 }}", "can only concatenate"),
        ("{{ '%d' % params.who }}", "number is required"),
        ("{{ '%(a)s' | format(b=1) }}", "'a'"),
        ("{{ 'a' | nothing }}", "No filter named 'nothing'"),
        ("{{ lipsum() }}", "'lipsum' is undefined"),
        ("{{ ", "unexpected"),
        ("{% include 'x' %}", "no loader"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "cannot be rendered"),
        ("{{ 1" + ".real" * 3000 + " }}", "cannot be rendered"),
    ],
)
def test_template_that_cannot_be_rendered_names_task_and_argument(text: str, words: str) -> None:
    with pytest.raises(TemplateError) as refused:
        rendered(text, month=3, who="ann")

    assert words in str(refused.value)
    assert str(refused.value).startswith("task load, argument 1: template ")
    assert (refused.value.code, refused.value.exit_code) == ("template", 2)


@pytest.mark.parametrize(
    "text",
    [
        "{{ 'x' * 10 ** 10 }}",
        "{{ 10 ** 10 * 'x' }}",
        "{{ [0] * 10 ** 10 }}",
        "{{ 10 ** 10 ** 10 }}",
        "{{ 10 ** -(10 ** 10) }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%.1000000000f' % 1 }}",
        "{{ '%*d' % (10 ** 10, 1) }}",
        "{{ '%1000000000d' | format(1) }}",
        "{{ range(10 ** 10) | list }}",
        "{{ range(90000) | join(('x' * 1000000)) }}",
        "{{ ('x' * 100000) | replace('x', 'y' * 100000) }}",
        "{{ 5 | round(-(10 ** 9)) }}",
        "{{ 'x' | center(10 ** 10) }}",
        "{{ [1] | tojson(indent=10 ** 10) }}",
        "{{ 'x' | indent(10 ** 10) }}",
        "{{ 'x' * 70000 }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ run.logical_date.strftime('%100000000Y') }}",
        "{{ ('%s' | string).format_map({}) }}",
        "{{ run.logical_date.strftime('%Y' * 9000) }}",
    ],
)
def test_costly_template_is_refused_before_it_costs_anything(text: str) -> None:
    began = time.process_time()  # of our own: others may keep the processor busy

    with pytest.raises(TemplateError):
        rendered(text)

    assert time.process_time() - began < 10


def test_argument_and_all_arguments_are_bounded() -> None:
    assert len(rendered("{{ params.x }}", x="x" * LONGEST_ARGUMENT)) == LONGEST_ARGUMENT
    with pytest.raises(TemplateError, match="renders to more than 65536 characters"):
        rendered("{{ params.x }}", x="x" * (LONGEST_ARGUMENT + 1))

    many = pipeline(*["{{ params.x }}"] * 5)
    with pytest.raises(TemplateError, match="all tasks render to 300000 characters"):
        render_tasks(many, run_id="r1", logical_date=WHEN, parameters={"x": "x" * 60_000})


def test_text_with_loops_is_cut_off_while_it_grows() -> None:
    text = "{% for a in range(9999) %}{% for b in range(9999) %}xxxxxxxxxx{% endfor %}{% endfor %}"

    with pytest.raises(TemplateError, match="renders to more than 1048576 characters"):
        render_text(text, {})


def test_second_argument_is_named_as_such() -> None:
    with pytest.raises(TemplateError, match="task load, argument 2: "):
        render_tasks(pipeline("a", "{{ b }}"), run_id="r1", logical_date=WHEN, parameters={})


def test_context_has_the_names_that_the_check_knows() -> None:
    context = render_context(pipeline="p", task="t", run_id="r", logical_date=WHEN, parameters={})

    assert set(context) == set(NAMES)
