"""The data source for Spark, called like Spark does: counted parts, and parts that are read."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any

import pytest

import blobsync
from blobsync import BucketUnavailableError, ObjectStore
from blobsync.testing.memory import MemoryObjectStore
from nimbus.worker.data import source
from nimbus.worker.data.bucket import BucketPlace
from nimbus.worker.data.places import FolderPlace
from nimbus.worker.data.ports import DataPlace
from nimbus.worker.data.source import NimbusDataError, NimbusSource, SourcePlace, source_of

pa = pytest.importorskip("pyarrow")
types = pytest.importorskip("pyspark.sql.types")

OUTPUT = "sums/run1/load/1"


class Site:
    """A place, the source that writes an output, and the one that reads it."""

    def __init__(self, place: DataPlace, tmp_path: Path) -> None:
        self.place, self.noted = place, tmp_path / "parts"
        self.prefix = place.prefix(OUTPUT)
        self.output = place.output(OUTPUT, tmp_path / "own")
        self.output.mkdir(parents=True)
        self.writes = self._source({})

    def _source(self, inputs: dict[str, str]) -> type[NimbusSource]:
        return source_of(
            SourcePlace(
                uri=self.place.uri, output=self.prefix, inputs=inputs, access={}, noted=str(self.noted)
            )
        )

    def writer(self, folder: str = "table") -> Any:
        schema = types.StructType([types.StructField("n", types.LongType())])
        return self.writes({"path": f"{self.place.uri}/{self.prefix}/{folder}"}).writer(
            schema, overwrite=False
        )

    def rows(self, folder: str = "table") -> list[int]:
        """Commit the attempt. Returns the rows that a later task reads."""
        reference = self.place.commit(self.output, self.prefix, self.noted)
        uri = f"{self.place.uri}/{self.prefix}/{folder}"
        return self._rows(self._source({"load": reference}), uri)

    def own_rows(self, folder: str = "table") -> list[int]:
        """The rows that the task itself reads before its end."""
        return self._rows(self.writes, f"{self.place.uri}/{self.prefix}/{folder}")

    def _rows(self, source: type[NimbusSource], uri: str) -> list[int]:
        reader: Any = source({"path": uri})
        rows = reader.reader(reader.schema())
        return sorted(
            n for part in rows.partitions() for batch in rows.read(part) for n in batch["n"].to_pylist()
        )


@pytest.fixture
def store() -> MemoryObjectStore:
    return MemoryObjectStore()


@pytest.fixture(params=["folder", "bucket"])
def site(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    store: MemoryObjectStore,
    monkeypatch: pytest.MonkeyPatch,
) -> Site:
    @contextmanager
    def same(_place: SourcePlace) -> Iterator[ObjectStore]:
        yield store

    monkeypatch.setattr(SourcePlace, "store", same)
    if request.param == "folder":
        return Site(FolderPlace(tmp_path / "data"), tmp_path)
    return Site(BucketPlace("s3://b/p", tmp_path / "inputs", lambda: store), tmp_path)


def batches(*numbers: int) -> Iterator[Any]:
    return iter([pa.RecordBatch.from_pydict({"n": list(numbers)})])


def test_what_was_written_is_read(site: Site) -> None:
    writer = site.writer()

    writer.commit([writer.write(batches(1, 2)), writer.write(batches(3)), writer.write(iter(())), None])

    assert site.rows() == [1, 2, 3]


def test_task_reads_what_it_has_written_itself(site: Site) -> None:
    kept, lost = site.writer(), site.writer()
    kept.commit([kept.write(batches(1, 2))])
    lost.write(batches(99))

    assert site.own_rows() == [1, 2]


def test_times_are_read_in_the_zone_that_spark_takes_whatever_the_writers_was(site: Site) -> None:
    writer = site.writer()
    noon = pa.array([0], pa.timestamp("us", tz="Europe/Berlin"))
    writer.commit([writer.write(iter([pa.RecordBatch.from_arrays([noon], names=["n"])]))])

    reader: Any = site.writes({"path": f"{site.place.uri}/{site.prefix}/table"})
    rows = reader.reader(reader.schema())
    (batch,) = [batch for part in rows.partitions() for batch in rows.read(part)]

    assert batch.schema.field("n").type == pa.timestamp("us", tz="UTC")


def test_parts_of_spark_tasks_that_failed_are_not_read(site: Site) -> None:
    writer = site.writer()
    writer.write(batches(99))  # its message is lost with the executor

    writer.commit([writer.write(batches(1))])

    assert site.rows() == [1]


def test_write_that_was_aborted_is_not_read(site: Site) -> None:
    kept, aborted = site.writer(), site.writer()
    kept.commit([kept.write(batches(1))])

    aborted.abort([aborted.write(batches(2)), None])

    assert site.rows() == [1]


def test_two_writes_are_added_up(site: Site) -> None:
    for number in (1, 2):
        writer = site.writer()
        writer.commit([writer.write(batches(number))])

    assert site.rows() == [1, 2]


def test_folders_are_tables_of_their_own(site: Site) -> None:
    for number, folder in enumerate(["table", "other", "table/deeper"]):
        writer = site.writer(folder)
        writer.commit([writer.write(batches(number))])

    assert site.rows("table") == [0]


def test_parts_that_a_zombie_adds_later_are_not_read_in_a_bucket(site: Site) -> None:
    if not site.place.uri.startswith("s3"):
        pytest.skip("a zombie writes into another folder")
    writer = site.writer()
    writer.commit([writer.write(batches(1))])
    reference = site.place.commit(site.output, site.prefix, site.noted)
    writer.write(batches(99))

    source: Any = site._source({"load": reference})({"path": f"{site.place.uri}/{site.prefix}/table"})

    assert len(source.reader(source.schema()).partitions()) == 1


def test_only_the_attempts_own_output_is_written_to(site: Site) -> None:
    for uri in (f"{site.place.uri}/sums/run1/other/1/table", "s3://elsewhere/x"):
        with pytest.raises(NimbusDataError, match="is not below"):
            site.writes({"path": uri}).writer(SALES, overwrite=False)


SALES = types.StructType(
    [
        types.StructField("region", types.StringType()),
        types.StructField("n", types.LongType()),
        types.StructField("day", types.DateType()),
    ]
)
Row = tuple[str | None, int, date | None]


def sell(site: Site, *rows: Row, overwrite: bool = False, by: str = "day, region") -> None:
    options = {"path": f"{site.place.uri}/{site.prefix}/sales", "partitionBy": by}
    writer: Any = site.writes(options).writer(SALES, overwrite=overwrite)
    regions, numbers, days = zip(*rows, strict=True)
    columns = [pa.array(regions, pa.string()), pa.array(numbers), pa.array(days, pa.date32())]
    writer.commit([writer.write(iter([pa.RecordBatch.from_arrays(columns, names=SALES.names)]))])


def sold(site: Site, partition: str = "") -> tuple[list[Row], int]:
    """The rows that the task itself reads, and from how many files."""
    table = f"{site.place.uri}/{site.prefix}/sales"
    of: Any = site.writes({"path": f"{table}{partition}", "basePath": table})
    reader = of.reader(of.schema())
    parts = reader.partitions()
    rows = [row for part in parts for batch in reader.read(part) for row in batch.to_pylist()]
    return sorted(((row["region"], row["n"], row["day"]) for row in rows), key=str), len(parts)


FIRST, SECOND = date(2026, 1, 1), date(2026, 1, 2)
ODD = "e/u=%1 ü"


def test_partitions_are_read_with_their_columns_and_types(site: Site) -> None:
    rows = sorted(
        [("us", 1, FIRST), (ODD, 2, FIRST), (None, 3, SECOND), ("us", 4, None), ("us", 5, FIRST)], key=str
    )

    sell(site, *rows)

    assert sold(site) == (rows, 4)


def test_one_partition_is_read_by_its_path_and_with_a_base_path_has_its_columns(site: Site) -> None:
    sell(site, ("us", 1, FIRST), (ODD, 2, FIRST), ("us", 3, SECOND))

    assert sold(site, "/day=2026-01-01") == ([(ODD, 2, FIRST), ("us", 1, FIRST)], 2)
    assert sold(site, "/day=2026-01-02/region=us") == ([("us", 3, SECOND)], 1)
    partition: Any = site.writes({"path": f"{site.place.uri}/{site.prefix}/sales/day=2026-01-01"})
    assert partition.schema().names == ["n", "region"]


def test_base_path_that_is_no_folder_above_is_refused(site: Site) -> None:
    sell(site, ("us", 1, FIRST))
    table = f"{site.place.uri}/{site.prefix}/sales"

    with pytest.raises(NimbusDataError, match=r"basePath .*/other is not above"):
        site.writes({"path": table, "basePath": f"{table}/other"}).schema()


def test_overwrite_replaces_the_partitions_of_the_new_rows_alone(site: Site) -> None:
    sell(site, ("us", 1, FIRST), ("us", 2, SECOND), ("eu", 3, FIRST))

    sell(site, ("us", 4, FIRST), overwrite=True)
    assert sold(site)[0] == [("eu", 3, FIRST), ("us", 2, SECOND), ("us", 4, FIRST)]

    sell(site, ("us", 5, SECOND), overwrite=True, by="")
    assert sold(site) == ([("us", 5, SECOND)], 1)


def test_partitioned_table_without_rows_has_its_columns(site: Site) -> None:
    options = {"path": f"{site.place.uri}/{site.prefix}/sales", "partitionBy": "day"}
    writer: Any = site.writes(options).writer(SALES, overwrite=False)
    writer.commit([writer.write(iter(())), None])

    assert sold(site)[0] == []
    sell(site, ("us", 1, FIRST))
    assert sold(site)[0] == [("us", 1, FIRST)]


@pytest.mark.parametrize(
    ("by", "why"),
    [
        ("month", "partitionBy has month, and the table has region, n, day"),
        ("day,day", "a column twice: day, day"),
        ("region,n,day", "all columns"),
    ],
)
def test_partition_columns_that_cannot_be_are_refused(site: Site, by: str, why: str) -> None:
    with pytest.raises(NimbusDataError, match=why):
        sell(site, ("us", 1, FIRST), by=by)


def test_partition_column_of_another_type_is_refused_with_what_to_do(site: Site) -> None:
    schema = types.StructType([*SALES, types.StructField("at", types.TimestampType())])
    options = {"path": f"{site.place.uri}/{site.prefix}/sales", "partitionBy": "at"}

    with pytest.raises(NimbusDataError, match=r"at of type timestamp.*cast it to a string"):
        site.writes(options).writer(schema, overwrite=False)


def test_rows_for_too_many_partitions_are_refused_with_what_to_do(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source, "_MAX_PARTITIONS", 2)

    with pytest.raises(NimbusDataError, match=r"more than 2 partitions.*repartition\('day'\)"):
        sell(site, *(("us", day, date(2026, 1, day)) for day in (1, 2, 3)), by="day")


def test_folder_without_parts_is_refused_with_its_name(site: Site) -> None:
    writer = site.writer()
    writer.commit([writer.write(batches(1))])

    with pytest.raises(NimbusDataError, match="nothing-here has no Parquet file"):
        site.rows("nothing-here")


def test_table_without_rows_is_a_table_with_its_columns(site: Site) -> None:
    writer = site.writer()

    writer.commit([writer.write(iter(())), None])

    assert site.rows() == []


@pytest.mark.parametrize("site", ["bucket"], indirect=True)
def test_part_is_read_again_when_the_store_did_not_answer(
    site: Site, store: MemoryObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = site.writer()
    writer.commit([writer.write(batches(1, 2))])
    read, left = store.read, [BucketUnavailableError("broken off")]

    def breaks_off_once(key: str) -> Iterator[bytes]:
        for chunk in read(key):
            yield chunk[:1]
            if left:
                raise left.pop()
            yield chunk[1:]

    monkeypatch.setattr(store, "read", breaks_off_once)

    assert site.own_rows() == [1, 2]


@pytest.mark.parametrize("site", ["bucket"], indirect=True)
def test_part_that_is_not_what_was_committed_is_refused(site: Site, store: MemoryObjectStore) -> None:
    writer = site.writer()
    writer.commit([writer.write(batches(1, 2))])
    (part,) = (found.key for found in store.list(""))
    store.write(part, b"other")

    with pytest.raises(NimbusDataError, match="is not what was committed"):
        site.own_rows()


def test_interpreter_that_cannot_import_the_client_of_buckets_is_told_what_it_needs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("S3Config", "S3ObjectStore"):
        monkeypatch.delitem(vars(blobsync), name, raising=False)
    monkeypatch.setitem(sys.modules, "blobsync.s3.config", None)
    place = SourcePlace(uri="s3://b/p", output=OUTPUT, inputs={}, access={}, noted="")

    with pytest.raises(NimbusDataError, match=r"need Python 3\.11 or newer here"), place.store():
        pass
