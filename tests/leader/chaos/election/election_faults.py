"""The faults of an election: each is injected, held for a while, and ended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta
from random import Random

from tests.fault_proxy.proxy import Direction, Op
from tests.leader.chaos.election.election_laws import moment_of
from tests.leader.chaos.election.fault_records import Draw, Struck
from tests.leader.chaos.election.participant import now_ns
from tests.leader.chaos.election.stage import Member, Stage
from tests.leader.election.history import Kind as Happened
from tests.leader.zookeeper_ensemble import EnsembleServer

_OPS = (None, None, Op.MULTI, Op.CREATE, Op.GET_CHILDREN, Op.EXISTS, Op.GET_DATA, Op.HANDSHAKE)
_TRAP_LIMIT = timedelta(seconds=1.5)


def draw(kind: str, rng: Random, session: timedelta) -> Draw:
    """Draw a random fault. Equal seeds give equal draws, independent of the run."""
    least, most = KINDS[kind].hold
    return Draw(
        kind=kind,
        at_leader=rng.random() < 0.7,
        index=rng.randrange(1_000),
        hold=session * rng.uniform(least, most),
        op=rng.choice(_OPS),
        nth=rng.randrange(1, 7),
        coin=rng.random() < 0.5,
    )


def strike(stage: Stage, drawn: Draw) -> Struck:
    """Inject a fault. Returns when it is active."""
    return KINDS[drawn.kind].strike(stage, drawn)


def _victim(stage: Stage, drawn: Draw) -> Member:
    line = stage.leading()
    led_by = None if line is None else line.name
    free = [member for member in stage.members if member.name not in drawn.spared]
    leaders = [member for member in free if member.name == led_by]
    others = [member for member in free if member.name != led_by]
    return leaders[0] if leaders and drawn.at_leader else others[drawn.index % len(others)]


def _kill(stage: Stage, drawn: Draw) -> Struck:
    victim = _victim(stage, drawn)
    victim.kill()
    return Struck(drawn.kind, victim.name, now_ns(), victim.spawn)


def _stop(stage: Stage, drawn: Draw) -> Struck:
    victim = _victim(stage, drawn)
    at = now_ns()
    victim.stop(timedelta(seconds=15))
    return Struck(drawn.kind, victim.name, at, victim.spawn)


def _pause(stage: Stage, drawn: Draw) -> Struck:
    victim = _victim(stage, drawn)
    victim.pause()
    return Struck(drawn.kind, victim.name, now_ns(), victim.resume)


def _black_hole(stage: Stage, drawn: Draw) -> Struck:
    victim = _victim(stage, drawn)
    victim.wires.black_hole(Direction.BOTH)
    return Struck(drawn.kind, victim.name, now_ns(), victim.wires.heal)


def _half_black_hole(stage: Stage, drawn: Draw) -> Struck:
    victim = _victim(stage, drawn)
    victim.wires.black_hole(Direction.TO_CLIENT if drawn.coin else Direction.TO_SERVER)
    return Struck(drawn.kind, victim.name, now_ns(), victim.wires.heal)


def _stall(stage: Stage, drawn: Draw) -> Struck:
    victim = _victim(stage, drawn)
    victim.wires.stall()
    return Struck(drawn.kind, victim.name, now_ns(), victim.wires.heal)


def _delay(stage: Stage, drawn: Draw) -> Struck:
    victim = _victim(stage, drawn)
    victim.wires.delay(stage.session / 10)
    return Struck(drawn.kind, victim.name, now_ns(), victim.wires.heal)


def _cut(stage: Stage, drawn: Draw) -> Struck:
    victim = _victim(stage, drawn)
    traps = victim.wires.trap(after=drawn.kind == "cut_after", op=drawn.op, nth=drawn.nth)
    if drawn.coin or drawn.op not in (None, Op.MULTI):
        victim.wires.cut()  # a new connection repeats all its requests
    done = stage.wait(_TRAP_LIMIT, lambda: any(trap.sprung for trap in traps))
    return Struck(drawn.kind, victim.name, now_ns(), victim.wires.heal, done=done)


def _server(stage: Stage, drawn: Draw) -> EnsembleServer:
    leader = stage.ensemble.leader
    if leader is not None and drawn.coin:
        return leader
    return stage.ensemble.servers[drawn.index % len(stage.ensemble.servers)]


def _server_killed(stage: Stage, drawn: Draw) -> Struck:
    server = _server(stage, drawn)
    stage.peers.refuse(server.number)
    server.kill()

    def mend() -> None:
        stage.peers.heal()
        server.start()

    return Struck(drawn.kind, server.name, now_ns(), mend)


def _server_paused(stage: Stage, drawn: Draw) -> Struck:
    server = _server(stage, drawn)
    server.pause()
    return Struck(drawn.kind, server.name, now_ns(), server.resume)


def _server_isolated(stage: Stage, drawn: Draw) -> Struck:
    """Isolate a server. Its clients do not notice: it answers pings for six more ticks (CURATOR-444)."""
    at = _victim(stage, drawn).wires.server()
    server = stage.ensemble.servers[drawn.index % len(stage.ensemble.servers) if at is None else at]
    stage.peers.isolate(server.number)
    return Struck(drawn.kind, server.name, now_ns(), stage.peers.heal)


def _latch_deleted(stage: Stage, drawn: Draw) -> Struck:
    """Delete the leader's latch. The leader's watch may fire later than its successor's."""
    leader, before_ns = stage.leading(), now_ns()
    stage.delete_first_latch()
    if leader is None:
        return Struck(drawn.kind, "first latch", now_ns(), _nothing)
    must_know_ns = now_ns() + stage.session // timedelta(microseconds=1) * 1_000
    deposed = moment_of(Happened.DEPOSED, leader.name, before_ns, must_know_ns, of=leader)
    return Struck(drawn.kind, leader.name, now_ns(), _nothing, moments=(deposed,))


