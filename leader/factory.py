"""Makes an elector from its name in a configuration."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from leader.clock import Clock, boottime
from leader.config import ElectionConfig
from leader.elector import Electable, Elector, Guard
from leader.errors import ElectionConfigError
from leader.journal import Journal
from leader.local.single import SingleElector
from leader.protocol.participant import Participant
from leader.queue import LeaderLockQueue
from leader.zookeeper.session import ZooKeeperSession


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectorSetup:
    """The parts of an elector. Its kind decides which of them it needs.

    Args:
        config: For every kind; `root` names the election.
        participant: This participant, as the other participants see it.
        session: A started session. `zookeeper` needs it.
        epoch_file: For `single`; see `SingleElector`.
        journal: Receives each change; without one, changes are written as log lines.
        clock: Must not stop while the machine sleeps.
    """

    config: ElectionConfig
    participant: Participant
    guard: Guard
    electable: Electable
    session: ZooKeeperSession | None = None
    epoch_file: Path | None = None
    journal: Journal | None = None
    clock: Clock = boottime


def make_elector(kind: str, setup: ElectorSetup) -> Elector:
    """Make the elector that a configuration names.

    Args:
        kind: `zookeeper`, `single`, or `dotted.path:factory`, a callable of yours that takes an
            `ElectorSetup` and returns an `Elector`.
        setup: Parts of the elector.

    Raises:
        ElectionConfigError: The kind is unknown or cannot be loaded, or it cannot be made from this setup.
    """
    match kind:
        case "zookeeper":
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
        case "single":
            return SingleElector(
                config=setup.config,
                participant=setup.participant,
                guard=setup.guard,
                electable=setup.electable,
                journal=setup.journal,
                clock=setup.clock,
                epoch_file=setup.epoch_file,
            )
        case _ if ":" in kind:
            return _own(kind, setup)
        case _:
            raise ElectionConfigError(
                f"elector {kind!r} is not known; give zookeeper, single, or dotted.path:factory for one of "
                f"your own"
            )


def _own(kind: str, setup: ElectorSetup) -> Elector:
    module_name, _, name = kind.partition(":")
    try:
        value: object = importlib.import_module(module_name)
        for part in name.split("."):
            value = getattr(value, part)
    except (ImportError, AttributeError, ValueError) as exc:
        raise ElectionConfigError(
            f"elector {kind!r} cannot be loaded ({type(exc).__name__}: {exc}); check the spelling, and that "
            f"the module is on Python's path"
        ) from exc
    if not callable(value):
        raise ElectionConfigError(f"elector {kind!r} is not callable; it is a {type(value).__name__}")
    factory: Callable[[ElectorSetup], object] = value
    made = factory(setup)
    if not isinstance(made, Elector):
        raise ElectionConfigError(
            f"elector {kind!r} made a {type(made).__name__}, which lacks methods of leader.elector.Elector"
        )
    return made
