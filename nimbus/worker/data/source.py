"""A data source for Spark: `spark.read.format("nimbus")`, `df.write.format("nimbus").mode("append")`.

For tables in outputs if Spark has no connector for their storage (`s3a` needs jars) and its executors are on
other hosts. Parts are Parquet files with unique names. Spark repeats its own failed tasks, so only the parts
of a write that was committed as a whole are valid. Works in classic sessions and on a Spark Connect server
that has Nimbus installed. It runs in Spark's Python workers and needs pyarrow.
"""

from __future__ import annotations

import hashlib
import inspect
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from nimbus.worker.data import partitions
from nimbus.worker.data.manifest import OutputFile, OutputManifest, parts_of, read_notes, write_note
from nimbus.worker.data.ports import DataStore, InputRefusedError
from nimbus.worker.host.files import digested

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


_MAX_PARTITIONS = 500
"""Of a table, in one of Spark's partitions: each has an open file."""


class NimbusDataError(Exception):
    """A read or write is not possible. Shown to the author of the task."""


@dataclass(frozen=True)
class SourcePlace:
    """The data of a reader or writer, which is sent to Spark's executors."""

    uri: str
    """URI of the storage of outputs."""
    output: str
    """Prefix of the attempt's own output."""
    inputs: Mapping[str, str]
    """References, by task."""
    access: Mapping[str, Any] = field(repr=False)
    """Access to the bucket; see `nimbus.task.TaskContext.data`."""
    noted: str
    """Folder for notes on the driver's host."""

    @property
    def is_bucket(self) -> bool:
        """True if outputs are in a bucket, not in a folder."""
        return self.uri.startswith("s3://")

    @contextmanager
    def store(self) -> Iterator[DataStore]:
        """The bucket; keys are relative to `uri`."""
        if "gateway" in self.access:
            from nimbus.worker.data.signed import signed_store

            yield signed_store(self.access["gateway"])
            return
        try:
            from blobsync import S3Config, S3ObjectStore, Secret
        except (ImportError, TypeError) as exc:  # of another interpreter
            raise NimbusDataError(f"outputs in a bucket need Python 3.11 or newer here ({exc})") from exc
        bucket, _, prefix = self.uri.removeprefix("s3://").partition("/")
        secret = self.access.get("secret_access_key")
        config = S3Config(
            endpoint_url=self.access.get("endpoint_url"),
            bucket=bucket,
            prefix=prefix,
            region=self.access.get("region", "us-east-1"),
            access_key_id=self.access.get("access_key_id"),
            secret_access_key=None if secret is None else Secret(secret),
            encryption=self.access.get("encryption"),
            kms_key_id=self.access.get("kms_key_id"),
        )
        store = S3ObjectStore(config)
        try:
            yield store
        finally:
            store.close()

    def below(self, uri: str) -> str:
        """A URI relative to the place. NimbusDataError: it is not in the place."""
        if not uri.startswith(f"{self.uri}/"):
            raise NimbusDataError(
                f"{uri} is not below {self.uri}; take context().input_uri(...) or context().output_uri"
            )
        return uri.removeprefix(f"{self.uri}/").strip("/")


@dataclass(frozen=True)
class _TableFile(InputPartition):
    key: str
    sha256: str = ""
    """Empty for a file in a folder, which is trusted."""
    values: partitions.Values = ()


class NimbusSource(DataSource):
    """The data source. A subclass with a place is registered: see `source_of`."""

    place: ClassVar[SourcePlace]

    @classmethod
    def name(cls) -> str:
        """The format's name in Spark."""
        return "nimbus"

    def schema(self) -> StructType:
        """The schema of the first part, and its partition columns."""
        import pyarrow.parquet as pq
        from pyspark.sql.pandas.types import from_arrow_schema

        parts = self._parts()
        if not parts:
            raise NimbusDataError(f"{self._uri} has no Parquet file")
        with opened(self.place, parts[0]) as file:
            return from_arrow_schema(partitions.with_partitions(pq.read_schema(file), parts[0].values))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the committed files only."""
        return _TableReader(self.place, self._parts(), schema)

    def _parts(self) -> list[_TableFile]:
        return parts_below(self.place, self._uri, self.options.get("basePath", ""))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer that adds files to the attempt's own output, and with `overwrite` replaces partitions."""
        below = self.place.below(self._uri)
        if below != self.place.output and not below.startswith(f"{self.place.output}/"):
            raise NimbusDataError(f"{self._uri} is not below context().output_uri")
        by = partitions.columns_of(self.options.get("partitionBy", ""))
        arrow = _arrow_schema(schema)
        if (fault := partitions.fault_of(by, arrow)) is not None:
            raise NimbusDataError(fault)
        folder = below.removeprefix(self.place.output).strip("/")
        return _TableWriter(self.place, folder, arrow, by, replaces=overwrite)

    @property
    def _uri(self) -> str:
        try:
            return str(self.options["path"])
        except KeyError:
            raise NimbusDataError("say where: load(uri) or save(uri)") from None


