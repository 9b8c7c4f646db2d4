"""Sends alerts. Each target has its own thread, so that a slow target delays no other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor

import structlog

from nimbus.domain.alerts import Alert, DeliveryFailure, message
from nimbus.engine.news import AlertTried, News
from nimbus.ports import AlertNotSentError, AlertTarget

_log = structlog.get_logger(__name__)


_NOT_SURE = "this scheduler did not know whether it leads"


class AlertSender:
    """Threads `nimbus-alert-<target>_0`. The engine gives each at most one alert at a time."""

    def __init__(
        self,
        targets: Mapping[str, AlertTarget],
        *,
        cluster: str,
        public_url: str,
        leads_in: Callable[[int], bool],
        tell: Callable[[News], None],
    ) -> None:
        self._targets = targets
        self._cluster, self._public_url = cluster, public_url
        self._leads_in = leads_in
        self._tell = tell
        self._pools = {
            name: ThreadPoolExecutor(1, thread_name_prefix=f"nimbus-alert-{name}") for name in targets
        }

    def start(self, alert: Alert) -> None:
        """Send an alert; the result comes as news. Any thread; does not block."""
        pool = self._pools.get(alert.target)
        if pool is None:
            error = f"this scheduler's configuration has no target {alert.target} (alerts.targets)"
            self._tell(AlertTried(alert.claim, DeliveryFailure(error)))
            return
        try:
            pool.submit(self._send, alert)
        except RuntimeError:  # closed meanwhile: the next leader sends it
            _log.info("alert_left", alert=alert.id)

    def close(self) -> None:
        """Start no more tries. A try under way goes on until its own deadline."""
        for pool in self._pools.values():
            pool.shutdown(wait=False, cancel_futures=True)

    def _send(self, alert: Alert) -> None:
        # A later leader sends the alert with a note that it may repeat. A late try of ours would be a repeat
        # without that note, even if this scheduler is the later leader.
        if not self._leads_in(alert.epoch):
            self._tell(
                AlertTried(alert.claim, DeliveryFailure(_NOT_SURE))
            )  # if the epoch goes on, it is tried again
            return
        failure = None
        try:
            words = message(alert, cluster=self._cluster, public_url=self._public_url)
            self._targets[alert.target].send(words)
        except AlertNotSentError as exc:
            failure = DeliveryFailure(str(exc), exc.doubtful)
        except Exception as exc:  # noqa: BLE001 - the top of a pool's thread
            _log.exception("alert_failed", alert=alert.id)
            failure = DeliveryFailure(f"{type(exc).__name__}: {exc}", doubtful=True)
        self._tell(AlertTried(alert.claim, failure))
