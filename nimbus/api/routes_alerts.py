"""Routes about alerts: sent and waiting ones, and tests of the targets."""

from __future__ import annotations

from fastapi import APIRouter

from nimbus.api.models import Model, PageModel, of
from nimbus.api.paging import Paging
from nimbus.api.problems import NotFoundError
from nimbus.api.requests import PipelineNameText
from nimbus.api.services import ApiServices
from nimbus.domain.alerts import Alert
from nimbus.ports import AlertNotSentError


@of(Alert, leave_out=("epoch", "runbook"))
class AlertModel(Model):
    """One message to one target."""


class AlertsModel(PageModel):
    """Waiting alerts, alerts sent in the last hour, and failed ones of the last 7 days; oldest first."""

    alerts: list[AlertModel]
    targets: dict[str, str]
    """Kinds of the answering scheduler's targets, by name."""


class AlertTestModel(Model):
    """Result of a test."""

    target: str
    sent: bool
    error: str


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["alerts"], prefix=prefix)

    @routes.get("/alerts")
    def alerts(paging: Paging) -> AlertsModel:
        """Waiting alerts, and alerts that ended lately."""
        page = paging.page(services.reader.alerts(), lambda one: (one.raised_at.isoformat(), one.id))
        return AlertsModel(
            alerts=[_model(alert) for alert in page.rows],
            targets=dict(services.alerts.kinds),
            next_cursor=page.next_cursor,
            at_least=page.at_least,
        )

    @routes.post("/alerts/targets/{name}/test")
    def test(name: PipelineNameText) -> AlertTestModel:
        """Send a test message from the answering scheduler. It is not stored, and not tried again."""
        if name not in services.alerts.kinds:
            known = ", ".join(sorted(services.alerts.kinds)) or "none"
            raise NotFoundError(
                "unknown_target", f"there is no alert target {name} in alerts.targets; known: {known}."
            )
        try:
            services.alerts.send(name)
        except AlertNotSentError as exc:
            return AlertTestModel(target=name, sent=False, error=str(exc))
        return AlertTestModel(target=name, sent=True, error="")

    return routes


def _model(alert: Alert) -> AlertModel:
    return AlertModel(**{name: getattr(alert, name) for name in AlertModel.model_fields})
