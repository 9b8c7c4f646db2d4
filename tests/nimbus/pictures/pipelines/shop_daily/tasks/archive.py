"""Packs the joined orders."""

import gzip
import shutil
import time

from nimbus.task import context


def main() -> None:
    time.sleep(2)
    with (context().inputs["join"] / "joined.csv").open("rb") as source:
        with gzip.open(context().output / "joined.csv.gz", "wb") as packed:
            shutil.copyfileobj(source, packed)


if __name__ == "__main__":
    main()
