"""Works in its own Spark driver, which runs small jobs continuously."""

import sys

from journal import live, until
from pyspark.sql import SparkSession

from nimbus.task import context


def main() -> None:
    ctx = context()
    in_time = until(float(sys.argv[2]) * float(sys.argv[3]))

    def goes_on() -> bool:
        assert SparkSession.builder.getOrCreate().range(10).count() == 10
        return in_time()

    live(sys.argv[1], f"{ctx.run_id}.{ctx.task}.{ctx.attempt}", goes_on)


if __name__ == "__main__":
    main()
