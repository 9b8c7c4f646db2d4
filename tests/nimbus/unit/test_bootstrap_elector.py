"""A scheduler has the elector that its configuration names, with its settings."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from leader import Elector, ElectorSetup, MemoryElection, MemoryElector, SingleElector
from nimbus.bootstrap.resources import Resources, open_resources
from nimbus.bootstrap.scheduler import build_parts
from nimbus.config import Settings, load_settings

SETUPS: list[ElectorSetup] = []


def remembering(setup: ElectorSetup) -> Elector:
    """A user's own elector, which records its arguments."""
    SETUPS.append(setup)
    return MemoryElector(
        MemoryElection(),
        config=setup.config,
        participant=setup.participant,
        guard=setup.guard,
        electable=setup.electable,
    )


def settings_with(folder: Path, **leadership: Any) -> Settings:
    document = {
        "leadership": leadership,
        "storage": {
            "bucket": "nimbus",
            "endpoint_url": "http://127.0.0.1:9",
            "access_key_id": "key",
            "secret_access_key": "secret",
        },
        "scheduler": {"state_dir": str(folder / "state")},
        "worker": {"data": str(folder / "data")},
        **({} if leadership["elector"] == "single" else {"zookeeper": {"hosts": "127.0.0.1:9"}}),
    }
    file = folder / "nimbus.yaml"
    file.write_text(yaml.safe_dump(document))
    return load_settings(file, {})


@pytest.fixture
def resources(tmp_path: Path) -> Iterator[Resources]:
    """That of a single scheduler, which needs no server."""
    resources = open_resources(settings_with(tmp_path, elector="single", priority=-2))
    yield resources
    resources.session.close(timedelta(seconds=10))


def test_a_single_scheduler_elects_itself_by_a_file(resources: Resources) -> None:
    assert isinstance(build_parts(resources).election, SingleElector)


def test_an_elector_of_ones_own_is_made_and_told_priority_and_nofailover(
    resources: Resources, tmp_path: Path
) -> None:
    named = f"{__name__}:remembering"
    settings = settings_with(tmp_path, elector=named, priority=-3, nofailover=True)
    parts = build_parts(
        Resources(
            settings=settings,
            clock=resources.clock,
            session=resources.session,
            store=resources.store,
            local=resources.local,
            reader=resources.reader,
        )
    )

    setup = SETUPS.pop()
    assert isinstance(parts.election, MemoryElector)
    assert (setup.config.priority, setup.config.nofailover) == (-3, True)
    assert setup.participant.id == settings.scheduler.id
