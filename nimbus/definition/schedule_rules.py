"""Rules of schedules, their parameters and their calendars."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial

from nimbus.config.problems import KeyPath
from nimbus.definition.build import build_parameter, schedules_of
from nimbus.definition.cron import expanded, names_its_times
from nimbus.definition.faults import KeyFault
from nimbus.definition.models import PipelineKeys, ScheduleKeys
from nimbus.domain.pipelines.calendars import OnHolidays
from nimbus.domain.pipelines.parameters import value_fault
from nimbus.domain.pipelines.pipeline import CatchUp
from nimbus.domain.pipelines.webhooks import path_fault
from nimbus.domain.wording import closest


def schedule_faults(model: PipelineKeys) -> Iterator[KeyFault]:
    """Faults of the schedules and their calendars."""
    schedules = schedules_of(model)
    if model.schedule is not None and model.schedules is not None:
        yield KeyFault(("schedules",), "cannot stand beside `schedule`: move that one here, under a name")
    if model.deadline is not None and not schedules:
        yield KeyFault(("deadline",), "needs a schedule, and there is none")
    if model.schedules and model.start is not None:
        yield KeyFault(("schedules",), "data start the runs: write one `schedule`, which ends intervals")
    first = next(iter(schedules.values()), None)
    for name, schedule in schedules.items():
        path: KeyPath = ("schedules", name) if name else ("schedule",)
        for key, message in _one_schedule_faults(model, schedule):
            yield KeyFault((*path, *key), message)
        if first is not None and schedule.timezone != first.timezone:
            why = f"is not {first.timezone}: all schedules of a pipeline have one zone, that of its dates"
            yield KeyFault((*path, "timezone") if "timezone" in schedule.model_fields_set else path, why)
    needed = sorted(name for name, parameter in model.parameters.items() if parameter.required)
    if model.start is not None and needed:
        yield KeyFault(
            ("start",) if not schedules else ("schedule",),
            f"a run that data start gets no values of parameters, and {', '.join(needed)} has no default; "
            "give it one",
        )


def _one_schedule_faults(model: PipelineKeys, schedule: ScheduleKeys) -> Iterator[tuple[KeyPath, str]]:
    if schedule.catchup is CatchUp.NONE and schedule.catchup_window is not None:
        yield ("catchup_window",), "has no effect with catchup: none; remove one of them"
    for name, value in schedule.parameters.items():
        if (parameter := model.parameters.get(name)) is None:
            yield ("parameters", name), f"the pipeline has no parameter {name}"
        elif (fault := value_fault(build_parameter(parameter), value)) is not None:
            yield ("parameters", name), fault
    needed = sorted(
        name
        for name, parameter in model.parameters.items()
        if parameter.required and name not in schedule.parameters
    )
    if needed and model.start is None:
        why = f"its runs get no value of {', '.join(needed)}, which has no default: give it one"
        yield (), f"{why}, or write `parameters` here"
    yield from _calendar_faults(model, schedule)


def _calendar_faults(model: PipelineKeys, schedule: ScheduleKeys) -> Iterator[tuple[KeyPath, str]]:
    for key in ("on_holidays", "working_day"):
        if getattr(schedule, key) is not None and schedule.calendar is None:
            yield (key,), "needs a `calendar`, which says what days are worked"
    for key in ("calendar", "parameters") if model.start is not None else ():
        if getattr(schedule, key):
            yield (key,), "has no effect with `start`: data start the runs; remove it"
    if schedule.working_day is not None:
        day, _, weekday = expanded(schedule.cron).split()[2:]
        if (day, weekday) != ("*", "*"):
            yield ("cron",), "names days, and `working_day` does, too: write * for its days"
        if schedule.on_holidays is not None:
            yield ("on_holidays",), "has no effect with `working_day`; remove one of them"
        if schedule.working_day == 0:
            yield ("working_day",), "must be 1 for the first of a month, -1 for the last, and so on, not 0"
    if schedule.on_holidays not in (None, OnHolidays.SKIP) and not names_its_times(schedule.cron):
        yield ("on_holidays",), "moves times of a day, and `cron` has * for minutes or hours: use skip"


def webhook_faults(model: PipelineKeys) -> Iterator[KeyFault]:
    """Faults: parameters that the pipeline does not have, or that it needs and the webhook does not give."""
    if model.webhook is None:
        return
    given = model.webhook.params
    for name, text in given.items():
        if name not in model.parameters:
            yield KeyFault(
                ("webhook", "params", name),
                "the pipeline has no such parameter",
                partial(closest, name, model.parameters),
            )
        elif (fault := path_fault(text)) is not None:
            yield KeyFault(("webhook", "params", name), fault)
    needed = sorted(
        name for name, parameter in model.parameters.items() if parameter.required and name not in given
    )
    if needed:
        yield KeyFault(
            ("webhook",), f"does not give {', '.join(needed)}, which has no default; add it to params"
        )
