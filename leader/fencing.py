"""Writes that only the present leader can make.

The one line the whole system stands on: the first operations of each transaction check the version of the
epoch node, and that the latch this term was won with is there. A leader that was paused, cut off or deposed
writes nothing, whatever it believes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NoNodeError, RolledBackError, RuntimeInconsistency
from kazoo.protocol.serialization import CheckVersion

from leader.errors import FencedOutError, TransactionRefusedError
from leader.zookeeper.spelled import Spelled, spelled

if TYPE_CHECKING:
    from leader.zookeeper.session import ZooKeeperSession


@dataclass(frozen=True, slots=True)
class FencingToken:
    """What a leader shows with each write.

    Args:
        path: The epoch node.
        version: Its znode version in our epoch; this is what ZooKeeper compares.
        epoch: The epoch number, for people, for logs and for fencing other stores.
        latch: The latch node of this term, which must be there. Its name is unique, and it never serves under
            a second epoch node, so a token stays invalid even if ZooKeeper's data are wiped and the epoch's
            version comes round again.
    """

    path: str
    version: int
    epoch: int
    latch: str | None = None


def fenced_transaction(
    session: ZooKeeperSession,
    token: FencingToken,
    build: Callable[[TransactionRequest], None],
    *,
    timeout: timedelta | None = None,
) -> list[Any]:
    """Do all of `build`'s operations at once, or none, and only while the token's epoch lasts.

    Args:
        session: Where to write.
        token: From the present `Leadership`.
        build: Adds operations to the transaction: `create`, `set_data`, `delete`, `check`.
        timeout: Longest wait; the session's call timeout if not given.

    Returns:
        kazoo's results, one for each operation of `build`, in order.

    Raises:
        FencedOutError: Another epoch has begun, or our latch is gone. Nothing was written. Stop leading.
        TransactionRefusedError: Another operation failed. Nothing was written.
        ZooKeeperUnavailableError: No answer. The outcome is **unknown**; read before writing again.
    """
    transaction = session.client.transaction()
    fences = (token.path,) if token.latch is None else (token.path, token.latch)
    transaction.operations.append(_fence(session.client.chroot, token))
    build(transaction)
    results = session.call(transaction.commit_async, timeout=timeout)
    refused = first_failure(results)
    if refused is None:
        return list(results[len(fences) :])
    index, error = refused
    mine = index - len(fences)
    path = fences[index] if mine < 0 else getattr(transaction.operations[1 + mine], "path", None)
    if mine < 0 and isinstance(error, BadVersionError | NoNodeError):
        raise FencedOutError(path=fences[index], epoch=token.epoch) from error
    raise TransactionRefusedError(index=mine, path=path, cause=error) from error


@lru_cache(maxsize=64)
def _fence(chroot: str, token: FencingToken) -> Spelled:
    """The checks that each write of a term begins with: the same bytes each time."""
    checks = [CheckVersion(chroot + token.path, token.version)]
    if token.latch is not None:
        checks.append(CheckVersion(chroot + token.latch, -1))
    return spelled(checks)


def first_failure(results: Sequence[Any]) -> tuple[int, Exception] | None:
    """Find the operation that really failed.

    kazoo returns failures, it does not raise them; and ZooKeeper answers for the innocent operations
    too: RolledBackError before the culprit, RuntimeInconsistency after it.

    Returns:
        Index and error of the culprit, or None if the transaction was committed.
    """
    failures = [(index, result) for index, result in enumerate(results) if isinstance(result, Exception)]
    for index, error in failures:
        if not isinstance(error, RolledBackError | RuntimeInconsistency):
            return index, error
    return failures[0] if failures else None
