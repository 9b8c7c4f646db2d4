"""What differs between the engines that are compared: names, and how the store is written."""

from __future__ import annotations

from typing import Any

try:
    from nimbus.engine.policy import Policy
except ImportError:  # before the rules were asked about one subject at a time
    from nimbus.engine.facts import Policy  # type: ignore[no-redef,import-not-found,unused-ignore]

__all__ = ["Policy", "run_of"]


def run_of(effect: Any) -> Any:
    """The id of the run that an `ArchiveRun` is about; once it carried the whole run."""
    return getattr(effect.run, "id", effect.run)
