"""A driver that starts Spark first: `python -I -u -m nimbus.worker.warm.driver FOLDER DESCRIPTOR ROOM`.

A waiting runner starts it, isolated. It records the modules that a cold driver would have imported at this
point, because any other imported module may hide a release's module of the same name.
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
