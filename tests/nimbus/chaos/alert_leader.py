"""A leader process that is killed while it sends alerts: see `test_alert_leader_kills`."""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import timedelta
from typing import Any

from nimbus.adapters.alerts import WebhookTarget
from nimbus.domain.cluster.alerts import AlertEvent, NotifyRule
from nimbus.engine.decision import SendAlert
from nimbus.engine.policy import AlertPolicy, Policy
from nimbus.engine.sending import AlertSender
from nimbus.ports import AlertTarget
from tests.benchmark.engine.child import play
from tests.benchmark.engine.engine_role import EngineRole
from tests.nimbus.chaos import backfill_leader

TARGET = "oncall"
SPEC = replace(backfill_leader.SPEC, notify=(NotifyRule(on=(AlertEvent.SUCCEEDED,), to=TARGET),))


class AlertingRole(EngineRole):
    """Sends alerts like a scheduler."""

    def __init__(
        self,
        hosts: str,
        root: str,
        name: str,
        target: AlertTarget,
        session_timeout: timedelta = timedelta(seconds=3),
    ) -> None:
        policy = Policy(keep_finished=timedelta(0), alerts=AlertPolicy(targets=frozenset({TARGET})))
        super().__init__(hosts, root, name, policy, session_timeout)
        self._sender = AlertSender(
            {TARGET: target},
            cluster="test",
            public_url="http://127.0.0.1",
            leads_in=self._leads_in,
            enqueue=self.engine.enqueue,
        )

    def _effect(self, effect: Any) -> None:
        if isinstance(effect, SendAlert):
            self._sender.start(effect.alert)
        else:
            super()._effect(effect)


def main(hosts: str, root: str, name: str, url: str) -> int:
    """Queue for the lead, until standard input ends."""
    role = AlertingRole(hosts, root, name, WebhookTarget(url, lambda: None))
    role._specs[backfill_leader.RELEASE.digest] = SPEC
    role.election.add_to_leader_lock_queue()
    return play(role)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
