"""Builds the alert objects of the engine, the API and the doctor from the section `alerts`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec

from nimbus.adapters.alerts import AppriseService, Mailbox, WebhookTarget
from nimbus.api.services import AlertTests
from nimbus.config import InvalidConfigurationError, Settings
from nimbus.config.problems import Problem
from nimbus.config.services import AlertTargetSection
from nimbus.definition.build import notify_rules
from nimbus.domain.cluster.alerts import AlertMessage
from nimbus.engine.events import Event
from nimbus.engine.policy import AlertPolicy
from nimbus.engine.sending import AlertSender
from nimbus.ports import AlertNotSentError, AlertTarget


def alert_targets(settings: Settings, environ: Mapping[str, str]) -> dict[str, AlertTarget]:
    """All targets, by name. Secrets are read from `environ` and files at each try.

    Raises InvalidConfigurationError: one needs an extra that is not installed.
    """
    if problems := missing_extras(settings):
        raise InvalidConfigurationError(problems)
    return {name: _target(name, target, environ) for name, target in settings.alerts.targets.items()}


def missing_extras(settings: Settings) -> list[Problem]:
    """Targets that cannot send on this host."""
    if find_spec("apprise") is not None:
        return []
    return [
        Problem(
            file="configuration",
            key=f"alerts.targets.{name}",
            message="is of kind apprise: install the extra, pip install 'nimbus-scheduler[apprise]'",
        )
        for name, target in settings.alerts.targets.items()
        if target.kind == "apprise"
    ]


def alert_policy(settings: Settings) -> AlertPolicy:
    """Which alerts go to which targets."""
    alerts = settings.alerts
    return AlertPolicy(
        targets=frozenset(alerts.targets),
        notify=notify_rules(alerts.notify),
        give_up_after=alerts.give_up_after,
    )


def alert_sender(
    settings: Settings,
    targets: Mapping[str, AlertTarget],
    *,
    leads_in: Callable[[int], bool],
    enqueue: Callable[[Event], None],
) -> AlertSender:
    """The sender of alerts, which works while this scheduler leads."""
    return AlertSender(
        targets,
        cluster=_cluster(settings),
        public_url=settings.alerts.public_url or settings.scheduler.advertise_url,
        leads_in=leads_in,
        enqueue=enqueue,
    )


def alert_tests(settings: Settings, targets: Mapping[str, AlertTarget]) -> AlertTests:
    """The tests of targets, from this scheduler."""

    def send(name: str) -> None:
        now = datetime.now(UTC)
        about = f"This is a test, sent by scheduler {settings.scheduler.id}. There is nothing to do."
        cluster = _cluster(settings)
        words = AlertMessage(
            id=f"test.{settings.scheduler.id}.{now:%Y%m%dt%H%M%S%f}.{name}",
            subject=f"[{cluster}] test of the alert target {name}",
            text=f"{about}\n",
            fields={"event": "test", "cluster": cluster, "about": about, "raised_at": now.isoformat()},
        )
        targets[name].send(words)

    return AlertTests(
        kinds={name: target.kind for name, target in settings.alerts.targets.items()}, send=send
    )


def _cluster(settings: Settings) -> str:
    return settings.cluster.root.strip("/")


def _target(name: str, target: AlertTargetSection, environ: Mapping[str, str]) -> AlertTarget:
    secret = partial(secret_of, name, target, environ)
    if target.kind == "webhook":
        return WebhookTarget("" if target.url is None else target.url.get_secret_value(), secret)
    if target.kind == "apprise":
        return AppriseService(secret)
    host, _, port = (target.smtp or "").rpartition(":")
    return Mailbox(
        host=host.strip("[]"),
        port=int(port),
        tls=target.tls,
        sender=target.sender or "",
        recipients=tuple(target.to or ()),
        username=target.username,
        password=secret,
    )


def secret_of(name: str, target: AlertTargetSection, environ: Mapping[str, str]) -> str | None:
    """The secret of a target, if it has one. Raises AlertNotSentError: it cannot be read."""
    if target.secret_variable is not None:
        if not (secret := environ.get(target.secret_variable)):
            raise AlertNotSentError(f"{name}: the variable {target.secret_variable} is not set")
        return secret
    if target.secret_file is None:
        return None
    try:
        return target.secret_file.read_text(encoding="utf-8").strip()
    except (OSError, ValueError) as exc:
        raise AlertNotSentError(f"{name}: {target.secret_file} cannot be read: {exc}") from exc
