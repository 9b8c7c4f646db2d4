"""Templates: their variables, their refusals, and what they may cost."""

from __future__ import annotations

import re
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from nimbus.definition import InvalidDefinitionError, read_definition
from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.intervals import DataInterval
from nimbus.domain.pipelines.pipeline import FailureStrategy, Priority, TaskKind, TaskSpec
from nimbus.domain.runs.children import ChildSpec, Parent
from nimbus.domain.runs.run import Run, RunCause
from nimbus.domain.runs.task_run import TaskRun
from nimbus.domain.runs.tasks import Tasks
from nimbus.templates import evaluation
from nimbus.templates.checking import MAX_TEXT, NAMES, argument_faults, file_faults
from nimbus.templates.client import Templates
from nimbus.templates.names import TemplateError, TemplateFault
from nimbus.templates.rendering import LONGEST_ARGUMENT, render_context
from nimbus.templates.sandbox import LONGEST

WHEN = datetime(2013, 2, 5, 6, 0, tzinfo=UTC)

Rendered = Callable[..., str]


@pytest.fixture
def templates() -> Templates:
    return Templates()


@pytest.fixture
def rendered(templates: Templates) -> Rendered:
    def render(text: str, **parameters: Any) -> str:
        run = templates.render(draft(text, parameters=parameters))
        (argument,) = run.tasks[TaskName("load")].spec.args
        return argument

    return render


def draft(*args: str, parameters: dict[str, Any]) -> Run:
    load = TaskSpec(name=TaskName("load"), kind=TaskKind.PYTHON, script="load.py", args=args)
    return Run(
        id=RunId("r1"),
        pipeline=PipelineName("flights"),
        release=ReleaseDigest("a" * 64),
        parameters=parameters,
        logical_date=WHEN,
        created_at=WHEN,
        data_interval=DataInterval(start=WHEN - timedelta(days=1), end=WHEN),
        timezone="Europe/Berlin",
        cause=RunCause.MANUAL,
        priority=Priority.MEDIUM,
        failure_strategy=FailureStrategy.END,
        tasks={TaskName("quiet"): TaskRun(spec=quiet(load)), TaskName("load"): TaskRun(spec=load)},
    )


def quiet(load: TaskSpec) -> TaskSpec:
    return TaskSpec(name=TaskName("quiet"), kind=load.kind, script="quiet.py")


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("plain", "plain"),
        ("{{ params.month }}", "3"),
        ("{{ params['month'] + 1 }}", "4"),
        ("{{ run.id }}/{{ ds }}/{{ ds_nodash }}", "r1/2013-02-05/20130205"),
        ("{{ run.logical_date }}", "2013-02-05 06:00:00+00:00"),
        ("{{ data_interval_start }}", "2013-02-04 06:00:00+00:00"),
        ("{{ fmt(days(data_interval_end, -1), '%d. %H:%M') }} {{ tz }}", "04. 07:00 Europe/Berlin"),
        ("{{ run.logical_date.strftime('%d.%m.%Y') }}", "05.02.2013"),
        ("{{ run.logical_date.isoformat() }}", "2013-02-05T06:00:00+00:00"),
        ("{{ pipeline.name }}.{{ task.name }}", "flights.load"),
        ("{{ '%02d' % params.month }} {{ '%02d' | format(params.month) }}", "03 03"),
        ("{% if params.month > 2 %}late{% else %}early{% endif %}", "late"),
        ("{{ params.who | upper | replace('A', 'xy') }} {{ params.who.title() }}", "xyNN Ann"),
        ("{{ 2.345 | round(1) }} {{ [1, 2] | join('+') }} {{ params.who | tojson }}", '2.3 1+2 "ann"'),
        ("{{ 7 * 6 }} {{ 2 ** 10 }} {{ 'ab' * 2 }} {{ 7 % 4 }}", "42 1024 abab 3"),
        ("line\n", "line\n"),
        (
            "{{ true }} {{ params.month > 9 }} {{ true | string }} {{ [1, true] | join }} {{ [1, 'a'] }}",
            'true false true 1true [1, "a"]',
        ),
        ("{% if 1 == 1 %}{{ true | tojson }}{% endif %} {{ none }}", "true None"),
        ("<&>", "<&>"),
    ],
)
def test_argument_is_rendered(rendered: Rendered, text: str, result: str) -> None:
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
        ("{% include 'x' %}", "may use {{ ... }} and {% if %} only"),
        ("{{ " + "(" * 3000 + "1" + ")" * 3000 + " }}", "cannot be rendered"),
        ("{{ 1" + ".real" * 3000 + " }}", "cannot be rendered"),
    ],
)
def test_template_that_cannot_be_rendered_names_task_and_argument(
    rendered: Rendered, text: str, words: str
) -> None:
    with pytest.raises(TemplateError) as refused:
        rendered(text, month=3, who="ann")

    assert words in str(refused.value)
    assert str(refused.value).startswith("task load, argument 1: template ")
    assert (refused.value.code, refused.value.exit_code) == ("template", 2)


