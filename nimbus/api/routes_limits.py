"""Routes about cluster-wide limits: pools and cordons of workers."""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter, Response

from nimbus.api.entity_tags import tag_with
from nimbus.api.models import CommandModel, PoolModel, PoolsModel
from nimbus.api.paging import Paging
from nimbus.api.problems import NotFoundError
from nimbus.api.requests import CordonBody, PipelineNameText, PoolBody, WorkerIdText
from nimbus.api.run_lookup import read_in_parts
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED_RESPONSES, CONDITIONAL, Submit
from nimbus.domain.commands import CordonWorker, RemovePool, SetPool, UncordonWorker
from nimbus.domain.ids import WorkerId
from nimbus.domain.lifecycle import is_ready
from nimbus.domain.revisions import of_pool
from nimbus.domain.schedulers import LimitUse
from nimbus.domain.timing import not_before


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["limits"], prefix=prefix)

    @routes.get("/pools")
    def pools(paging: Paging) -> PoolsModel:
        """All pools: size, use by open attempts, and number of waiting ready tasks."""
        page = paging.page(_pools(services), lambda one: (one.name,))
        return PoolsModel(pools=page.rows, next_cursor=page.next_cursor, at_least=page.at_least)

    @routes.get("/pools/{name}")
    def pool(name: PipelineNameText, response: Response) -> PoolModel:
        """One pool."""
        found = next((one for one in _pools(services) if one.name == name), None)
        if found is None:
            raise NotFoundError("unknown_pool", f"there is no pool {name}: see `nimbus pool list`.")
        tag_with(response, of_pool(name, found.size))
        return found

    @routes.put("/pools/{name}", **CONDITIONAL)
    async def set_pool(name: PipelineNameText, body: PoolBody, submit: Submit) -> CommandModel:
        """Create a pool, or change its size."""
        return await submit(SetPool(pool=name, size=body.size))

    @routes.delete("/pools/{name}", **CONDITIONAL)
    async def remove_pool(name: PipelineNameText, submit: Submit) -> CommandModel:
        """Remove a pool. Refused while tasks of live runs need it."""
        return await submit(RemovePool(pool=name))

    @routes.post("/workers/{worker}/cordon", status_code=202, responses=ACCEPTED_RESPONSES)
    async def cordon(worker: WorkerIdText, body: CordonBody, submit: Submit) -> CommandModel:
        """Cordon a worker: it gets no new attempts; open ones go on. Kept even while it is not registered."""
        return await submit(CordonWorker(worker=WorkerId(worker), reason=body.reason, drain=body.drain))

    @routes.post("/workers/{worker}/uncordon", status_code=202, responses=ACCEPTED_RESPONSES)
    async def uncordon(worker: WorkerIdText, submit: Submit) -> CommandModel:
        """End the cordon of a worker."""
        return await submit(UncordonWorker(worker=WorkerId(worker)))

    return routes


def _pools(services: ApiServices) -> list[PoolModel]:
    if not (sizes := services.reader.settings().pools):
        return []
    # A former leader may be registered, too. The report of a new leader is complete after it read the state.
    leader = max(services.reader.schedulers(), key=lambda one: one.epoch or 0, default=None)
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
