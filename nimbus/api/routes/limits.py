"""Limits of the cluster: pools, cordons of workers, shares of teams, and holds of starts."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Annotated

from fastapi import APIRouter, Response
from pydantic import BeforeValidator, Field, StrictBool, StrictInt

from nimbus.api.models import CommandModel, Model, PageModel, of
from nimbus.api.paging import Paging
from nimbus.api.problems import ObjectNotFoundError
from nimbus.api.requests import (
    Moment,
    PipelineNameText,
    ReasonBody,
    ReasonText,
    RequestBody,
    WorkerIdText,
    whole,
)
from nimbus.api.routes.access import OwnerText
from nimbus.api.runs.lookup import read_in_parts
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED, CONDITIONAL, Submit, tag_with
from nimbus.domain.cluster.revisions import of_pool
from nimbus.domain.cluster.schedulers import LimitUse, TeamUse, leader_report
from nimbus.domain.cluster.settings import ALERT_AFTER, LARGEST_WEIGHT, Hold, HoldOf
from nimbus.domain.commands import CordonWorker, RemovePool, SetHold, SetPool, SetShare, UncordonWorker
from nimbus.domain.runs.lifecycle import is_ready
from nimbus.domain.starts.timing import not_before


class PoolBody(RequestBody):
    """Set the size of a pool."""

    size: Annotated[StrictInt, BeforeValidator(whole)] = Field(
        ge=0, le=1_000_000, description="0: no new attempt gets room in it."
    )


class HoldBody(RequestBody):
    """Hold starts of pipelines."""

    of: HoldOf = Field(description="What it covers: all pipelines, those of a team, with a tag, or a prefix.")
    name: str = Field("", max_length=200, description="The team, the tag or the prefix; empty for `all`.")
    reason: ReasonText
    until: Moment | None = Field(
        None, description="When it ends by itself. Without it: when somebody ends it."
    )
    alert_after_s: Annotated[StrictInt, BeforeValidator(whole)] = Field(
        int(ALERT_AFTER.total_seconds()), ge=60, description="When a hold without `until` raises an alert."
    )


class ShareBody(RequestBody):
    """Set the weight of a team's share."""

    weight: Annotated[StrictInt, BeforeValidator(whole)] = Field(
        description=f"1 to {LARGEST_WEIGHT}. Only the proportion to other weights counts: others have 1."
    )
    reason: str = Field("", max_length=500)


class CordonBody(ReasonBody):
    """The cordon of a worker."""

    drain: StrictBool = Field(
        False, description="True: tasks that are kept running leave the worker, and start on another one."
    )


class PoolModel(Model):
    """A pool."""

    name: str
    size: int
    used: int
    """How much open attempts take."""
    waiting: int
    """Number of ready tasks that need it."""


class PoolsModel(PageModel):
    """All pools, by name."""

    pools: list[PoolModel]


class ShareModel(Model):
    """What a team has of what teams share. A team is an owner of pipelines."""

    team: str
    """Empty: the pipelines without an owner."""
    weight: int
    slots: int
    """Number of open attempts that take slots of workers."""
    share: float
    """How many slots the team gets while all teams that want or have something want more."""
    runs: int
    """Number of its runs that count for `runs_max_running`."""
    waiting: int
    """Number of ready tasks."""
    reason: str = ""
    """Why the weight was set."""
    set_by: str = ""
    set_at: datetime | None = None
    """Null: the weight was never set."""


class SharesModel(Model):
    """Teams with a weight, and teams that have or want something."""

    slots: int
    """Slots of all workers."""
    shares: list[ShareModel]


@of(Hold, leave_out=("alert_after", "alerted"))
class HoldModel(Model):
    """A hold: starts of some pipelines wait."""

    hold: str
    pipelines: int
    """Number of pipelines that it covers now."""
    words: str
    """All this, in a sentence."""


