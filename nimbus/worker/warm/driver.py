"""A driver that starts Spark first: `python -I -u -m nimbus.worker.warm.driver FOLDER DESCRIPTOR ROOM`.

Started by a waiting runner, isolated. Notes what a cold driver would have imported by now, since all else
that is imported here could stand in the way of a release's modules.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence

import pyspark.sql  # noqa: F401 - a cold driver has it, too

from nimbus.worker import driver  # noqa: F401 - likewise


def main(arguments: Sequence[str]) -> None:
    """Warm up, wait for an attempt, run it."""
    of_a_cold_one = frozenset(sys.modules)
    from nimbus.worker.warm.waiting import wait_and_run

    wait_and_run(arguments, of_a_cold_one)


if __name__ == "__main__":
    main(sys.argv[1:])