REPEATED, MUCH, TOGETHER = "times is too long", "an operation takes more than", "all templates together take"
WIDTH, POWER = "a width in a format", "the power"
COSTLY = [
    ("{{ 'x' * 10 ** 10 }}", REPEATED),
    ("{{ 10 ** 10 * 'x' }}", REPEATED),
    ("{{ [0] * 10 ** 10 }}", REPEATED),
    ("{{ [('x' * 100000)] * 1000000 }}", REPEATED),
    ("{{ ([('x' * 100000)] * 1000000) | string | length }}", REPEATED),
    ("{{ ([('x' * 100000)] * 1000000) | tojson | length }}", REPEATED),
    ("{{ ([[1] * 1000] * 3000) | sum(start=[]) | length }}", REPEATED),
    ("{{ ([[[[[[[[1] * 9] * 9] * 9] * 9] * 9] * 9] * 9] * 9) | string }}", REPEATED),
    ("{{ 10 ** 10 ** 10 }}", POWER),
    ("{{ 10 ** -(10 ** 10) }}", POWER),
    ("{{ 2 ** 64" + " * 2 ** 64" * 200 + " }}", "a number is too large"),
    ("{{ ('f' * 60000) | int(base=16) * 2 }}", "a number is too large"),
    ("{{ ('9' * 5000) | int(base=16) | string }}", "Exceeds the limit"),
    ("{{ '%1000000000d' % 1 }}", WIDTH),
    ("{{ '%.1000000000f' % 1 }}", WIDTH),
    ("{{ '%*d' % (10 ** 10, 1) }}", WIDTH),
    ("{{ '%1000000000d' | format(1) }}", WIDTH),
    ("{{ run.logical_date.strftime('%100000000Y') }}", WIDTH),
    ("{{ run.logical_date.strftime(format='%100000000Y') }}", WIDTH),
    ("{{ run.logical_date.strftime('%Y' * 9000) }}", "a format may have 1024 characters"),
    ("{{ fmt(ds, '%Y' * 9000) }}", "a format may have 1024 characters"),
    ("{{ ('%(a)s%(a)s%(a)s' % {'a': 'x' * 60000}) | length }}", "the formatted text is too long"),
    ("{{ ('%(a)s' * 60) | format(a='x' * 60000) | length }}", TOGETHER),
    ("{{ range(10 ** 10) | list }}", "Range too big"),
    ("{{ range(90000) | join(('x' * 1000)) | length }}", TOGETHER),
    ("{{ ('x' * 10000) | replace('x', 'y' * 10000) | length }}", TOGETHER),
    ("{{ 5 | round(-(10 ** 9)) }}", "a precision of"),
    ("{{ 'x' | center(10 ** 10) }}", "No filter named 'center'"),
    ("{{ 'x' | indent(10 ** 10) }}", "No filter named 'indent'"),
    ("{{ [1] | tojson(indent=10 ** 10) }}", "unexpected keyword"),
    ("{{ '{:1000000000}'.format(1) }}", "unsafe"),
    ("{{ ('%s' | string).format_map({}) }}", "unsafe"),
    ("{{ ([[1] * 100] * 1000) | sum(start=[]) | length }}", "a sum starts with a number"),
    ("{{ [[1] * 60000, [1] * 60000, [1] * 60000] and 1 }}", MUCH),
    ("{{ ('x' * 60000, 'x' * 60000, 'x' * 60000) and 1 }}", MUCH),
    ("{{ {'a': 'x' * 60000, 'b': 'x' * 60000, 'c': 'x' * 60000} and 1 }}", MUCH),
    ("{{ ('x' * 60000 ~ 'x' * 60000 ~ 'x' * 60000) and 1 }}", MUCH),
    ("{{ ('x' * 60000 + 'x' * 60000 + 'x' * 60000) and 1 }}", MUCH),
    ("{{ ('x' * 60000) | list | string | list | string | list | string | length }}", MUCH),
    ("{{ ('a' * 60000) | trim('b' * 60000) | length }}", TOGETHER),
    ("{{ ('a' * 60000).strip('b' * 60000) | length }}", TOGETHER),
    ("{{ (['x'] * 40000) | sort(attribute='" + "0." * 200 + "0') | length }}", TOGETHER),
    ("{{ range(60000) | list" + " | sort" * 200 + " | first }}", TOGETHER),
    ("{{ range(60000) | list" + " | reverse" * 200 + " | first }}", TOGETHER),
    ("{{ ('x' * 1000) | replace('x', 'y' * 50) | list" + " | sort" * 300 + " | first }}", TOGETHER),
    ("{{ ('x' * 60000)" + ".upper()" * 200 + " | first }}", TOGETHER),
    ("{{ ('x' * 60000)" + "[::1]" * 200 + " | first }}", TOGETHER),
    ("{{ 1" + " + ('x' * 60000 == 'x' * 60000)" * 50 + " }}", TOGETHER),
    ("{{ fmt(*([1] * 100000)) }}", "are not available"),
    ("{{ range(**{'a': 1}) }}", "are not available"),
    (
        "{% for a in range(9999) %}{% for b in range(9999) %}xxxxx{% endfor %}{% endfor %}",
        "and {% if %} only",
    ),
    ("{% set a = 'x' %}{{ a }}", "and {% if %} only"),
    ("{% macro a() %}{{ a() }}{% endmacro %}{{ a() }}", "and {% if %} only"),
]


