"""Laws of reading: for any input, the answer is a result or our own error."""

from __future__ import annotations

import contextlib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from nimbus.config.problems import SuggestingError
from nimbus.definition import InvalidDefinitionError, parse_definition
from nimbus.definition.cron import check_cron, fires_between
from nimbus.domain.ids import PipelineName, ReleaseDigest, RunId, TaskName
from nimbus.domain.pipelines.parameters import InvalidParametersError, resolve_parameters
from nimbus.domain.pipelines.pipeline import ParameterSpec, PipelineSpec, Schedule, TaskKind, TaskSpec
from nimbus.domain.runs.drafts import Draft, new_run
from nimbus.domain.runs.run import RunCause
from nimbus.templates.client import Templates
from nimbus.templates.names import TemplateError
from tests.thorough import examples

GOOD = yaml.safe_load((Path(__file__).parents[3] / "examples" / "flights" / "pipeline.yaml").read_text())

UNHURRIED = settings(deadline=None)
"""No deadline, because the machine may be busy."""
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(
        ["1s", "{{ ds }}", "{{ params.x", "a.py", "@daily", "../x", "spark.x", "integer", "9" * 30]
    )
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
WHEN = datetime(2013, 2, 5, tzinfo=UTC)
TEMPLATES = Templates()


def read(text: bytes) -> PipelineSpec | None:
    try:
        return parse_definition(text, "x.yaml")
    except InvalidDefinitionError as refused:
        assert refused.problems
        assert all(problem.message for problem in refused.problems)
        return None


def render(spec: PipelineSpec) -> None:
    draft = Draft(
        id=RunId("r1"),
        pipeline=spec.name,
        release=ReleaseDigest("a" * 64),
        parameters={},
        logical_date=WHEN,
        cause=RunCause.MANUAL,
        asked_at=WHEN,
    )
    with contextlib.suppress(TemplateError):
        TEMPLATES.render(new_run(spec, draft))


@UNHURRIED
@given(st.binary(max_size=300))
def test_random_bytes_are_a_definition_or_refused(text: bytes) -> None:
    read(text)


@UNHURRIED
@given(st.text(alphabet="ab:-[]{}&*!|>'\"%@\n\t #,?0123.~<=", max_size=80))
def test_random_yaml_like_text_is_a_definition_or_refused(text: str) -> None:
    read(text.encode())


@settings(UNHURRIED, max_examples=examples(60))
@given(st.data())
def test_good_definition_with_anything_put_anywhere_is_a_definition_or_refused(data: st.DataObject) -> None:
    document = yaml.safe_load(yaml.safe_dump(GOOD))
    place = document
    while True:
        keys: list[Any] = list(place) if isinstance(place, dict) else list(range(len(place)))
        key = data.draw(st.sampled_from(keys))
        inner = place[key]
        if isinstance(inner, dict | list) and inner and data.draw(st.booleans()):
            place = inner
            continue
        break
    place[key] = data.draw(VALUES)

    spec = read(yaml.safe_dump(document, allow_unicode=True).encode("utf-8", "surrogatepass"))

    if spec is not None:  # an accepted definition can be run: its defaults resolve and its templates render
        render(spec)


@UNHURRIED
@given(st.text(alphabet="{}%.|()[]'\"+*~-<= adiprsm_0129xnolefk", max_size=60))
def test_random_template_renders_or_is_refused(text: str) -> None:
    task = TaskSpec(
        name=TaskName("a"), kind=TaskKind.PYTHON, script="a.py", args=("{{ " + text + " }}", text)
    )
    parameters = {"x": ParameterSpec(type="integer", default=1)}

    render(PipelineSpec(name=PipelineName("p"), parameters=parameters, tasks=(task,)))


@UNHURRIED
@given(
    st.sampled_from(["string", "integer", "number", "boolean"]),
    VALUES,
    st.booleans(),
    st.none() | st.integers(-5, 5),
)
def test_resolved_parameter_has_its_type_and_keeps_its_bounds(
    kind: str, value: Any, strings: bool, minimum: int | None
) -> None:
    low = minimum if kind in ("integer", "number") else None
    spec = PipelineSpec(name=PipelineName("p"), parameters={"x": ParameterSpec(type=kind, minimum=low)})
    try:
        resolved = resolve_parameters(spec, {"x": value}, strings=strings)["x"]
    except InvalidParametersError:
        return

    assert (
        type(resolved)
        in {"string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,)}[kind]
    )
    assert low is None or resolved >= low


FIELD = st.sampled_from(["*", "*/2", "0", "1", "2", "1,2", "1-5", "30", "*/15"])
ZONES = ["UTC", "America/New_York", "Australia/Lord_Howe", "America/Santiago", "Africa/Casablanca"]


@UNHURRIED
@given(
    st.tuples(
        FIELD, FIELD, st.sampled_from(["*", "1", "31", "L"]), st.sampled_from(["*", "3", "11"]), st.just("*")
    ),
    st.sampled_from(ZONES),
    st.datetimes(datetime(2012, 1, 1), datetime(2014, 1, 1), timezones=st.just(UTC)),
    st.integers(0, 200),
)
def test_fire_times_rise_lie_within_the_question_and_do_not_depend_on_where_it_is_cut(
    fields: tuple[str, ...], zone: str, after: datetime, hours: int
) -> None:
    cron = " ".join(fields)
    try:
        check_cron(cron)
    except SuggestingError:
        return
    schedule, until = Schedule(cron=cron, timezone=zone), after + timedelta(days=3)

    whole = fires_between(schedule, after, until, 10_000)

    assert list(whole) == sorted(set(whole))
    assert all(after < fire <= until for fire in whole)
    cut = min(after + timedelta(minutes=20 * hours), until)
    assert fires_between(schedule, after, cut, 10_000) + fires_between(schedule, cut, until, 10_000) == whole
