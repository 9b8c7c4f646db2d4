"""Writes that only the present leader can make.

The safety of the whole system depends on this: the first operations of each transaction check the version of
the epoch node, and that the latch with which this term was won exists. So a leader that was paused,
disconnected or deposed writes nothing, even while it believes that it leads.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from kazoo.client import TransactionRequest
from kazoo.exceptions import BadVersionError, NoNodeError, RolledBackError, RuntimeInconsistency

from leader.errors import FencedOutError, TransactionRefusedError
from leader.protocol.terms import FencingToken

if TYPE_CHECKING:
    from leader.zookeeper.session import ZooKeeperSession


def fenced_transaction(
    session: ZooKeeperSession,
    token: FencingToken,
    build: Callable[[TransactionRequest], None],
    *,
    timeout: timedelta | None = None,
) -> list[Any]:
    """Execute all of `build`'s operations, or none, and only while the token's epoch lasts.

    Args:
        session: The session to write with.
        token: From the present `Leadership`.
        build: Adds operations to the transaction: `create`, `set_data`, `delete`, `check`.
        timeout: Limit of the wait. By default, the session's call timeout.

    Returns:
        kazoo's results, one for each operation of `build`, in order.

    Raises:
        FencedOutError: Another epoch has begun, or the latch is gone. Nothing was written. Stop leading.
        TransactionRefusedError: Another operation failed. Nothing was written.
        ZooKeeperUnavailableError: No answer. The outcome is **unknown**; read before writing again.
    """
    transaction = session.client.transaction()
    fences = (token.path,) if token.latch is None else (token.path, token.latch)
    transaction.check(token.path, token.version)
    if token.latch is not None:
        transaction.check(token.latch, -1)
    build(transaction)
    results = session.call(transaction.commit_async, timeout=timeout)
    refused = first_failure(results)
    if refused is None:
        return list(results[len(fences) :])
    index, error = refused
    mine = index - len(fences)
    path = fences[index] if mine < 0 else getattr(transaction.operations[index], "path", None)
    if mine < 0 and isinstance(error, BadVersionError | NoNodeError):
        raise FencedOutError(path=fences[index], epoch=token.epoch) from error
    raise TransactionRefusedError(index=mine, path=path, cause=error) from error


def first_failure(results: Sequence[Any]) -> tuple[int, Exception] | None:
    """Find the operation that made the transaction fail.

    kazoo returns failures and does not raise them. ZooKeeper answers with a failure for the other operations,
    too: RolledBackError before the one that failed, RuntimeInconsistency after it. Returns index and error of
    the operation that failed; None if the transaction was committed.
    """
    failures = [(index, result) for index, result in enumerate(results) if isinstance(result, Exception)]
    for index, error in failures:
        if not isinstance(error, RolledBackError | RuntimeInconsistency):
            return index, error
    return failures[0] if failures else None
