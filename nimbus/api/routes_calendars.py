"""Routes about the calendars of the cluster, which schedules follow."""

from __future__ import annotations

from fastapi import APIRouter

from nimbus.api.models import CalendarModel, CalendarsModel, CommandModel
from nimbus.api.requests import CalendarBody, PipelineNameText
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED_RESPONSES, Submit
from nimbus.config.problems import InvalidDocumentError
from nimbus.definition.calendar_file import parse_calendar
from nimbus.domain.catalog import followers
from nimbus.domain.commands import SetCalendar
from nimbus.domain.errors import RefusedError


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["calendars"], prefix=prefix)

    @routes.get("/calendars")
    def calendars() -> CalendarsModel:
        """All calendars of the cluster, with the pipelines that follow them."""
        return known_calendars(services)

    @routes.put("/calendars/{name}", status_code=202, responses=ACCEPTED_RESPONSES)
    async def set_calendar(name: PipelineNameText, body: CalendarBody, submit: Submit) -> CommandModel:
        """Set a calendar. Fire times that are not decided yet follow it, in all pipelines that name it."""
        try:
            days = parse_calendar(body.text.encode(), f"calendar {name}")
        except InvalidDocumentError as exc:
            raise RefusedError("bad_calendar", str(exc)) from exc
        return await submit(SetCalendar(name=name, days=days, reason=body.reason))

    @routes.delete("/calendars/{name}", status_code=202, responses=ACCEPTED_RESPONSES)
    async def remove_calendar(name: PipelineNameText, submit: Submit) -> CommandModel:
        """Remove a calendar. Refused while a pipeline follows it."""
        return await submit(SetCalendar(name=name, days=None))

    return routes


def known_calendars(services: ApiServices) -> CalendarsModel:
    """The calendars of the cluster, by name."""
    records = services.reader.pipelines()
    rows = [
        CalendarModel.model_validate(
            {
                "name": name,
                "followed_by": sorted(record.name for record in followers(records, name)),
                **{field: getattr(one, field) for field in ("days", "reason", "set_by", "set_at")},
            }
        )
        for name, one in sorted(services.reader.settings().calendars.items())
    ]
    return CalendarsModel(calendars=rows)
