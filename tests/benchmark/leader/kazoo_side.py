"""kazoo as a contender: several Elections on one client, each with a thread, which `run` blocks."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from datetime import timedelta

from kazoo.client import KazooClient
from kazoo.recipe.election import Election

from tests.benchmark.leader.clock import now_ns

Lead = Callable[[int, int, int], None]
_END_LIMIT_S = 10.0


class KazooSide:
    """See the module. One thread calls `join` and `close`."""

    def __init__(self, hosts: str, path: str, session_timeout: timedelta, lead: Lead) -> None:
        logging.getLogger("kazoo").setLevel(logging.WARNING)
        self._path, self._lead = path, lead
        self._client = KazooClient(hosts, timeout=session_timeout.total_seconds())
        self._client.start(timeout=15)
        self._contenders: dict[int, _Contender] = {}

    def join(self, participant: int) -> None:
        election = self._client.Election(self._path, str(participant))
        self._contenders[participant] = _Contender(participant, election, self._lead)

    def close(self, participant: int) -> tuple[int, int]:
        return self._contenders.pop(participant).close()

    def cost(self, participant: int, pairs: int) -> dict[str, float]:
        raise NotImplementedError("kazoo has no fence, and no check at the point of use")

    def end(self) -> None:
        self._client.stop()
        self._client.close()


class _Contender:
    """Runs a leader function, which returns when `close` is called."""

    def __init__(self, participant: int, election: Election, lead: Lead) -> None:
        self._participant, self._election, self._lead = participant, election, lead
        self._leave = threading.Event()
        self._called = self._returned = 0
        self._thread = threading.Thread(target=self._run, name=f"contender-{participant}", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._election.run(self._function)
        self._returned = now_ns()

    def _function(self) -> None:
        self._lead(self._participant, now_ns(), 0)
        self._leave.wait()
        # In kazoo's favour: the time runs from the function's return, without the wake-up of its thread.
        self._called = now_ns()

    def close(self) -> tuple[int, int]:
        self._leave.set()
        self._election.cancel()  # for a waiting participant; this does not interrupt a leader
        self._thread.join(_END_LIMIT_S)
        return self._called, self._returned
