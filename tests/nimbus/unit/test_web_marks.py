"""Shapes of states, and words of pages."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from importlib import resources
from itertools import chain

import pytest

from nimbus.domain.ids import PipelineName
from nimbus.domain.pipelines.pipeline import PipelineSpec, Schedule
from nimbus.domain.runs.run import RunState
from nimbus.domain.runs.task_run import TaskState
from nimbus.domain.wording import counted
from nimbus.web.pipeline.foresight import following, upcoming
from nimbus.web.pipeline.grid import mark
from nimbus.web.words import with_code
from tests.nimbus.definitions import active


def test_every_state_has_a_shape_of_its_own() -> None:
    states = {state.value for state in chain(RunState, TaskState)}

    assert len({mark(state, 0, 0) for state in states}) == len(states)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("see `nimbus run list`.", "see <code>nimbus run list</code>."),
        ("`<b>` & <i>", "<code>&lt;b&gt;</code> &amp; &lt;i&gt;"),
        ("one ` alone", "one ` alone"),
        ("", ""),
    ],
)
def test_what_stands_between_backticks_is_shown_as_code(text: str, shown: str) -> None:
    assert with_code(text) == shown


@pytest.mark.parametrize(("count", "said"), [(0, "0 files"), (1, "1 file"), (2, "2 files")])
def test_one_has_no_s(count: int, said: str) -> None:
    assert counted(count, "file") == said


def test_fires_on_pages_come_after_the_position_if_a_clock_was_ahead() -> None:
    now = datetime(2026, 3, 1, 12, 30, tzinfo=UTC)
    schedule = Schedule(cron="0 * * * *", timezone="UTC")
    record = active(
        PipelineSpec(name=PipelineName("p"), schedule=schedule, tasks=()),
        schedule_position=now + timedelta(hours=2),
    )
    hours = [datetime(2026, 3, 1, hour, tzinfo=UTC) for hour in (15, 16)]

    assert upcoming(record, now) == hours[0]
    assert following(record, now, 2) == hours


def test_style_takes_sizes_of_type_and_colours_from_its_scale_alone() -> None:
    style = (resources.files("nimbus.web") / "static" / "style.css").read_text()
    scale, _, rules = style.partition("\n}\n")

    assert len(re.findall(r"\d+px", scale.partition("--s1")[0])) == 4, "sizes of type"
    assert re.findall(r"#[0-9a-f]{3,8}\b|font(?:-size)?: *[\d.]+[a-z%]+", rules) == []