@pytest.mark.parametrize(("text", "words"), COSTLY)
def test_costly_template_is_refused_before_it_costs_anything(
    rendered: Rendered, text: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "BUDGET", 2 * LONGEST)  # is used up sooner
    with pytest.raises(TemplateError, match=re.escape(words)):
        rendered(text)


@pytest.mark.parametrize(
    "text",
    [
        "{{ ('x' * 60000) | list | string | list | string | list | string }}",
        "{{ ([('x' * 1000)] * 1000000) | string | length }}",
        "{{ ('%s' * 100) % (('x' * 60000,) * 100) | length }}",
        "{{ ('xy' * 60000) | replace('x', 'y' * 100000) }}",
        "{{ range(100000) | join('x' * 10000) }}",
    ],
)
def test_costly_template_takes_little_memory(rendered: Rendered, text: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(TemplateError):
            rendered(text)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert peak_bytes < 16 << 20


@pytest.mark.parametrize("times", [1, 9])
def test_all_templates_of_a_run_share_one_budget(
    templates: Templates, times: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(evaluation, "BUDGET", 2 * LONGEST)
    run = draft(*["{{ range(60000) | list | first }}"] * times, parameters={})

    if times == 1:
        assert templates.render(run).tasks[TaskName("load")].spec.args == ("0",)
    else:
        with pytest.raises(TemplateError, match=r"argument \d+: .* of all templates together take too much"):
            templates.render(run)


def test_check_computes_no_constant(templates: Templates, tmp_path: Path) -> None:
    costly = "7 ** 99999999"
    (tmp_path / "a.py").touch()
    (tmp_path / "b.sql").write_text(f"SELECT {{{{ {costly} }}}} {{{{ 'x' | center(10 ** 10) | zzz }}}}")
    (tmp_path / "pipeline.yaml").write_text(
        "schema: 1\nname: p\ntasks:\n"
        "  b: {type: sql, script: b.sql}\n"
        f'  a: {{type: python, script: a.py, args: ["{{{{ {costly} }}}}", "{{{{ dss }}}}"]}}\n'
    )

    with pytest.raises(InvalidDefinitionError) as refused:
        read_definition(tmp_path)

    assert sorted(str(problem).removeprefix(f"{tmp_path}/") for problem in refused.value.problems) == [
        "b.sql:1: there is no filter 'zzz'",
        "pipeline.yaml:5: tasks.a.args[1]: there is no 'dss' (did you mean \"ds\"?)",
    ]


def test_argument_and_all_arguments_are_bounded(templates: Templates, rendered: Rendered) -> None:
    assert len(rendered("{{ params.x }}", x="x" * LONGEST_ARGUMENT)) == LONGEST_ARGUMENT
    with pytest.raises(TemplateError, match="renders to more than 65536 characters"):
        rendered("{{ params.x }}", x="x" * (LONGEST_ARGUMENT + 1))

    with pytest.raises(TemplateError, match=r"^the arguments of all tasks render to more than 4194304 char"):
        templates.render(draft(*["{{ params.x }}"] * 70, parameters={"x": "x" * 60_000}))


def test_templates_of_one_run_are_bounded(templates: Templates) -> None:
    long = "{{ ds }}" * 512

    with pytest.raises(TemplateError, match=f"^the templates have .* characters, {MAX_TEXT} is the most"):
        templates.render(draft(*[long] * (MAX_TEXT // len(long) + 1), parameters={}))


def test_second_argument_is_named_as_such(templates: Templates) -> None:
    with pytest.raises(TemplateError, match="task load, argument 2: "):
        templates.render(draft("a", "{{ b }}", parameters={}))


def test_a_template_is_rendered_anew_for_each_run(rendered: Rendered) -> None:
    assert [rendered("{{ params.x }}", x=x) for x in ("ä", "\ud800", 7)] == ["ä", "\ud800", "7"]


def test_all_faults_are_found_each_at_its_argument() -> None:
    found = argument_faults(["{{ ds }}", "{{ dss }}", "{% for a in b %}{% endfor %}"], ["month"])

    assert found == [
        [],
        [TemplateFault("there is no 'dss'", "ds", 1)],
        [TemplateFault("may use {{ ... }} and {% if %} only; compute anything else in the task")],
    ]
    assert argument_faults([], []) == []


def test_faults_of_a_file_have_lines() -> None:
    assert file_faults("SELECT\n{{ params.moth }}", ["month"]) == [
        TemplateFault("there is no parameter 'moth'", "params.month", 2)
    ]


def test_context_has_the_names_that_the_check_knows() -> None:
    assert {*render_context(draft(parameters={})), "task"} == set(NAMES)


def test_parameters_of_a_child_run_see_its_item_and_the_dates_of_the_parent(templates: Templates) -> None:
    run = draft(parameters={"mode": "full"})
    load = run.tasks[TaskName("load")]
    children = ChildSpec(
        pipeline=PipelineName("region"),
        parameters={"region": "{{ item.region }}", "day": "{{ ds }} {{ params.mode }}", "count": 3},
        for_each={"region": ("eu", "us"), "shard": (1, 2)},
    )
    run = replace(run, tasks={load.spec.name: replace(load, spec=replace(load.spec, children=children))})
    link = Parent(run=run.id, top=run.id, task=TaskName("load"), attempt=1, index=2, depth=1)

    given = templates.child_parameters(run, link, {})

    assert given == {"region": "us", "day": "2013-02-05 full", "count": 3}


def test_parameters_of_a_child_run_see_the_results_that_their_task_reads(templates: Templates) -> None:
    run = with_result()
    load = run.tasks[TaskName("load")]
    children = ChildSpec(
        pipeline=PipelineName("region"), parameters={"n": "{{ tasks.quiet.result.rows + 1 }}"}
    )
    run = replace(run, tasks=run.tasks.replaced([replace(load, spec=replace(load.spec, children=children))]))
    link = Parent(run=run.id, top=run.id, task=TaskName("load"), attempt=1, index=0, depth=1)

    assert templates.child_parameters(run, link, {TaskName("quiet"): {"rows": 3}}) == {"n": "4"}


def test_bad_parameter_of_a_child_run_is_named(templates: Templates) -> None:
    run = draft(parameters={})
    load = run.tasks[TaskName("load")]
    children = ChildSpec(pipeline=PipelineName("region"), parameters={"n": "{{ 1 / 0 }}"})
    run = replace(run, tasks={load.spec.name: replace(load, spec=replace(load.spec, children=children))})
    link = Parent(run=run.id, top=run.id, task=TaskName("load"), attempt=1, index=0, depth=1)

    with pytest.raises(TemplateError, match=r"params\.n: .*division by zero"):
        templates.child_parameters(run, link, {})


def with_result(*args: str, **spec: Any) -> Run:
    """A run whose task `load` reads the result of `quiet`."""
    run = draft(*args, parameters={"x": "{{ ds }}"})
    load = replace(run.tasks[TaskName("load")].spec, reads=(TaskName("quiet"),), **spec)
    return replace(run, tasks=Tasks([TaskRun(spec=quiet(load)), TaskRun(spec=load)]))


def test_task_that_reads_results_is_left_as_it_is_when_its_run_is_rendered(templates: Templates) -> None:
    run = with_result("{{ tasks.quiet.result.rows }}", "{{ ds }}")

    assert templates.render(run) == run


def test_task_that_reads_results_is_rendered_with_them(templates: Templates) -> None:
    run = with_result("{{ tasks['quiet'].result.rows + 1 }}", "{{ params.x }}", when="{{ ds > '1' }}")
    found = templates.render_task(run, TaskName("load"), {TaskName("quiet"): {"rows": 3}})

    assert (found.args, found.when, found.reads) == (("4", "{{ ds }}"), "true", ())


def test_key_of_a_result_is_no_method_of_a_mapping(templates: Templates) -> None:
    texts = [f"{{{{ tasks.quiet.result.{key} }}}}" for key in ("items", "values", "copy", "count")]
    given = {"items": 3, "values": [1], "copy": "c", "count": 4}

    found = templates.render_task(with_result(*texts), TaskName("load"), {TaskName("quiet"): given})

    assert found.args == ("3", "[1]", "c", "4")


def test_task_whose_arguments_are_too_large_for_an_order_is_refused(templates: Templates) -> None:
    large = "{{ tasks.quiet.result.x * 60 }}"

    with pytest.raises(TemplateError, match=r"task load: its arguments are rendered to 120\d+ bytes as JSON"):
        templates.render_task(
            with_result(large, large), TaskName("load"), {TaskName("quiet"): {"x": "y" * 1000}}
        )


def test_result_that_was_not_given_is_undefined(templates: Templates) -> None:
    run = with_result("{{ tasks.quiet.result.rows | default('none') }}", "{{ tasks.quiet.result.rows }}")

    with pytest.raises(TemplateError, match=r"task load, argument 2: .* has no attribute 'rows'"):
        templates.render_task(run, TaskName("load"), {})


def test_run_without_interval_is_refused_when_a_task_that_reads_results_needs_one(
    templates: Templates,
) -> None:
    run = replace(with_result("{{ tasks.quiet.result.rows }}{{ data_interval_start }}"), data_interval=None)

    with pytest.raises(TemplateError, match="task load needs a data interval"):
        templates.render(run)