def _arrow_schema(schema: StructType) -> pa.Schema:
    """Spark's schema for Arrow, with times in UTC: Spark 4.0 knows no other zone, and cannot be told one."""
    from pyspark.sql.pandas.types import to_arrow_schema

    knows_zones = "timezone" in inspect.signature(to_arrow_schema).parameters
    return to_arrow_schema(schema, timezone="UTC") if knows_zones else to_arrow_schema(schema)


def source_of(place: SourcePlace) -> type[NimbusSource]:
    """The class to register. It is defined here so that it is pickled by value, with its place."""
    return type("NimbusSourceHere", (NimbusSource,), {"place": place, "__module__": "__main__"})


def parts_below(place: SourcePlace, uri: str, table: str = "") -> list[_TableFile]:
    """The committed Parquet files of a folder of an input, or of a folder that the task itself has written.

    `table`: the URI of the table, below which folders are partitions. NimbusDataError: `uri` is neither.
    """
    below = place.below(uri)
    try:
        above = PurePosixPath(below).relative_to(place.below(table or uri))
    except ValueError:
        raise NimbusDataError(f"basePath {table} is not above {uri}") from None
    if not place.is_bucket:
        top = Path(place.uri.removeprefix("file://"), below)
        parts = [
            (str(path), "", PurePosixPath(path.relative_to(top))) for path in sorted(top.rglob("*.parquet"))
        ]
    else:
        prefix, files = _files_of(place, below)
        folder = below.removeprefix(prefix).strip("/") or "."
        parts = [
            (f"{prefix}/{file.path}", file.sha256, PurePosixPath(file.path).relative_to(folder))
            for file in sorted(files)
            if PurePosixPath(file.path).is_relative_to(folder) and file.path.endswith(".parquet")
        ]
    return [
        _TableFile(key, sha256, values)
        for key, sha256, path in parts
        if _counts(path.name) and (values := partitions.values_of(above / path.parent)) is not None
    ]


def _files_of(place: SourcePlace, below: str) -> tuple[str, Sequence[OutputFile]]:
    """Prefix and files of the output that contains a folder of a bucket."""
    if f"{below}/".startswith(f"{place.output}/"):
        return place.output, read_notes(Path(place.noted))
    for reference in place.inputs.values():
        prefix, sha256 = parts_of(reference)
        if f"{below}/".startswith(f"{prefix}/"):
            with opened(place, _TableFile(reference, sha256)) as file:
                return prefix, OutputManifest.decode(file.read(), reference).files
    raise NimbusDataError(
        f"{place.uri}/{below} is no folder of an input; take context().input_uri(...) or context().output_uri"
    )


def _counts(name: str) -> bool:
    return not name.startswith(("_", "."))


@contextmanager
def opened(place: SourcePlace, part: _TableFile) -> Iterator[IO[bytes]]:
    """Open a verified file; retries for ten minutes. NimbusDataError: it differs. BlobSyncError: refused."""
    if not place.is_bucket:
        with Path(part.key).open("rb") as file:
            yield file
        return
    from nimbus.worker.data.bucket import UPLOAD_RETRY, BucketPlace

    with tempfile.TemporaryFile() as copy, place.store() as store:
        bucket = BucketPlace(place.uri, Path("/nowhere"), lambda: store, fetch_retry=UPLOAD_RETRY)
        try:
            bucket.read(part.key, part.sha256, copy)
        except InputRefusedError as exc:
            raise NimbusDataError(str(exc)) from exc
        copy.seek(0)
        yield copy


class _TableReader(DataSourceReader):
    def __init__(self, place: SourcePlace, parts: Sequence[_TableFile], schema: StructType) -> None:
        self._place, self._parts, self._schema = place, parts, schema

    def partitions(self) -> Sequence[InputPartition]:
        """One of Spark's partitions for each file. Runs on the driver's host.

        There is no `pushFilters`: Spark 4.3 applies the filter of one query also to later queries of the same
        DataFrame, which then lose rows.
        """
        return self._parts

    def _expected(self) -> pa.Schema:
        """Spark accepts times only in this zone, and shows them in that of the session."""
        return _arrow_schema(self._schema)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a file. Runs in an executor's Python worker."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        assert isinstance(partition, _TableFile)  # noqa: S101 - it is one of ours
        expected, values = self._expected(), dict(partition.values)
        own = [name for name in expected.names if name not in values]
        with opened(self._place, partition) as file:
            for batch in pq.ParquetFile(file).iter_batches(columns=own):
                columns = [
                    partitions.column_of(values[field.name], field.type, batch.num_rows)
                    if field.name in values
                    else batch.column(field.name).cast(field.type)
                    for field in expected
                ]
                yield pa.RecordBatch.from_arrays(columns, schema=expected)


@dataclass(frozen=True)
class _Written(WriterCommitMessage):
    """The parts that one of Spark's tasks has written; empty if it had no rows."""

    files: tuple[OutputFile, ...]


