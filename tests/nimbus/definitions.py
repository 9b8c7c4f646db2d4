"""Pipelines for tests: their records, and the definitions on a scheduler's disk."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime
from hashlib import sha256
from types import MappingProxyType
from typing import Any

from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import ReleaseDigest, RunId
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState, ReleaseOf, profile_of
from nimbus.domain.pipelines.parameters import InvalidParametersError
from nimbus.domain.pipelines.pipeline import PipelineSpec
from nimbus.domain.runs.drafts import Draft, copied, new_run
from nimbus.domain.runs.lifecycle import begin
from nimbus.domain.runs.run import Run
from nimbus.domain.runs.selection import entered
from nimbus.engine.decision import BuildRun, Refusal
from nimbus.engine.events import RunBuilt
from nimbus.engine.state import Built
from nimbus.ports import DefinitionNotHereError
from nimbus.templates.client import Templates
from nimbus.templates.names import TemplateError

_on_disk: dict[ReleaseOf, PipelineSpec] = {}
_templates = Templates()


def digest_of(spec: PipelineSpec) -> ReleaseDigest:
    """Digest of a release that contains only this definition."""
    return ReleaseDigest(sha256(repr(spec).encode()).hexdigest())


def active(spec: PipelineSpec, **changes: Any) -> PipelineRecord:
    """The record of a pipeline whose active release has this definition. Also puts it on the disk."""
    digest = digest_of(spec)
    _on_disk[ReleaseOf(spec.name, digest)] = spec
    fields: dict[str, Any] = {
        "name": spec.name,
        "state": PipelineState.ACTIVE,
        "published": digest,
        "release": digest,
        "profile": profile_of(spec),
        "updated_at": datetime(2026, 3, 1, tzinfo=UTC),
    }
    return PipelineRecord(**fields | changes)


def on_disk(release: ReleaseOf, spec: PipelineSpec) -> None:
    """Put the definition of a release on the disk."""
    _on_disk[release] = spec


class OnDisk:
    """See `nimbus.ports.Definitions`."""

    def definition(self, release: ReleaseOf) -> PipelineSpec:
        if release not in _on_disk:
            raise DefinitionNotHereError(release)
        return _on_disk[release]


def build(
    draft: Draft, parent: Run | None = None, earlier: Mapping[RunId, Run] = MappingProxyType({})
) -> Run | Refusal:
    """Build the run of a draft. `parent`: of a child run. `earlier`: runs that it may use."""
    try:
        if parent is not None and draft.parent is not None:
            draft = replace(draft, parameters=_templates.child_parameters(parent, draft.parent, {}))
        if draft.selection is not None and draft.selection.is_copy and draft.selection.reuse is not None:
            draft = copied(draft, earlier[draft.selection.reuse])
        run = new_run(_on_disk[ReleaseOf(draft.pipeline, draft.release)], draft)
        if (selection := draft.selection) is not None:
            used = None if selection.reuse is None else earlier[selection.reuse]
            run = entered(run, selection, used, {}, by=draft.submitted_by, now=draft.asked_at)
        return begin(_templates.render(run), draft.asked_at)
    except (InvalidParametersError, RefusedError, TemplateError) as exc:
        return Refusal(exc.code, str(exc))


def built(effect: BuildRun, earlier: Mapping[RunId, Run] = MappingProxyType({})) -> RunBuilt:
    """The news that answers an effect. `earlier`: see `build`."""
    return RunBuilt(effect.key, Built(effect.draft, build(effect.draft, effect.parent, earlier)))
