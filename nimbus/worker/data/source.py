"""A data source for Spark: `spark.read.format("nimbus")`, `df.write.format("nimbus").mode("append")`.

For tables in outputs if Spark has no connector for their storage (`s3a` needs jars) and its executors are on
other hosts. Parts are Parquet files with unique names. Spark repeats its own failed tasks, so only the parts
of a write that was committed as a whole are valid. Works in classic sessions and on a Spark Connect server
that has Nimbus installed. It runs in Spark's Python workers and needs pyarrow.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from pathlib import Path, PurePosixPath
from typing import IO, TYPE_CHECKING, Any, ClassVar

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    InputPartition,
    WriterCommitMessage,
)

from nimbus.worker.data.manifest import OutputFile, OutputManifest, parts_of
from nimbus.worker.data.notes import read_notes, write_note
from nimbus.worker.data.ports import DataStore, InputRefusedError

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType


class NimbusDataError(Exception):
    """A read or write is not possible. Shown to the author of the task."""


@dataclass(frozen=True, slots=True)
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
        if "door" in self.access:
            from nimbus.worker.data.signed import signed_store

            yield signed_store(self.access["door"])
            return
        from blobsync import S3Config, S3ObjectStore, Secret

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
        """A URI relative to the place.

        Raises:
            NimbusDataError: it is not in the place.
        """
        if not uri.startswith(f"{self.uri}/"):
            raise NimbusDataError(
                f"{uri} is not below {self.uri}; take context().input_uri(...) or context().output_uri"
            )
        return uri.removeprefix(f"{self.uri}/").strip("/")


@dataclass(frozen=True, slots=True)
class _Part(InputPartition):
    """One file."""

    key: str
    sha256: str = ""
    """Empty for a file in a folder, which is trusted."""


class NimbusSource(DataSource):
    """The data source. A subclass with a place is registered: see `source_of`."""

    place: ClassVar[SourcePlace]

    @classmethod
    def name(cls) -> str:
        """The format's name in Spark."""
        return "nimbus"

    def schema(self) -> StructType:
        """The schema of the first part."""
        import pyarrow.parquet as pq
        from pyspark.sql.pandas.types import from_arrow_schema

        parts = parts_below(self.place, self._uri)
        if not parts:
            raise NimbusDataError(f"{self._uri} has no Parquet file")
        with opened(self.place, parts[0]) as file:
            return from_arrow_schema(pq.read_schema(file))

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader of the committed files only."""
        return _Reader(self.place, self._uri, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer that adds files to the attempt's own output."""
        if overwrite:
            raise NimbusDataError('an output is only added to: write with mode("append")')
        below = self.place.below(self._uri)
        if below != self.place.output and not below.startswith(f"{self.place.output}/"):
            raise NimbusDataError(f"{self._uri} is not below context().output_uri")
        return _Writer(self.place, below.removeprefix(self.place.output).strip("/"), schema)

    @property
    def _uri(self) -> str:
        try:
            return str(self.options["path"])
        except KeyError:
            raise NimbusDataError("say where: load(uri) or save(uri)") from None


def source_of(place: SourcePlace) -> type[NimbusSource]:
    """The class to register. It is defined here so that it is pickled by value, with its place."""
    return type("NimbusSourceHere", (NimbusSource,), {"place": place, "__module__": "__main__"})


def parts_below(place: SourcePlace, uri: str) -> list[_Part]:
    """The committed Parquet files of a folder of an input, or of a folder that the task itself has written.

    Raises:
        NimbusDataError: it is neither.
    """
    below = place.below(uri)
    if not place.is_bucket:
        top = Path(place.uri.removeprefix("file://"), below)
        return [_Part(str(path)) for path in sorted(top.glob("*.parquet")) if _counts(path.name)]
    prefix, files = _files_of(place, below)
    folder = below.removeprefix(prefix).strip("/") or "."
    paths = ((PurePosixPath(file.path), file) for file in sorted(files))
    return [
        _Part(f"{prefix}/{file.path}", file.sha256)
        for path, file in paths
        if str(path.parent) == folder and path.suffix == ".parquet" and _counts(path.name)
    ]


def _files_of(place: SourcePlace, below: str) -> tuple[str, Sequence[OutputFile]]:
    """Prefix and files of the output that contains a folder of a bucket."""
    if f"{below}/".startswith(f"{place.output}/"):
        return place.output, read_notes(Path(place.noted))
    for reference in place.inputs.values():
        prefix, sha256 = parts_of(reference)
        if f"{below}/".startswith(f"{prefix}/"):
            with opened(place, _Part(reference, sha256)) as file:
                return prefix, OutputManifest.decode(file.read(), reference).files
    raise NimbusDataError(
        f"{place.uri}/{below} is no folder of an input; take context().input_uri(...) or context().output_uri"
    )