class _TableWriter(DataSourceArrowWriter):
    def __init__(
        self, place: SourcePlace, folder: str, schema: pa.Schema, by: Sequence[str], *, replaces: bool
    ) -> None:
        """`by`: partition columns. `replaces`: the partitions of new rows, or without `by` the table."""
        self._place, self._folder, self._schema, self._by = place, folder, schema, by
        self._replaces = replaces

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        """Write a part for each partition. Runs in an executor's Python worker."""
        return _Written(tuple(self._stored(iterator)))

    def _stored(self, batches: Iterable[pa.RecordBatch], *always: str) -> Iterator[OutputFile]:
        """Store the rows, and a part in each of the folders `always`."""
        import pyarrow.parquet as pq

        with ExitStack() as stack:
            files: dict[str, tuple[IO[bytes], Any]] = {}

            def writer_of(folder: str, schema: pa.Schema) -> Any:
                if folder not in files:
                    if len(files) == _MAX_PARTITIONS:
                        raise NimbusDataError(
                            f"one of Spark's partitions has rows for more than {_MAX_PARTITIONS} partitions "
                            f"of the table: call repartition({', '.join(map(repr, self._by))}) first"
                        )
                    file = stack.enter_context(tempfile.NamedTemporaryFile(suffix=".parquet"))
                    own = partitions.described(schema, self._by) if folder else schema
                    files[folder] = file, stack.enter_context(pq.ParquetWriter(file, own))
                return files[folder][1]

            for batch in batches:
                for folder, rows in partitions.split(batch, self._by):
                    writer_of(folder, batch.schema).write_batch(rows)
            for folder in always:
                writer_of(folder, self._schema)
            for folder, (file, writer) in files.items():
                writer.close()
                file.flush()
                path = PurePosixPath(self._folder, folder, f"part-{uuid.uuid4().hex}.parquet")
                size = file.seek(0, os.SEEK_END)
                file.seek(0)
                sha256 = digested(file, hashlib.sha256()).hexdigest()
                part = OutputFile(path=str(path), size_bytes=size, sha256=sha256)
                self._keep(Path(file.name), part)
                yield part

    def _keep(self, file: Path, part: OutputFile) -> None:
        """Store a part; in a folder it has a hidden name until the write is committed."""
        if self._place.is_bucket:
            from blobsync.retry import call_retrying
            from nimbus.worker.data.bucket import UPLOAD_RETRY

            with self._place.store() as store:
                key = f"{self._place.output}/{part.path}"
                call_retrying(lambda: store.write(key, file), UPLOAD_RETRY, what=key)
            return
        hidden = self._hidden(part)
        hidden.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(file, hidden)

    def _hidden(self, part: OutputFile) -> Path:
        path = Path(self._place.uri.removeprefix("file://"), self._place.output, part.path)
        return path.with_name(f".{path.name}")

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Make the parts of successful tasks valid. Runs on the driver's host.

        A table without rows has one part, too, from which readers take the columns.
        """
        parts = _parts_of(messages) or list(self._stored((), ""))
        replaced = self._replaced(parts) if self._replaces else []
        if self._place.is_bucket:
            write_note(Path(self._place.noted), parts, replaced)
            return
        for part in parts:
            hidden = self._hidden(part)
            hidden.rename(hidden.with_name(hidden.name.removeprefix(".")))
        for path in replaced:
            Path(self._place.uri.removeprefix("file://"), self._place.output, path).unlink()

    def _replaced(self, parts: Iterable[OutputFile]) -> list[str]:
        """Paths of earlier parts that the new ones replace."""
        folders = {str(PurePosixPath(part.path).parent) for part in parts}
        output = f"{self._place.uri}/{self._place.output}"
        top = self._place.output if self._place.is_bucket else output.removeprefix("file://")
        earlier = (
            part.key.removeprefix(f"{top}/") for part in parts_below(self._place, f"{output}/{self._folder}")
        )
        return [path for path in earlier if not self._by or str(PurePosixPath(path).parent) in folders]

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Discard the parts. In a bucket they stay, but no manifest names them."""
        if not self._place.is_bucket:
            for part in _parts_of(messages):
                self._hidden(part).unlink(missing_ok=True)


def _parts_of(messages: Sequence[WriterCommitMessage | None]) -> list[OutputFile]:
    return [part for message in messages if isinstance(message, _Written) for part in message.files]


def register(session: Any) -> None:
    """Register the source in a session, for the attempt of this process."""
    session.dataSource.register(source_of(_place_of_task()))


def _place_of_task() -> SourcePlace:
    from nimbus.task import CONTEXT_VARIABLE, context

    data = context().data
    access = dict(data.get("access", {}))
    if "gateway" in access:
        from nimbus.worker.data.signed import latest

        access["gateway"] = latest(access["gateway"])
    return SourcePlace(
        uri=data["uri"],
        output=data["output"],
        inputs=dict(data["inputs"]),
        access=access,
        noted=str(Path(os.environ[CONTEXT_VARIABLE]).parent / "work" / "parts"),
    )
