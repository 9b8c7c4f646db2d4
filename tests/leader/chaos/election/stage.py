"""Three ZooKeeper servers, five participant processes, and their histories."""

from __future__ import annotations

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from leader import ElectionPaths
from leader.protocol.paths import in_queue_order
from nimbus.localstack.errors import LocalStackError
from tests.leader.chaos.election.history_lines import Did, Line
from tests.leader.chaos.election.participant import now_ns
from tests.leader.chaos.election.participant_process import ParticipantProcess
from tests.leader.chaos.election.wires import PeerWires, Wires
from tests.leader.zookeeper_ensemble import Ensemble

ROOT = "/chaos-election"
TICK = timedelta(milliseconds=500)
_POLL_S = 0.03
_FRESH_NS = 200_000_000
_ANSWER_LIMIT_S = 2.0
_OPERATOR_LIMIT = timedelta(seconds=20)
_END_LIMIT = timedelta(seconds=20)


class Member(ParticipantProcess):
    """A participant, and its lines to the ensemble."""

    def __init__(self, name: str, folder: Path, wires: Wires, session: timedelta) -> None:
        super().__init__(name, folder, hosts=wires.hosts, root=ROOT, session=session)
        self.wires = wires


class Stage:
    """All targets of faults, with access to their state. Main thread only."""

    def __init__(self, folder: Path, *, participants: int, session: timedelta) -> None:
        self.session, self.tick = session, TICK
        self.peers = PeerWires()
        self.ensemble = Ensemble(folder / "ensemble", tick=TICK, route=self.peers.route)
        self.members = [
            Member(f"p{number}", folder, Wires(self.ensemble.addresses), session)
            for number in range(1, participants + 1)
        ]
        self.operator = self._new_operator()
        self._last_observed: Line | None = None

    # --- reading --------------------------------------------------------------------------------

    def read(self) -> None:
        """Read the new lines of all histories."""
        news = [line for member in self.members for line in member.read() if line.did is Did.OBSERVED]
        last = [self._last_observed] if self._last_observed is not None else []
        self._last_observed = max([*last, *news], key=lambda line: line.after_ns, default=None)

    def leading(self, since_ns: int = 0) -> Line | None:
        """The last answer True of a leader, if it is recent, and newer than `since_ns`."""
        self.read()
        last = self._last_observed
        if last is None or last.before_ns < max(since_ns, now_ns() - _FRESH_NS):
            return None
        return last

    def lines(self) -> list[Line]:
        """All histories."""
        self.read()
        return [line for member in self.members for line in member.lines]

    def wait(self, limit: timedelta, condition: Callable[[], Any]) -> bool:
        """Wait until a condition is true. Returns False after `limit`."""
        until = time.monotonic() + limit.total_seconds()
        while not condition():
            if time.monotonic() > until:
                return False
            pause(_POLL_S)
        return True

    def absent(self) -> list[Member]:
        """Participants without a readable latch, or with two."""
        paths = ElectionPaths(ROOT)
        children = self.ask(self.operator.get_children_async, paths.queue) or []
        found = [self.ask(self.operator.get_async, paths.latch(child)) for child in children]
        names = Counter(each[0].decode() for each in found if each is not None)
        return [member for member in self.members if names[member.name] != 1]

    # --- the operator -----------------------------------------------------------------------------

    def renew_operator(self) -> None:
        """Connect again, because a server refuses clients that have seen newer data than it has."""
        self.operator.stop()
        self.operator.close()
        self.operator = self._new_operator()
        self.operator.start(timeout=30)

    def _new_operator(self) -> KazooClient:
        retry = {"max_tries": -1, "max_delay": 1.0}
        return KazooClient(hosts=self.ensemble.hosts, timeout=6.0, connection_retry=retry)

    def ask(self, method: Callable[..., Any], *arguments: Any, **options: Any) -> Any:
        """An answer through kazoo; None if there is none, for any reason."""
        try:
            return method(*arguments, **options).get(timeout=_ANSWER_LIMIT_S)
        except (KazooException, KazooTimeoutError):
            return None

    def delete_first_latch(self) -> None:
        """Delete the leader's latch, as an operator can."""
        paths = ElectionPaths(ROOT)
        queue = in_queue_order(self.ask(self.operator.get_children_async, paths.queue) or [])
        if queue:
            self.ask(self.operator.delete_async, paths.latch(queue[0]))

    def delete_leader_node(self) -> None:
        """Delete the leader node, a harmful action of an operator."""
        self.ask(self.operator.delete_async, ElectionPaths(ROOT).leader)

    def set_epoch(self, epoch: int) -> None:
        """Set the epoch, as the message of EpochWentBackwardsError advises."""
        path, data = ElectionPaths(ROOT).epoch, json.dumps({"schema": 1, "epoch": epoch}).encode()

        def written() -> bool:
            made = self.ask(self.operator.create_async, path, data, makepath=True)
            return made is not None or self.ask(self.operator.set_async, path, data) is not None

        if not self.wait(_OPERATOR_LIMIT, written):
            raise LocalStackError("the operator could not set the epoch")

    # --- start and end ----------------------------------------------------------------------------

    def start(self, limit: timedelta) -> None:
        """Start everything, and wait until one participant leads and all queue."""
        self.ensemble.start()
        self.operator.start(timeout=30)
        for member in self.members:
            member.spawn()
        for member in self.members:
            member.wait_ready()
        assert self.wait(limit, lambda: self.leading() and not self.absent()), "nobody leads"

    def end(self) -> list[str]:
        """Stop all participants, and wait. Returns those that did not end well."""
        for member in self.members:
            member.terminate()
        ended = {member.name: member.exit_status(_END_LIMIT) for member in self.members}
        self.read()
        return [
            f"{name} ended with {status} when told to end" for name, status in ended.items() if status != 0
        ]

    def close(self) -> None:
        """End all remaining processes."""
        for member in self.members:
            member.kill()
            member.wires.close()
        self.operator.stop()
        self.operator.close()
        self.ensemble.kill()
        self.peers.close()


def pause(seconds: float) -> None:
    """Sleep."""
    threading.Event().wait(seconds)


@contextmanager
def stage(folder: Path, *, participants: int, session: timedelta) -> Iterator[Stage]:
    """Make a stage, and end all of it afterwards."""
    made = Stage(folder, participants=participants, session=session)
    try:
        yield made
    finally:
        made.close()