def _counts(name: str) -> bool:
    return not name.startswith(("_", "."))


@contextmanager
def opened(place: SourcePlace, part: _Part) -> Iterator[IO[bytes]]:
    """Open a complete, verified file. Retries for ten minutes if the bucket does not answer.

    Raises:
        NimbusDataError: it differs from the committed content.
        BlobSyncError: the bucket did not answer, or refused.
    """
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


class _Reader(DataSourceReader):
    def __init__(self, place: SourcePlace, uri: str, schema: StructType) -> None:
        self._place, self._uri, self._schema = place, uri, schema

    def partitions(self) -> Sequence[InputPartition]:
        """One partition for each file. Runs on the driver's host."""
        return parts_below(self._place, self._uri)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read a file. Runs in an executor's Python worker."""
        import pyarrow as pa
        import pyarrow.parquet as pq
        from pyspark.sql.pandas.types import to_arrow_schema

        assert isinstance(partition, _Part)  # noqa: S101 - it is one of ours
        # Spark accepts times only in this zone, and shows them in that of the session.
        expected = to_arrow_schema(self._schema, timezone="UTC")
        with opened(self._place, partition) as file:
            for batch in pq.ParquetFile(file).iter_batches(columns=expected.names):
                columns = [batch.column(field.name).cast(field.type) for field in expected]
                yield pa.RecordBatch.from_arrays(columns, schema=expected)


@dataclass(frozen=True, slots=True)
class _Written(WriterCommitMessage):
    """The part that one of Spark's tasks has written; empty if it had no rows."""

    files: tuple[OutputFile, ...]


class _Writer(DataSourceArrowWriter):
    def __init__(self, place: SourcePlace, folder: str, schema: StructType) -> None:
        self._place, self._folder, self._schema = place, folder, schema

    def write(self, iterator: Iterator[pa.RecordBatch]) -> _Written:
        """Write a part. Runs in an executor's Python worker."""
        first = next(iterator, None)
        if first is None:
            return _Written(())
        return _Written((self._stored(first.schema, chain([first], iterator)),))

    def _stored(self, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> OutputFile:
        import pyarrow.parquet as pq

        with tempfile.NamedTemporaryFile(suffix=".parquet") as file:
            with pq.ParquetWriter(file, schema) as writer:
                for batch in batches:
                    writer.write_batch(batch)
            file.flush()
            name = f"part-{uuid.uuid4().hex}.parquet"
            path = f"{self._folder}/{name}" if self._folder else name
            part = OutputFile(
                path=path, size_bytes=Path(file.name).stat().st_size, sha256=_digest_of(file.name)
            )
            self._keep(Path(file.name), part)
        return part

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
        from pyspark.sql.pandas.types import to_arrow_schema

        parts = _parts_of(messages) or [self._stored(to_arrow_schema(self._schema, timezone="UTC"), ())]
        if self._place.is_bucket:
            write_note(Path(self._place.noted), parts)
            return
        for part in parts:
            hidden = self._hidden(part)
            hidden.rename(hidden.with_name(hidden.name.removeprefix(".")))

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """Discard the parts. In a bucket they stay, but no manifest names them."""
        if not self._place.is_bucket:
            for part in _parts_of(messages):
                self._hidden(part).unlink(missing_ok=True)


def _parts_of(messages: Sequence[WriterCommitMessage | None]) -> list[OutputFile]:
    return [part for message in messages if isinstance(message, _Written) for part in message.files]


def _digest_of(file: str) -> str:
    with Path(file).open("rb") as opened_file:
        return hashlib.file_digest(opened_file, "sha256").hexdigest()


def has_table(uri: str) -> bool:
    """True if `spark.read.format("nimbus").load(uri)` finds a file."""
    return bool(parts_below(_place_of_task(), uri))


def register(session: Any) -> None:
    """Register the source in a session, for the attempt of this process."""
    session.dataSource.register(source_of(_place_of_task()))


def _place_of_task() -> SourcePlace:
    from nimbus.task import CONTEXT_VARIABLE, context

    data = context().data
    access = dict(data.get("access", {}))
    if "door" in access:
        from nimbus.worker.data.signed import latest

        access["door"] = latest(access["door"])
    return SourcePlace(
        uri=data["uri"],
        output=data["output"],
        inputs=dict(data["inputs"]),
        access=access,
        noted=str(Path(os.environ[CONTEXT_VARIABLE]).parent / "work" / "parts"),
    )
