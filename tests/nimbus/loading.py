"""Reads the whole content of a leader's store."""

from __future__ import annotations

from dataclasses import dataclass, field

from nimbus.domain.attempts.slots import Slots
from nimbus.domain.ids import AttemptId, PipelineName, RunId
from nimbus.domain.pipelines.catalog import PipelineRecord
from nimbus.domain.runs.run import Run
from nimbus.engine.leader_term import LeaderTerm
from nimbus.ports import CatalogPart, LeaderStore, RegisteredPart, RunsPart


@dataclass
class Loaded:
    """The whole content."""

    registered: RegisteredPart = field(default_factory=RegisteredPart)
    catalog: CatalogPart = field(default_factory=CatalogPart)
    runs: dict[RunId, Run] = field(default_factory=dict)
    slots: dict[AttemptId, Slots] = field(default_factory=dict)

    @property
    def pipelines(self) -> dict[PipelineName, PipelineRecord]:
        return {record.name: record for record in self.catalog.pipelines}


def loaded(store: LeaderStore) -> Loaded:
    """Load all parts."""
    found = Loaded()
    for part in store.load():
        match part:
            case RegisteredPart():
                found.registered = part
            case RunsPart():
                found.runs |= {run.id: run for run in part.runs}
                found.slots |= part.slots
            case CatalogPart():
                found.catalog = part
    return found


def recover(term: LeaderTerm) -> None:
    """Let a term read everything, without decisions in between."""
    term.recover()
    while not term.state.is_loaded:
        term.read_on()
