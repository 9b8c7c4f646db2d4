"""Refuses pipelines whose tasks would start runs of each other without end."""

from __future__ import annotations

from nimbus.domain.errors import RefusedError
from nimbus.domain.ids import PipelineName
from nimbus.domain.pipeline import PipelineSpec
from nimbus.engine.state import State


def check_cycles(state: State, spec: PipelineSpec) -> None:
    """Raise RefusedError if runs of a pipeline would start runs of the same pipeline, by the catalog."""
    ways: dict[PipelineName, tuple[PipelineName, ...]] = {name: (spec.name, name) for name in spec.children}
    edge = list(ways)
    while edge:
        name = edge.pop()
        if name == spec.name:
            raise RefusedError(
                "pipeline_cycle",
                f"pipelines would start runs of each other for ever: {' starts '.join(ways[name])}.",
            )
        record = state.catalog.pipelines.get(name)
        for child in () if record is None else record.profile.children:
            if child not in ways:
                ways[child] = (*ways[name], child)
                edge.append(child)
