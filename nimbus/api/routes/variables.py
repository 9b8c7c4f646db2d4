"""Variables of the cluster, which templates read as `vars.NAME`, and calendars, which schedules follow."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import AfterValidator, Field

from nimbus.api.models import CommandModel, Model, of
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import PipelineNameText, RequestBody, VariableNameText
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED, CONDITIONAL, Submit, tag_with
from nimbus.config.problems import InvalidDocumentError
from nimbus.definition.calendar_file import MAX_BYTES as MAX_CALENDAR_BYTES
from nimbus.definition.calendar_file import parse_calendar
from nimbus.domain.cluster.revisions import of_variable
from nimbus.domain.cluster.settings import LONGEST_VARIABLE, ClusterCalendar
from nimbus.domain.commands import RemoveVariable, SetCalendar, SetVariable
from nimbus.domain.errors import RefusedError
from nimbus.domain.pipelines.catalog import followers


def _as_utf8(text: str) -> str:
    text.encode()  # half a surrogate pair raises UnicodeEncodeError, which is a ValueError
    return text


class CalendarBody(RequestBody):
    """Set a calendar of the cluster."""

    text: Annotated[str, Field(max_length=MAX_CALENDAR_BYTES), AfterValidator(_as_utf8)] = Field(
        description="YAML: `weekdays` that are worked, `holidays`, `workdays`."
    )
    reason: str = Field("", max_length=500)


class VariableBody(RequestBody):
    """Set a variable of the cluster."""

    value: Annotated[str, Field(max_length=LONGEST_VARIABLE), AfterValidator(_as_utf8)] = Field(
        description="Not a secret: everybody who reaches the API can read it."
    )


class VariableModel(Model):
    """A variable of the cluster."""

    name: str
    value: str


class VariablesModel(Model):
    """Variables of the cluster."""

    variables: dict[str, str]


@of(ClusterCalendar)
class CalendarModel(Model):
    """A calendar of the cluster."""

    name: str
    followed_by: list[str]
    """Pipelines with a schedule that follows it."""


class CalendarsModel(Model):
    """The calendars of the cluster, by name. Those in releases are not among them."""

    calendars: list[CalendarModel]


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter()
    routes.include_router(_variable_routes(services, prefix))
    routes.include_router(_calendar_routes(services, prefix))
    return routes


def _variable_routes(services: ApiServices, prefix: str) -> APIRouter:
    routes = APIRouter(tags=["variables"], prefix=f"{prefix}/variables")

    @routes.get("")
    def variables() -> VariablesModel:
        """All variables, by name."""
        return VariablesModel(variables=dict(sorted(services.reader.settings().variables.items())))

    @routes.get("/{name}")
    def variable(name: VariableNameText, response: Response) -> VariableModel:
        """One variable."""
        value = services.reader.settings().variables.get(name)
        if value is None:
            raise ObjectNotFoundError(
                "unknown_variable", f"there is no variable {name}: see `nimbus var list`."
            )
        tag_with(response, of_variable(name, value))
        return VariableModel(name=name, value=value)

    @routes.put("/{name}", **CONDITIONAL)
    async def set_variable(name: VariableNameText, body: VariableBody, submit: Submit) -> CommandModel:
        """Set a variable. Existing runs keep the old value."""
        return await submit(SetVariable(name=name, value=body.value))

    @routes.delete("/{name}", **CONDITIONAL)
    async def remove_variable(name: VariableNameText, submit: Submit) -> CommandModel:
        """Remove a variable. Existing runs keep its value."""
        return await submit(RemoveVariable(name=name))

    return routes


def _calendar_routes(services: ApiServices, prefix: str) -> APIRouter:
    routes = APIRouter(tags=["calendars"], prefix=prefix)

    @routes.get("/calendars")
    def calendars() -> CalendarsModel:
        """All calendars of the cluster, with the pipelines that follow them."""
        return known_calendars(services)

    @routes.put("/calendars/{name}", **ACCEPTED)
    async def set_calendar(name: PipelineNameText, body: CalendarBody, submit: Submit) -> CommandModel:
        """Set a calendar. Fire times that are not decided yet follow it, in all pipelines that name it."""
        try:
            days = parse_calendar(body.text.encode(), f"calendar {name}")
        except InvalidDocumentError as exc:
            raise RefusedError("bad_calendar", str(exc)) from exc
        return await submit(SetCalendar(name=name, days=days, reason=body.reason))

    @routes.delete("/calendars/{name}", **ACCEPTED)
    async def remove_calendar(name: PipelineNameText, submit: Submit) -> CommandModel:
        """Remove a calendar. Refused while a pipeline follows it."""
        return await submit(SetCalendar(name=name, days=None))

    return routes


def known_calendars(services: ApiServices) -> CalendarsModel:
    """The calendars of the cluster, by name."""
    records = services.reader.pipelines()
    rows = [
        CalendarModel.from_records(
            calendar, name=name, followed_by=sorted(record.name for record in followers(records, name))
        )
        for name, calendar in sorted(services.reader.settings().calendars.items())
    ]
    return CalendarsModel(calendars=rows)