class HoldsModel(Model):
    """All holds."""

    holds: list[HoldModel]


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["limits"], prefix=prefix)

    @routes.get("/pools")
    def pools(paging: Paging) -> PoolsModel:
        """All pools: size, use by open attempts, and number of waiting ready tasks."""
        page = paging.page(_pools(services), lambda pool: (pool.name,))
        return PoolsModel(pools=page.rows, **page.rest)

    @routes.get("/pools/{name}")
    def pool(name: PipelineNameText, response: Response) -> PoolModel:
        """One pool."""
        pool = next((pool for pool in _pools(services) if pool.name == name), None)
        if pool is None:
            raise ObjectNotFoundError("unknown_pool", f"there is no pool {name}: see `nimbus pool list`.")
        tag_with(response, of_pool(name, pool.size))
        return pool

    @routes.put("/pools/{name}", **CONDITIONAL)
    async def set_pool(name: PipelineNameText, body: PoolBody, submit: Submit) -> CommandModel:
        """Create a pool, or change its size."""
        return await submit(SetPool(pool=name, size=body.size))

    @routes.delete("/pools/{name}", **CONDITIONAL)
    async def remove_pool(name: PipelineNameText, submit: Submit) -> CommandModel:
        """Remove a pool. Refused while tasks of live runs need it."""
        return await submit(RemovePool(pool=name))

    @routes.post("/workers/{worker}/cordon", **ACCEPTED)
    async def cordon(worker: WorkerIdText, body: CordonBody, submit: Submit) -> CommandModel:
        """Cordon a worker: it gets no new attempts; open ones go on. Kept even while it is not registered."""
        return await submit(CordonWorker(worker=worker, reason=body.reason, drain=body.drain))

    @routes.post("/workers/{worker}/uncordon", **ACCEPTED)
    async def uncordon(worker: WorkerIdText, submit: Submit) -> CommandModel:
        """End the cordon of a worker."""
        return await submit(UncordonWorker(worker=worker))

    _add_shares_and_holds(routes, services)
    return routes


def _pools(services: ApiServices) -> list[PoolModel]:
    if not (sizes := services.reader.settings().pools):
        return []
    # A former leader may be registered, too. The report of a new leader is complete after it read the state.
    leader = max(services.reader.schedulers(), key=lambda scheduler: scheduler.epoch or 0, default=None)
    limits = _counted(services) if leader is None or leader.recovered_at is None else leader.report.limits
    return [
        PoolModel(name=name, size=size, used=limits.pools.get(name, 0), waiting=limits.waiting.get(name, 0))
        for name, size in sizes.items()
    ]


def _counted(services: ApiServices) -> LimitUse:
    """The use, counted from the runs while there is no leader. Takes seconds if there are thousands."""
    now = services.clock.now()
    used, waiting = Counter[str](), Counter[str]()
    live = [run.id for run in services.reader.run_list().values() if not run.state.is_final]
    for run in read_in_parts(services.reader, live):
        for task in run.tasks.in_order():
            if task.open_attempt is not None:
                used.update(task.spec.pools)
            elif task.spec.pools and is_ready(run, task) and (not_before(run, task) or now) <= now:
                waiting.update(task.spec.pools.keys())
    return LimitUse(pools=used, waiting=waiting)


def _add_shares_and_holds(routes: APIRouter, services: ApiServices) -> None:
    @routes.get("/shares")
    def shares() -> SharesModel:
        """Shares of teams: their weights, what they have, and what they get if all want more."""
        return known_shares(services)

    @routes.put("/shares/{team}", **ACCEPTED)
    async def set_share(team: OwnerText, body: ShareBody, submit: Submit) -> CommandModel:
        """Set the weight of a team's share. Nothing that runs is stopped: what ends is given to others."""
        return await submit(SetShare(team=team, weight=body.weight, reason=body.reason))

    @routes.get("/holds")
    def holds() -> HoldsModel:
        """Holds: starts that wait, with who, when, why and until when."""
        holds, pipelines = services.reader.settings().holds, services.reader.pipelines()
        rows = [
            HoldModel.from_records(
                hold,
                hold=name,
                pipelines=sum(hold.covers(record) for record in pipelines),
                words=hold.words(name),
            )
            for name, hold in sorted(holds.items())
        ]
        return HoldsModel(holds=rows)

    @routes.put("/holds/{hold}", **ACCEPTED)
    async def set_hold(hold: PipelineNameText, body: HoldBody, submit: Submit) -> CommandModel:
        """Hold starts, or change a hold. What runs goes on; runs that are asked for are queued."""
        held = Hold(
            of=body.of,
            name=body.name,
            reason=body.reason,
            until=body.until,
            alert_after=timedelta(seconds=body.alert_after_s),
            held_at=services.clock.now(),
        )
        return await submit(SetHold(name=hold, hold=held))

    @routes.delete("/holds/{hold}", **ACCEPTED)
    async def end_hold(hold: PipelineNameText, submit: Submit) -> CommandModel:
        """End a hold. What came due is dealt with as the catch-up of each pipeline says."""
        return await submit(SetHold(name=hold, hold=None))


def known_shares(services: ApiServices) -> SharesModel:
    """All teams that have a weight, or that have or want something."""
    reader, settings = services.reader, services.reader.settings()
    used = leader_report(reader.schedulers()).limits.teams
    slots = sum(worker.slots for worker in reader.workers())
    rows = []
    for team in sorted({*settings.shares, *used}):
        use, share = used.get(team, TeamUse()), settings.shares.get(team)
        weight, of_slots = settings.weight_of(team), round(settings.share_of(team, slots, used), 1)
        rows.append(ShareModel.from_records(use, share, team=team, weight=weight, share=of_slots))
    return SharesModel(slots=slots, shares=rows)
