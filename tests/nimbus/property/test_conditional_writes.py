"""Writes with `If-Match`: no update is lost, with any leader and any number of waiting commands."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from nimbus import pipeline_record, records
from nimbus.domain.cluster import revisions
from nimbus.domain.cluster.access import AccessRole, Token
from nimbus.domain.cluster.settings import ClusterSettings
from nimbus.domain.commands import SetOwner, SetVariable
from nimbus.domain.ids import BackfillId, ReleaseDigest
from nimbus.domain.pipelines.backfill import Backfill, BackfillRequest, BackfillState
from nimbus.domain.pipelines.catalog import PipelineRecord, PipelineState
from tests.nimbus.command_cases import SPEC, P
from tests.nimbus.definitions import active
from tests.nimbus.engine_bench import NOW, Bench

CLIENTS = 3
STEPS = st.sampled_from(
    ("decide", "die", *(f"{verb} {n}" for verb in ("read", "write") for n in range(CLIENTS)))
)


class Counter:
    """Clients that add one to a number: they read it, and write it if it has not changed since."""

    def __init__(self, *, of_pipeline: bool) -> None:
        self._of_pipeline = of_pipeline
        self.bench = Bench()
        self.bench.cluster.change(
            pipelines={P: replace(active(SPEC, schedule_position=NOW, updated_at=NOW), owner="0")},
            settings=ClusterSettings(variables={"n": "0"}),
        )
        self._epoch = 2
        self.bench.elect(self._epoch)
        self._read = [self._look() for _ in range(CLIENTS)]
        self.asked = 0

    def _look(self) -> tuple[int, str]:
        """The number and its revision, read by a scheduler."""
        world = self.bench.cluster.world
        if self._of_pipeline:
            record = world.pipelines[P]
            return int(record.owner or ""), revisions.of_pipeline(record)
        value = world.settings.variables["n"]
        return int(value), revisions.of_variable("n", value)

    def step(self, step: str) -> None:
        verb, _, client = step.partition(" ")
        match verb:
            case "decide":
                self.bench.decide()
            case "die":
                self._epoch += 1
                self.bench.elect(self._epoch)
            case "read":
                self._read[int(client)] = self._look()
            case "write":
                number, revision = self._read[int(client)]
                self.asked += 1
                self.bench.submit(self._written(str(number + 1)), if_match=(revision,))

    def _written(self, number: str) -> SetOwner | SetVariable:
        return (
            SetOwner(pipeline=P, owner=number) if self._of_pipeline else SetVariable(name="n", value=number)
        )

    def end(self) -> tuple[int, list[str]]:
        """Finish. Returns the number, and the code of each outcome."""
        self.bench.decide()
        return self._look()[0], [one.code for one in self.bench.cluster.world.outcomes.values()]


@given(st.lists(STEPS, max_size=30), st.booleans())
def test_no_update_is_lost(steps: list[str], of_pipeline: bool) -> None:
    counter = Counter(of_pipeline=of_pipeline)
    for step in steps:
        counter.step(step)
    number, codes = counter.end()

    assert set(codes) <= {"ok", "changed"}
    assert len(codes) == counter.asked
    assert number == codes.count("ok")
    assert not counter.asked or number > 0


RECORD = active(SPEC, schedule_position=NOW, updated_at=NOW)
BACKFILL = Backfill(
    id=BackfillId("b"),
    pipeline=P,
    release=ReleaseDigest("a" * 64),
    schedule=None,
    request=BackfillRequest(first=NOW, last=NOW),
    created_at=NOW,
)
TOKEN = Token(id="0" * 12, name="ada", role=AccessRole.ADMIN, sha256="0" * 64, created_at=NOW)


@given(
    st.builds(
        lambda **changes: replace(RECORD, **changes),
        state=st.sampled_from(PipelineState),
        owner=st.none() | st.text(),
        release=st.none() | st.just(ReleaseDigest("b" * 64)),
        updated_at=st.datetimes().map(lambda naive: naive.replace(tzinfo=NOW.tzinfo)),
    )
)
def test_a_record_has_its_revision_also_when_it_was_written_and_read(record: PipelineRecord) -> None:
    stored = pipeline_record.decode(pipeline_record.encode(record), "p")
    backfill = replace(BACKFILL, created_at=record.updated_at, reason=record.owner or "")
    settings = ClusterSettings(tokens={TOKEN.id: replace(TOKEN, created_at=record.updated_at)})

    assert revisions.of_pipeline(stored) == revisions.of_pipeline(record)
    assert revisions.of_backfill(
        records.BACKFILL.decode(records.BACKFILL.encode(backfill), "b")
    ) == revisions.of_backfill(backfill)
    (token,) = records.SETTINGS.decode(records.SETTINGS.encode(settings), "s").tokens.values()
    assert revisions.of_token(token) == revisions.of_token(settings.tokens[TOKEN.id])


def test_revisions_tell_what_people_decide_and_not_how_far_the_leader_is() -> None:
    moved = replace(RECORD, schedule_position=NOW.replace(year=2030), pinned=(ReleaseDigest("c" * 64),))
    under_way = replace(BACKFILL, position=NOW, started=3, succeeded=2, failed=1)
    paused = replace(under_way, state=BackfillState.PAUSED)

    assert revisions.of_pipeline(moved) == revisions.of_pipeline(RECORD)
    assert revisions.of_pipeline(replace(RECORD, owner="ann")) != revisions.of_pipeline(RECORD)
    assert revisions.of_backfill(under_way) == revisions.of_backfill(BACKFILL)
    assert revisions.of_backfill(paused) != revisions.of_backfill(BACKFILL)
    assert revisions.of_pool("n", 1) != revisions.of_variable("n", "1")
