"""What differs between the engines that are compared: names, and how the store is written."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from leader import ElectionConfig

try:
    from nimbus.engine.policy import Policy
except ImportError:  # before the rules were asked about one subject at a time
    from nimbus.engine.facts import Policy  # type: ignore[no-redef,import-not-found,unused-ignore]

try:
    from nimbus.engine.decision import RenderRun
    from nimbus.engine.news import RunRendered
    from nimbus.engine.state import Rendered
except ImportError:  # before templates were rendered in a helper process
    RenderRun = None  # type: ignore[assignment,misc]

try:
    from nimbus.domain.schema import NEWEST_SCHEMA
except ImportError:  # before a cluster had a schema
    NEWEST_SCHEMA = 1

__all__ = ["NEWEST_SCHEMA", "Policy", "await_outcome", "election_config", "rendered", "run_of"]


def election_config(root: str) -> ElectionConfig:
    """As that of a scheduler: a new cluster begins with the newest schema."""
    return ElectionConfig(root=root, **({"newest_schema": NEWEST_SCHEMA} if NEWEST_SCHEMA > 1 else {}))


def rendered(effect: Any) -> Any:
    """The answer to an effect that asks for the arguments of a run: as they were written."""
    if RenderRun is None or not isinstance(effect, RenderRun):
        return None
    return RunRendered(effect.subject, Rendered(effect.draft, effect.draft))


def run_of(effect: Any) -> Any:
    """The id of the run that an `ArchiveRun` is about; once it carried the whole run."""
    return getattr(effect.run, "id", effect.run)


def await_outcome(queue: Any, command: Any, within: timedelta) -> Any:
    """What became of a command; once the queue itself waited for it."""
    if hasattr(queue, "await_outcome"):
        return queue.await_outcome(command, within)
    from tests.outcomes import await_outcome as wait

    return wait(queue, command, within)
