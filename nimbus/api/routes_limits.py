"""Routes about what operators set for the whole cluster: pools, and workers that are given nothing."""

from __future__ import annotations

from collections import Counter

from fastapi import APIRouter, Response

from nimbus.api.models import CommandModel, PoolModel, PoolsModel
from nimbus.api.paging import Paging
from nimbus.api.requests import PipelineNameText, PoolBody, ReasonBody, WorkerIdText
from nimbus.api.services import ApiServices
from nimbus.api.submitting import ACCEPTED_RESPONSES, Wait, submit
from nimbus.domain.commands import CordonWorker, RemovePool, SetPool, UncordonWorker
from nimbus.domain.earliest import not_before
from nimbus.domain.ids import WorkerId
from nimbus.domain.lifecycle import is_ready


def router(services: ApiServices, prefix: str) -> APIRouter:
    """Build the routes over `services`, below `prefix`."""
    routes = APIRouter(tags=["limits"], prefix=prefix)

    @routes.get("/pools")
    def pools(paging: Paging) -> PoolsModel:
        """All pools: size, what open attempts take, and how many ready tasks wait."""
        page = paging.page(_pools(services), lambda one: (one.name,))
        return PoolsModel(pools=page.rows, next_cursor=page.next_cursor, at_least=page.at_least)

    @routes.put("/pools/{name}", status_code=202, responses=ACCEPTED_RESPONSES)
    async def set_pool(
        name: PipelineNameText, body: PoolBody, response: Response, wait: Wait = 0
    ) -> CommandModel:
        """Make a pool, or change its size."""
        return await submit(services, lambda: SetPool(pool=name, size=body.size), response, wait_s=wait)

    @routes.delete("/pools/{name}", status_code=202, responses=ACCEPTED_RESPONSES)
    async def remove_pool(name: PipelineNameText, response: Response, wait: Wait = 0) -> CommandModel:
        """Take a pool away. Refused while tasks of live runs need it."""
        return await submit(services, lambda: RemovePool(pool=name), response, wait_s=wait)

    @routes.post("/workers/{worker}/cordon", status_code=202, responses=ACCEPTED_RESPONSES)
    async def cordon(
        worker: WorkerIdText, body: ReasonBody, response: Response, wait: Wait = 0
    ) -> CommandModel:
        """Give a worker nothing new; what it has goes on. Kept also while it is not registered."""
        command = CordonWorker(worker=WorkerId(worker), reason=body.reason)
        return await submit(services, lambda: command, response, wait_s=wait)

    @routes.post("/workers/{worker}/uncordon", status_code=202, responses=ACCEPTED_RESPONSES)
    async def uncordon(worker: WorkerIdText, response: Response, wait: Wait = 0) -> CommandModel:
        """Give a worker tasks again."""
        command = UncordonWorker(worker=WorkerId(worker))
        return await submit(services, lambda: command, response, wait_s=wait)

    return routes


def _pools(services: ApiServices) -> list[PoolModel]:
    """Counted from the runs, so that it is told while nobody leads, too."""
    sizes, now = services.reader.settings().pools, services.clock.now()
    used, waiting = Counter[str](), Counter[str]()
    live = (run.id for run in services.reader.run_list().values() if not run.state.is_final)
    for run in services.reader.runs(live).values():
        for task in run.tasks.in_order():
            if task.open_attempt is not None:
                used.update(task.spec.pools)
            elif task.spec.pools and is_ready(run, task) and (not_before(run, task) or now) <= now:
                waiting.update(task.spec.pools.keys())
    return [
        PoolModel(name=name, size=size, used=used[name], waiting=waiting[name])
        for name, size in sizes.items()
    ]
