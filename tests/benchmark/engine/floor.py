"""The floor of the store: the node writes of a task's life, by one client that does nothing else."""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping
from typing import Any, NamedTuple

_ANSWER_S = 60.0


class _Write(NamedTuple):
    kind: str
    """`create`, `set` or `delete`."""
    node: str
    record: str = ""
    """The record whose size the data have: `run`, `order`, `claim`, `end`; empty: no data."""


LIFE = (
    (_Write("set", "run", "run"), _Write("create", "attempt"), _Write("create", "order", "order")),
    (_Write("create", "attempt/claim", "claim"),),
    (_Write("create", "attempt/end", "end"),),
    (_Write("set", "run", "run"), _Write("delete", "order")),
)
"""Open, claim, end, close. Each step waits for the previous one."""


def floor(client: Any, sizes: Mapping[str, int], tasks: int, batch: int) -> float:
    """Measure the floor, in tasks per second.

    Args:
        client: A kazoo client.
        sizes: Bytes of each record.
        tasks: Number of tasks.
        batch: Number of tasks that advance together, with one transaction for each step; 0: one task at a
            time, with one request for each write.
    """
    root = f"/floor-{uuid.uuid4().hex}"
    client.create(root)
    together = max(1, batch)
    for slot in range(together):
        client.create(f"{root}/{slot}-run", bytes(sizes["run"]))
    began = time.perf_counter()
    for first in range(0, tasks, together):
        for step in LIFE:
            writes = [
                (write.kind, _path(root, slot, first, write.node), bytes(sizes.get(write.record, 0)))
                for slot in range(together)
                for write in step
            ]
            if batch:
                _transaction(client, writes)
            else:
                _singly(client, writes)
    return tasks / (time.perf_counter() - began)


def _path(root: str, slot: int, first: int, node: str) -> str:
    # The names are as long as those that the engine uses.
    return f"{root}/{slot}-run" if node == "run" else f"{root}/pipeline-000-run-00.t{first + slot}-f0.{node}"


def _transaction(client: Any, writes: list[tuple[str, str, bytes]]) -> None:
    transaction = client.transaction()
    for kind, path, data in writes:
        match kind:
            case "create":
                transaction.create(path, data)
            case "set":
                transaction.set_data(path, data)
            case _:
                transaction.delete(path)
    for result in transaction.commit_async().get(timeout=_ANSWER_S):
        if isinstance(result, Exception):
            raise result


def _singly(client: Any, writes: list[tuple[str, str, bytes]]) -> None:
    for kind, path, data in writes:
        match kind:
            case "create":
                client.create_async(path, data).get(timeout=_ANSWER_S)
            case "set":
                client.set_async(path, data).get(timeout=_ANSWER_S)
            case _:
                client.delete_async(path).get(timeout=_ANSWER_S)
