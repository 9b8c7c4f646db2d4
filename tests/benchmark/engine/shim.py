"""What differs between the engines that are compared: names, and how the store is written."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from nimbus.domain.ids import HostId
from nimbus.domain.schedulers import Role, SchedulerInfo

try:
    from nimbus.engine.policy import Policy
except ImportError:  # before the rules were asked about one subject at a time
    from nimbus.engine.facts import Policy  # type: ignore[no-redef,import-not-found,unused-ignore]

try:
    from nimbus.domain.run import NEWEST_LAYOUT
except ImportError:  # before there were two
    NEWEST_LAYOUT = 0

try:
    from nimbus.engine.decision import RenderRun
    from nimbus.engine.news import RunRendered
    from nimbus.engine.state import Rendered
except ImportError:  # before templates were rendered in a helper process
    RenderRun = None  # type: ignore[assignment,misc]

__all__ = ["Policy", "await_outcome", "rendered", "run_of", "scheduler_info"]


def scheduler_info() -> SchedulerInfo:
    """A registration that says what this code can read, so that runs are written as in a real cluster."""
    layout = {"run_layout": NEWEST_LAYOUT} if NEWEST_LAYOUT else {}
    now = datetime.now(UTC)
    return SchedulerInfo(
        id="engine", boot_id="b", host=HostId("bench"), hostname="bench", address="", pid=1, version="1",
        started_at=now, reported_at=now, role=Role.QUEUED, **layout,
    )  # fmt: skip


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