def _leader_node_deleted(stage: Stage, drawn: Draw) -> Struck:
    stage.delete_leader_node()
    return Struck(drawn.kind, "leader node", now_ns(), _nothing)


def _wiped(stage: Stage, drawn: Draw) -> Struck:
    """Delete all data of all servers. The repair is what the error message tells the operator to do."""
    highest = max(line.epoch or 0 for line in stage.lines())
    ensemble, before_ns = stage.ensemble, now_ns()
    ensemble.kill()
    at_ns = now_ns()
    for server in ensemble.servers:
        server.wipe()
    reborn = moment_of(Happened.REBORN, "ensemble", before_ns, now_ns())
    ensemble.start()
    stage.renew_operator()

    def mend() -> None:
        # Epochs start again from the beginning, or continue above the highest one so far.
        for member in stage.members:
            member.kill()
        if drawn.coin:
            stage.set_epoch(highest + 10)
        for member in stage.members:
            member.spawn()

    return Struck(drawn.kind, "ensemble", at_ns, mend, moments=(reborn,))


def _nothing() -> None:
    """No repair: the participants recover by themselves."""


@dataclass(frozen=True, slots=True)
class Kind:
    """How a kind of fault is injected.

    Args:
        strike: Injects it.
        hold: Shortest and longest duration, in session timeouts.
        of_servers: Whether a new leader may have to wait for the ensemble's own election.
    """

    strike: Callable[[Stage, Draw], Struck]
    hold: tuple[float, float] = (0.0, 0.0)
    of_servers: bool = False


KINDS = {
    "kill": Kind(_kill, (0.2, 1.8)),
    "stop": Kind(_stop, (0.0, 0.5)),
    "pause": Kind(_pause, (1.3, 3.0)),
    "black_hole": Kind(_black_hole, (1.3, 2.5)),
    "half_black_hole": Kind(_half_black_hole, (1.3, 2.5)),
    "stall": Kind(_stall, (0.5, 2.0)),
    "delay": Kind(_delay, (0.5, 1.0)),
    "cut_before": Kind(_cut),
    "cut_after": Kind(_cut),
    "server_killed": Kind(_server_killed, (0.2, 1.5), of_servers=True),
    "server_paused": Kind(_server_paused, (0.5, 2.0), of_servers=True),
    "server_isolated": Kind(_server_isolated, (1.3, 2.5), of_servers=True),
    "latch_deleted": Kind(_latch_deleted),
    "leader_node_deleted": Kind(_leader_node_deleted),
    "wiped": Kind(_wiped, (1.0, 2.0), of_servers=True),
}
PARTICIPANT_KINDS = [kind for kind in KINDS if not KINDS[kind].of_servers]
