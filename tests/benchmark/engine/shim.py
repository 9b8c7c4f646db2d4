"""Adapts the differences between the compared engines: names, and how the store is written."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import timedelta
from typing import Any

from leader import ElectionConfig

try:
    from nimbus.engine.policy import Policy
except ImportError:  # before the rules were asked about one subject at a time
    from nimbus.engine.facts import Policy  # type: ignore[no-redef,import-not-found,import-untyped,unused-ignore]

try:
    from nimbus.domain.drafts import new_run
    from nimbus.engine.decision import BuildRun
    from nimbus.engine.news import RunBuilt
    from nimbus.engine.state import Built
    from nimbus.templates.helper import TemplateHelper
except ImportError:  # before runs were built as an effect
    BuildRun = TemplateHelper = None  # type: ignore[assignment,misc]

try:
    from nimbus.domain.schema import NEWEST_SCHEMA
except ImportError:  # before a cluster had a schema
    NEWEST_SCHEMA = 1

__all__ = [
    "NEWEST_SCHEMA",
    "Policy",
    "asks_for_a_run",
    "await_outcome",
    "built",
    "definitions",
    "election_config",
    "run_of",
    "template_helper",
]


def election_config(root: str) -> ElectionConfig:
    """The configuration of a scheduler: a new cluster begins with the newest schema."""
    schema: dict[str, Any] = {"newest_schema": NEWEST_SCHEMA} if NEWEST_SCHEMA > 1 else {}
    return ElectionConfig(root=root, **schema)


def asks_for_a_run(effect: Any) -> bool:
    """Whether it is an effect that `built` answers."""
    return BuildRun is not None and isinstance(effect, BuildRun)


def built(effect: Any, specs: Mapping[str, Any], render: Callable[[Any], Any] = lambda run: run) -> Any:
    """The news that answers an effect which asks for a run.

    Args:
        effect: See `asks_for_a_run`.
        specs: Definitions, by the digest of their release.
        render: Renders the arguments; by default, they stay unchanged.
    """
    run = render(new_run(specs[effect.draft.release], effect.draft))
    return RunBuilt(effect.subject, Built(effect.draft, run))


def template_helper() -> Any:
    """The helper that renders arguments; None for revisions in which the engine does it."""
    return None if TemplateHelper is None else TemplateHelper()


def definitions() -> dict[str, Any]:
    """Arguments of `ApiServices` for definitions and releases, if the revision has them; never used."""
    from nimbus.api.services import ApiServices  # not at the top: it would increase the leader's memory

    return {name: None for name in ("definitions", "releases") if name in ApiServices.__dataclass_fields__}


def run_of(effect: Any) -> Any:
    """The id of the run of an `ArchiveRun`. In older revisions the effect contains the whole run."""
    return getattr(effect.run, "id", effect.run)


def await_outcome(queue: Any, command: Any, within: timedelta) -> Any:
    """Wait for the outcome of a command. In older revisions the queue itself waits."""
    if hasattr(queue, "await_outcome"):
        return queue.await_outcome(command, within)
    from tests.nimbus.outcomes import await_outcome as wait

    return wait(queue, command, within)
