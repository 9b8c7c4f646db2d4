"""Checks of a table, after it was written.

A task checks after writing. The output of a failed attempt is not visible, so there is nothing to undo, and
the next task reads exactly the checked data.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812 - the name every Spark programmer expects

_log = logging.getLogger("flights")


class BrokenExpectationError(RuntimeError):
    """The data do not match the expectations of the pipeline."""

    def __init__(self, table: str, problems: Sequence[str]) -> None:
        super().__init__(f"table {table}: " + "; ".join(problems))
        self.table, self.problems = table, tuple(problems)


def verify(
    name: str, table: DataFrame, *, rows: int, unique: Sequence[str], always: Mapping[str, str]
) -> None:
    """Check a whole table in one pass.

    Args:
        name: Name of the table in messages.
        table: The table.
        rows: Expected number of rows.
        unique: Columns that are never null and together identify a row.
        always: Conditions for each row, as `{sentence: SQL condition}`; a condition that is null is broken.

    Raises:
        BrokenExpectationError: with every expectation that is broken, and by how many rows.
    """
    sentences = list(always)
    broken = [F.count_if(~F.coalesce(F.expr(always[sentence]), F.lit(False))) for sentence in sentences]
    found, keys, *counts = table.agg(F.count("*"), F.count_distinct(*unique), *broken).collect()[0]
    problems = problems_in(found, rows, keys, unique, dict(zip(sentences, counts, strict=True)))
    if problems:
        raise BrokenExpectationError(name, problems)
    _log.info("%s: %s rows, %s expectations hold", name, f"{found:,}", len(always) + 2)


def problems_in(
    found: int, wanted: int, keys: int, unique: Sequence[str], broken: Mapping[str, int]
) -> list[str]:
    """Describe the problems that the counts of one pass show."""
    problems = []
    if found != wanted:
        problems.append(f"{found:,} rows where {wanted:,} were expected")
    if keys != found:
        problems.append(f"{found - keys:,} rows share or lack a key ({', '.join(unique)})")
    problems += [f"not true that {what}: {count:,} rows" for what, count in broken.items() if count]
    return problems
