"""One place that chooses the election by configuration."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leader.clock import Clock, boottime
from leader.config import ElectionConfig
from leader.elector import Elector
from leader.errors import ElectionConfigError
from leader.guard import Guard
from leader.journal import Journal
from leader.local.memory import MemoryElection, MemoryElector
from leader.local.single import SingleElector
from leader.protocol.participant import Participant
from leader.queue import LeaderLockQueue
from leader.runtime.callbacks import Electable
from leader.zookeeper.session import ZooKeeperSession

_SHARED = MemoryElection()
"""What `memory` means where nobody gives another: one for each process, told apart by root."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectorSetup:
    """What an elector is made of. Which parts are needed depends on its kind.

    Args:
        config: For every kind; `root` names the election.
        participant: Who we are.
        guard: See `Guard`.
        electable: Told of each leadership.
        session: Started; `zookeeper` needs it.
        election: For `memory`: shared by all who queue together; one for the process without it.
        epoch_file: For `single`: see `SingleElector`.
        journal: Told of each change; log lines without it.
        clock: Must not stand still while the machine sleeps. `memory` takes its election's.
    """

    config: ElectionConfig
    participant: Participant
    guard: Guard
    electable: Electable
    session: ZooKeeperSession | None = None
    election: MemoryElection | None = None
    epoch_file: Path | None = None
    journal: Journal | None = None
    clock: Clock = boottime


def make_elector(kind: str, setup: ElectorSetup) -> Elector:
    """Make the elector that a configuration names.

    Args:
        kind: `zookeeper`, `single`, `memory`, or `dotted.path:factory`, a callable of yours that takes an
            `ElectorSetup` and returns an `Elector`.
        setup: What it is made of.

    Raises:
        ElectionConfigError: No such kind, or one that cannot be made of this setup.
    """
    maker = _BUILT_IN.get(kind)
    if maker is not None:
        return maker(setup)
    if ":" not in kind:
        raise ElectionConfigError(
            f"elector {kind!r} is not known; give one of {', '.join(sorted(_BUILT_IN))}, or "
            f"dotted.path:factory for one of your own"
        )
    made = _factory(kind)(setup)
    if not isinstance(made, Elector):
        raise ElectionConfigError(
            f"elector {kind!r} made a {type(made).__name__}, which lacks methods of leader.elector.Elector"
        )
    return made


def _zookeeper(setup: ElectorSetup) -> Elector:
    if setup.session is None:
        raise ElectionConfigError(
            "elector 'zookeeper' needs a started ZooKeeperSession; give one in `session`"
        )
    return LeaderLockQueue(
        session=setup.session,
        config=setup.config,
        participant=setup.participant,
        guard=setup.guard,
        electable=setup.electable,
        journal=setup.journal,
        clock=setup.clock,
    )


def _single(setup: ElectorSetup) -> Elector:
    return SingleElector(
        config=setup.config,
        participant=setup.participant,
        guard=setup.guard,
        electable=setup.electable,
        journal=setup.journal,
        clock=setup.clock,
        epoch_file=setup.epoch_file,
    )


def _memory(setup: ElectorSetup) -> Elector:
    return MemoryElector(
        setup.election or _SHARED,
        config=setup.config,
        participant=setup.participant,
        guard=setup.guard,
        electable=setup.electable,
        journal=setup.journal,
    )


_BUILT_IN: dict[str, Callable[[ElectorSetup], Elector]] = {
    "memory": _memory,
    "single": _single,
    "zookeeper": _zookeeper,
}


def _factory(kind: str) -> Callable[[ElectorSetup], object]:
    module_name, _, name = kind.partition(":")
    try:
        found: object = importlib.import_module(module_name)
        for part in name.split("."):
            found = getattr(found, part)
    except (ImportError, AttributeError, ValueError) as exc:
        raise ElectionConfigError(
            f"elector {kind!r} cannot be loaded ({type(exc).__name__}: {exc}); check the spelling, and that "
            f"the module is on the path"
        ) from exc
    if not callable(found):
        raise ElectionConfigError(f"elector {kind!r} is no callable but a {type(found).__name__}")
    return found
