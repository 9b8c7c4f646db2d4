"""Finds the version that a withdrawal publishes again. Runs on the thread of effects."""

from __future__ import annotations

from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import RunId
from nimbus.domain.publications import Version, earlier
from nimbus.domain.run import RunPart
from nimbus.engine.decision import StoreVersions
from nimbus.ports import History

MAX_SEARCHED = 100
"""How many of the newest versions of a partition in history a withdrawal looks at."""


def stored_and_found(effect: StoreVersions, history: History) -> tuple[Version, ...]:
    """The versions that are in history now. For a withdrawal, the wrong one and its substitute come last.

    Raises:
        RefusedError: there is no version before whose output still exists.
        NimbusError: history does not answer.
    """
    if effect.removes:
        history.forget_dataset(effect.dataset, effect.removes)
        return ()
    history.store_versions(effect.dataset, effect.versions)
    if effect.partition is None:
        return effect.versions
    known = (*effect.known, *history.versions(effect.dataset, MAX_SEARCHED, effect.partition))
    current = max(known, key=lambda one: one.number, default=None)
    if current is None:
        what = f"partition {effect.partition} of {effect.dataset}" if effect.partition else effect.dataset
        raise RefusedError("not_published", f"{what} has no version.")
    for version in earlier(current, known):
        if version.output is None or not is_purged(version.source.run, history):
            return (*effect.versions, current, version)
    raise RefusedError(
        "nothing_before",
        f"version {current.number} of {effect.dataset} is the first one, or all before it were withdrawn, "
        "have the same data, or their outputs are deleted: publish another one, "
        "by a rerun or by `nimbus dataset publish`.",
    )


def is_purged(run: RunId, history: History) -> bool:
    """True when outputs of a run are deleted, or are being deleted."""
    gone = history.purged(run)
    return gone is not None and not {RunPart.OUTPUTS, RunPart.HISTORY}.isdisjoint(gone.parts)
