"""Jars for tests, made by `javac`: above all a small data source of Spark."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import zipfile
from functools import cache
from pathlib import Path

import pyspark
import pytest

from tests.nimbus.spark_start import QUICK_JVM

HAS_JAVAC = shutil.which("javac") is not None
needs_javac = pytest.mark.skipif(not HAS_JAVAC, reason="there is no Java compiler")
_NUMBERS = """
package example;

import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.connector.catalog.*;
import org.apache.spark.sql.connector.expressions.Transform;
import org.apache.spark.sql.connector.read.*;
import org.apache.spark.sql.types.*;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;
import org.apache.spark.unsafe.types.UTF8String;

/** One row for each of two partitions: its number, and the text of this jar. Executors need it, too. */
public class Numbers implements TableProvider {
    static final StructType SCHEMA = new StructType().add("id", "long").add("told", "string");

    public StructType inferSchema(CaseInsensitiveStringMap options) { return SCHEMA; }

    public Table getTable(StructType schema, Transform[] transforms, Map<String, String> options) {
        return new Rows();
    }

    static class Rows implements Table, SupportsRead, ScanBuilder, Scan, Batch {
        public String name() { return "numbers"; }
        public StructType schema() { return SCHEMA; }
        public Set<TableCapability> capabilities() { return Set.of(TableCapability.BATCH_READ); }
        public ScanBuilder newScanBuilder(CaseInsensitiveStringMap options) { return this; }
        public Scan build() { return this; }
        public StructType readSchema() { return SCHEMA; }
        public Batch toBatch() { return this; }
        public InputPartition[] planInputPartitions() {
            return new InputPartition[] {new Part(0), new Part(1)};
        }
        public PartitionReaderFactory createReaderFactory() { return new Readers(); }
    }

    static class Part implements InputPartition {
        final long id;
        Part(long id) { this.id = id; }
    }

    static class Readers implements PartitionReaderFactory {
        public PartitionReader<InternalRow> createReader(InputPartition part) {
            return new PartitionReader<InternalRow>() {
                private boolean read;
                public boolean next() { return !read && (read = true); }
                public InternalRow get() {
                    return new GenericInternalRow(
                        new Object[] {((Part) part).id, UTF8String.fromString("@TOLD@")});
                }
                public void close() {}
            };
        }
    }
}
"""


def compile_jar(jar: Path, name: str, source: str) -> Path:
    """Compile one source file, whose main class is `name`, such as `example.Job`, into a jar."""
    place = jar.parent / f"{jar.name}.classes"
    file = place / f"{name.replace('.', '/')}.java"
    file.parent.mkdir(parents=True)
    file.write_text(source)
    spark = Path(pyspark.__file__).parent / "jars"
    quick = [f"-J{option}" for option in QUICK_JVM.split()]
    command = ["javac", *quick, "--release", "17", "-cp", f"{spark}/*", "-d", str(place), str(file)]
    subprocess.run(command, check=True, timeout=300)
    file.unlink()
    with zipfile.ZipFile(jar, "w") as packed:
        for found in sorted(place.rglob("*.class")):
            packed.write(found, found.relative_to(place))
    shutil.rmtree(place)
    return jar


def numbers_jar(jar: Path, told: str) -> Path:
    """A jar with the data source `example.Numbers`: columns `id` (0 and 1) and `told`."""
    text = told.encode()
    jar.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(jar, "w") as packed:
        for name, compiled in _numbers().items():  # a constant of a class is its length, then its bytes
            packed.writestr(name, compiled.replace(b"\0\x06@TOLD@", len(text).to_bytes(2, "big") + text))
    return jar


@cache
def _numbers() -> dict[str, bytes]:
    """Its classes, compiled once, because `javac` takes 2 s of processor time."""
    with (
        tempfile.TemporaryDirectory() as folder,
        zipfile.ZipFile(compile_jar(Path(folder, "numbers.jar"), "example.Numbers", _NUMBERS)) as packed,
    ):
        return {name: packed.read(name) for name in packed.namelist()}
