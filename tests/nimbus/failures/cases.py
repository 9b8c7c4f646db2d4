"""Tasks that fail, each with the class that a person has chosen after reading its log.

`record.py` runs them and stores the ends of their logs in `recorded/`. A case with `held_out` was written
after the rules of `nimbus.worker.attempt.verdict`, which were not changed for it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from textwrap import dedent

from nimbus.domain.pipelines.pipeline import FailureClass, TaskKind


@dataclass(frozen=True, kw_only=True)
class Case:
    """One failing task."""

    name: str
    expected: FailureClass
    source: str
    kind: TaskKind = TaskKind.PYTHON
    master: str = "local[1]"
    conf: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    held_out: bool = False


def _python(name: str, expected: FailureClass, source: str, *, held_out: bool = False) -> Case:
    return Case(name=name, expected=expected, source=dedent(source), held_out=held_out)


_SESSION = """\
import os, signal, subprocess, time
from pyspark.sql import SparkSession, functions as F
spark = SparkSession.builder.getOrCreate()
spark.sparkContext.setLogLevel("WARN")
"""


def _spark(
    name: str,
    expected: FailureClass,
    source: str,
    *,
    master: str = "local[1]",
    conf: Mapping[str, str] | None = None,
    held_out: bool = False,
) -> Case:
    return Case(
        name=name,
        expected=expected,
        source=_SESSION + dedent(source),
        kind=TaskKind.PYSPARK,
        master=master,
        conf=conf or {},
        held_out=held_out,
    )


def _sql(name: str, expected: FailureClass, source: str, *, held_out: bool = False) -> Case:
    return Case(name=name, expected=expected, source=source, kind=TaskKind.SQL, held_out=held_out)


MEMORY = FailureClass.OUT_OF_MEMORY
EXECUTOR = FailureClass.EXECUTOR_LOST
ANALYSIS = FailureClass.ANALYSIS
MISSING = FailureClass.MISSING_INPUT
KILLED = FailureClass.KILLED
ERROR = FailureClass.ERROR

_SMALL = {"spark.driver.memory": "512m"}
_CLUSTER = "local-cluster[1,1,512]"
_CLUSTER_CONF = {
    "spark.executor.memory": "512m",
    "spark.driver.memory": "512m",
    "spark.executor.maxNumFailures": "2",
}

CASES: tuple[Case, ...] = (
    # plain Python
    _python(
        "python_value_error",
        ERROR,
        """\
        def load(row):
            raise ValueError(f"row 17 has no carrier: {row!r}")
        load({"tail": "N123"})
        """,
    ),
    _python("python_assertion", ERROR, "rows = []\nassert rows, 'the table is empty'\n"),
    _python("python_division_by_zero", ERROR, "print('share of late flights')\nprint(1 / 0)\n"),
    _python("python_recursion", ERROR, "def walk(n):\n    return walk(n + 1)\nwalk(0)\n"),
    _python("python_import_error", ERROR, "import flightlib_of_yesterday\n"),
    _python("python_syntax_error", ERROR, "def load(:\n    pass\n"),
    _python("python_exit_3", ERROR, "import sys\nprint('nothing to do')\nsys.exit(3)\n"),
    _python("python_exit_text", ERROR, "raise SystemExit('the feed of today is not complete')\n"),
    _python("python_os_exit_0", ERROR, "import os\nprint('half of it')\nos._exit(0)\n"),
    _python("python_os_exit_4", ERROR, "import os\nos._exit(4)\n"),
    _python(
        "python_kill_9", KILLED, "import os, signal\nprint('working')\nos.kill(os.getpid(), signal.SIGKILL)\n"
    ),
    _python(
        "python_kill_term",
        KILLED,
        "import os, signal\nprint('working')\nos.kill(os.getpid(), signal.SIGTERM)\n",
    ),
    _python(
        "python_interrupt",
        KILLED,
        "import os, signal, time\nos.kill(os.getpid(), signal.SIGINT)\ntime.sleep(5)\n",
    ),
    _python(
        "python_cpu_limit",
        KILLED,
        """\
        import resource
        resource.setrlimit(resource.RLIMIT_CPU, (1, 2))
        while True:
            pass
        """,
    ),
    _python("python_segmentation_fault", ERROR, "import ctypes\nctypes.string_at(0)\n"),
    _python("python_abort", ERROR, "import os\nos.abort()\n"),
    _python(
        "python_memory_limit",
        MEMORY,
        """\
        import resource
        resource.setrlimit(resource.RLIMIT_AS, (512 << 20, 512 << 20))
        rows = []
        while True:
            rows.append(bytearray(16 << 20))
        """,
    ),
    _python("python_numpy_memory", MEMORY, "import numpy\nnumpy.ones((1 << 24, 1 << 24))\n"),
    _python("python_arrow_memory", MEMORY, "import pyarrow\npyarrow.allocate_buffer(1 << 60)\n"),
    _python("python_missing_file", MISSING, "open('/srv/feeds/2026-03-01.csv')\n"),
    _python(
        "python_pandas_missing_file", MISSING, "import pandas\npandas.read_csv('/srv/feeds/2026-03-01.csv')\n"
    ),
    _python(
        "python_missing_file_wrapped",
        MISSING,
        """\
        def load():
            try:
                return open('/srv/feeds/2026-03-01.csv')
            except OSError as exc:
                raise RuntimeError('the feed of today cannot be loaded') from exc
        load()
        """,
    ),
    _python(
        "python_handled_memory_error",
        ERROR,
        """\
        import traceback
        try:
            bytearray(1 << 62)
        except MemoryError:
            traceback.print_exc()
            print('falling back to chunks')
        raise KeyError('carrier')
        """,
    ),
    _python(
        "python_s3_no_such_key",
        MISSING,
        """\
        import boto3, os
        from moto import mock_aws
        os.environ.update(AWS_ACCESS_KEY_ID='x', AWS_SECRET_ACCESS_KEY='y', AWS_DEFAULT_REGION='us-east-1')
        with mock_aws():
            s3 = boto3.client('s3')
            s3.create_bucket(Bucket='feeds')
            s3.get_object(Bucket='feeds', Key='2026-03-01.csv')
        """,
    ),
    _python(
        "python_permission_denied",
        ERROR,
        """\
        import os
        open('secret', 'w').close()
        os.chmod('secret', 0o600)
        os.seteuid(65534)
        open(os.path.abspath('secret'))
        """,
    ),
    _python(
        "python_disk_full",
        ERROR,
        """\
        with open('/dev/full', 'w') as out:
            out.write('x' * 100_000)
        """,
    ),
    _python(
        "python_too_many_files",
        ERROR,
        """\
        import resource
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        held = [open('/dev/null') for _ in range(100)]
        """,
    ),
    _python(
        "python_child_fails",
        ERROR,
        "import subprocess\nsubprocess.run(['sh', '-c', 'echo no feed >&2; exit 2'], check=True)\n",
    ),
    _python(
        "python_exits_as_its_killed_child",
        MEMORY,
        """\
        import subprocess, sys
        print('starting the container')
        sys.exit(subprocess.run(['sh', '-c', 'sh -c "kill -9 \\\\$\\\\$"; exit $?']).returncode)
        """,
    ),
    _python(
        "python_connection_refused", ERROR, "import socket\nsocket.create_connection(('127.0.0.1', 1))\n"
    ),
    _python(
        "python_task_group",
        ERROR,
        """\
        import asyncio
        async def part(n):
            raise ValueError(f'part {n} is broken')
        async def main():
            async with asyncio.TaskGroup() as group:
                group.create_task(part(1))
                group.create_task(part(2))
        asyncio.run(main())
        """,
    ),
    # queries that Spark refuses
    _spark(
        "spark_unresolved_column",
        ANALYSIS,
        "spark.range(3).withColumnRenamed('id', 'flight').select('flihgt').show()\n",
    ),
    _spark("spark_table_not_found", ANALYSIS, "spark.sql('select * from delays_by_hour').show()\n"),
    _spark("spark_parse_error", ANALYSIS, "spark.sql('selct 1 from range(3)').show()\n"),
    _spark("spark_datatype_mismatch", ANALYSIS, "spark.sql(\"select date'2026-01-01' + array(1)\").show()\n"),
    _spark("spark_unresolved_routine", ANALYSIS, "spark.sql('select medain(id) from range(3)').show()\n"),
    _spark(
        "spark_ambiguous_reference",
        ANALYSIS,
        """\
        left, right = spark.range(3), spark.range(3)
        left.join(right, left.id == right.id).select('id').show()
        """,
    ),
    _spark(
        "spark_ddl_parse_error", ANALYSIS, "spark.read.schema('a int, b nosuchtype').csv('/tmp').show()\n"
    ),
    _sql("sql_unresolved_column", ANALYSIS, "create temporary view a as select 1 as x;\nselect y from a\n"),
    _sql("sql_parse_error", ANALYSIS, "select 1 as x form range(3) order order\n"),
    _sql("sql_undefined_parameter", ERROR, "select {{ params.day }} as x\n"),
    _python(
        "spark_sql_shell_unresolved_column",
        ANALYSIS,
        """\
        import os, sys
        shell = os.path.join(os.path.dirname(sys.executable), 'spark-sql')
        os.execv(shell, [shell, '--master', 'local[1]', '-e', 'select flihgt from (select 1 as flight)'])
        """,
    ),
    # input
    _spark("spark_path_not_found", MISSING, "spark.read.parquet('/srv/feeds/2026-03-01').show()\n"),
    _spark(
        "spark_rdd_path_not_found", MISSING, "spark.sparkContext.textFile('/srv/feeds/2026-03-01').count()\n"
    ),
    _spark(
        "spark_file_deleted_while_read",
        MISSING,
        """\
        spark.range(1000).repartition(2).write.parquet('feed')
        feed = spark.read.parquet('feed')
        for name in os.listdir('feed'):
            os.remove(os.path.join('feed', name))
        feed.agg(F.sum('id')).show()
        """,
    ),
    _spark(
        "spark_udf_missing_file",
        MISSING,
        """\
        rates = F.udf(lambda key: open('/srv/rates.csv').read(), 'string')
        spark.range(3).select(rates('id')).show()
        """,
    ),
    # errors of the task's code
    _spark("spark_ansi_cast", ERROR, "spark.sql(\"select cast('x17' as int)\").show()\n"),
    _spark("spark_divide_by_zero", ERROR, "spark.sql('select id / (id - 1) from range(3)').collect()\n"),
    _spark(
        "spark_udf_error",
        ERROR,
        """\
        def hours(n):
            return 60 // (n - 1)
        spark.range(3).select(F.udf(hours, 'int')('id')).collect()
        """,
    ),
    _spark("spark_rdd_error", ERROR, "spark.sparkContext.parallelize(['1', 'x'], 1).map(int).collect()\n"),
    _spark(
        "spark_pandas_udf_error",
        ERROR,
        """\
        import pandas
        @F.pandas_udf('long')
        def broken(ids: pandas.Series) -> pandas.Series:
            return ids[:1]
        spark.range(3).select(broken('id')).collect()
        """,
    ),
    _spark(
        "spark_arrow_conversion",
        ERROR,
        """\
        @F.udf('int', useArrow=True)
        def broken(n):
            return {'a': n}
        spark.range(3).select(broken('id')).collect()
        """,
    ),
    _spark(
        "spark_raise_error", ERROR, "spark.sql(\"select raise_error('more rows than flights')\").collect()\n"
    ),
    _spark("spark_python_type_error", ERROR, "F.lower(3).alias('x')\n"),
    _spark(
        "spark_corrupt_parquet",
        ERROR,
        """\
        spark.range(10).coalesce(1).write.parquet('feed')
        (part,) = [n for n in os.listdir('feed') if n.endswith('.parquet')]
        os.remove(f'feed/.{part}.crc')
        with open(f'feed/{part}', 'r+b') as file:
            file.truncate(40)
        spark.read.schema('id long').parquet('feed').collect()
        """,
    ),
    _spark(
        "spark_max_result_size",
        ERROR,
        "spark.range(500_000).collect()\n",
        conf={"spark.driver.maxResultSize": "100k"},
    ),
    _spark(
        "spark_no_jdbc_driver",
        ERROR,
        "spark.read.jdbc('jdbc:postgresql://127.0.0.1:1/db', 'flights').show()\n",
    ),
    Case(
        name="spark_no_java",
        expected=ERROR,
        source=_SESSION,
        kind=TaskKind.PYSPARK,
        environment={"JAVA_HOME": "/opt/no-java"},
    ),
    # memory
    _spark(
        "spark_driver_heap",
        MEMORY,
        """\
        spark.range(400).repartition(4).selectExpr("repeat('0123456789abcdef', 200000) as x").collect()
        """,
        conf={**_SMALL, "spark.driver.maxResultSize": "0"},
    ),
    _spark(
        "spark_task_heap_in_local_mode",
        MEMORY,
        """\
        texts = "transform(sequence(1, 40), x -> repeat(cast(x as string), 30000000))"
        spark.range(1).selectExpr(f"size({texts})").collect()
        """,
        conf=_SMALL,
    ),
    # What Python sees of a JVM that ends itself depends on the moment: more records of similar tasks.
    _spark(
        "spark_task_heap_ends_jvm",
        MEMORY,
        """\
        texts = "transform(sequence(1, 40), x -> repeat(cast(x as string), 30000000))"
        spark.range(1).selectExpr(f"size({texts})").collect()
        """,
        conf=_SMALL,
    ),
    _spark(
        "spark_group_memory_ends_context",
        MEMORY,
        """\
        big = spark.range(2000).selectExpr("repeat(cast(id as string), 100000) as x")
        print(len(big.selectExpr("collect_list(x) as xs").collect()[0].xs))
        """,
        conf={**_SMALL, "spark.driver.maxResultSize": "0"},
    ),
    _spark(
        "spark_driver_heap_ends_jvm",
        MEMORY,
        """\
        spark.range(400).repartition(4).selectExpr("repeat('0123456789abcdef', 200000) as x").collect()
        """,
        conf={
            **_SMALL,
            "spark.driver.maxResultSize": "0",
            "spark.driver.extraJavaOptions": "-XX:+ExitOnOutOfMemoryError",
        },
    ),
    _spark(
        "spark_udf_memory",
        MEMORY,
        """\
        def load(n):
            import resource
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
            return len([bytearray(1 << 28) for _ in range(100)])
        spark.range(1).select(F.udf(load, 'int')('id')).collect()
        """,
    ),
    _spark(
        "spark_rdd_memory",
        MEMORY,
        """\
        def load(n):
            import resource
            resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30))
            return len(bytearray(1 << 40))
        spark.sparkContext.parallelize([1], 1).map(load).collect()
        """,
    ),
    _spark(
        "spark_executor_heap",
        MEMORY,
        """\
        texts = "transform(sequence(1, 40), x -> repeat(cast(x as string), 30000000))"
        spark.range(1).selectExpr(f"size({texts})").collect()
        """,
        master=_CLUSTER,
        conf=_CLUSTER_CONF,
    ),
    _python(
        "spark_sql_shell_memory",
        MEMORY,
        """\
        import os, sys
        query = 'select size(transform(sequence(1, 40), x -> repeat(cast(x as string), 30000000)))'
        shell = os.path.join(os.path.dirname(sys.executable), 'spark-sql')
        os.execv(shell, [shell, '--master', 'local[1]', '--driver-memory', '512m', '-e', query])
        """,
    ),
    # lost and killed
    _spark(
        "spark_executor_killed",
        EXECUTOR,
        """\
        def kill(n):
            import os, signal, time
            os.kill(os.getppid(), signal.SIGSTOP)  # the daemon of the Python workers
            jvm = int(open(f'/proc/{os.getppid()}/stat').read().rpartition(')')[2].split()[1])
            os.kill(jvm, signal.SIGKILL)
            time.sleep(10)
            return n
        spark.sparkContext.parallelize([1], 1).map(kill).collect()
        """,
        master=_CLUSTER,
        conf=_CLUSTER_CONF,
    ),
    _spark(
        "spark_python_worker_exits",
        EXECUTOR,
        """\
        def leave(n):
            import os
            os._exit(5)
        spark.range(1).select(F.udf(leave, 'int')('id')).collect()
        """,
    ),
    _spark(
        "spark_python_worker_killed",
        EXECUTOR,
        """\
        def leave(n):
            import os, signal
            os.kill(os.getpid(), signal.SIGKILL)
        spark.sparkContext.parallelize([1], 1).map(leave).collect()
        """,
    ),
    _spark(
        "spark_jvm_killed",
        KILLED,
        """\
        print('killed by hand')
        os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGKILL)
        spark.range(3).count()
        """,
    ),
    _spark(
        "spark_jvm_killed_in_query",
        KILLED,
        """\
        import threading
        jvm = spark.sparkContext._gateway.proc.pid
        threading.Timer(1.0, os.kill, (jvm, signal.SIGKILL)).start()
        spark.range(100_000_000_000).selectExpr('sum(hash(id))').collect()
        """,
    ),
    _spark(
        "spark_jvm_terminated_in_query",
        KILLED,
        """\
        import threading
        jvm = spark.sparkContext._gateway.proc.pid
        threading.Timer(3.0, os.kill, (jvm, signal.SIGTERM)).start()
        spark.range(100_000_000_000).selectExpr('sum(hash(id))').collect()
        """,
    ),
    _spark(
        "spark_jvm_crashes",
        ERROR,
        """\
        os.kill(spark.sparkContext._gateway.proc.pid, signal.SIGSEGV)
        spark.range(3).count()
        """,
    ),
    _spark(
        "spark_driver_terminated",
        KILLED,
        """\
        spark.range(3).count()
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(10)
        """,
    ),
    # written after the rules
    _python(
        "python_hangup", KILLED, "import os, signal\nos.kill(os.getpid(), signal.SIGHUP)\n", held_out=True
    ),
    _python(
        "python_gzip_missing",
        MISSING,
        "import gzip\ngzip.open('/srv/feeds/2026-03-01.csv.gz').read()\n",
        held_out=True,
    ),
    _python(
        "python_sqlite_no_table",
        ERROR,
        "import sqlite3\nsqlite3.connect(':memory:').execute('select * from delays')\n",
        held_out=True,
    ),
    _python(
        "python_pool_memory",
        MEMORY,
        """\
        import multiprocessing
        def load(n):
            return bytearray(1 << 62)
        if __name__ == '__main__':
            with multiprocessing.get_context('fork').Pool(1) as pool:
                pool.map(load, [1])
        """,
        held_out=True,
    ),
    _python(
        "python_pool_worker_killed",
        ERROR,
        """\
        import concurrent.futures, os, signal
        def load(n):
            os.kill(os.getpid(), signal.SIGKILL)
        with concurrent.futures.ProcessPoolExecutor(1) as pool:
            list(pool.map(load, [1]))
        """,
        held_out=True,
    ),
    _spark(
        "spark_arithmetic_overflow",
        ERROR,
        "spark.sql('select 2147483647 + cast(id as int) from range(3)').collect()\n",
        held_out=True,
    ),
    _spark(
        "spark_path_exists",
        ANALYSIS,
        """\
        spark.range(3).write.parquet('out')
        spark.range(3).write.parquet('out')
        """,
        held_out=True,
    ),
    _spark(
        "spark_no_file_matches", MISSING, "spark.read.csv('/srv/feeds/2026-03-*.csv').show()\n", held_out=True
    ),
    _spark(
        "spark_stream_path_not_found",
        MISSING,
        """\
        feed = spark.readStream.schema('a int').csv('/srv/feeds')
        feed.writeStream.format('noop').option('checkpointLocation', 'cp').start().awaitTermination(60)
        """,
        held_out=True,
    ),
    _spark(
        "spark_map_in_pandas_error",
        ERROR,
        """\
        def carriers(parts):
            for part in parts:
                yield part[['carrier']]
        spark.range(3).mapInPandas(carriers, 'carrier string').collect()
        """,
        held_out=True,
    ),
    _spark(
        "spark_group_memory",
        MEMORY,
        """\
        big = spark.range(2000).selectExpr("repeat(cast(id as string), 100000) as x")
        print(len(big.selectExpr("collect_list(x) as xs").collect()[0].xs))
        """,
        conf={**_SMALL, "spark.driver.maxResultSize": "0"},
        held_out=True,
    ),
    _spark(
        "spark_partition_worker_crashes",
        EXECUTOR,
        """\
        def crash(rows):
            import ctypes
            ctypes.string_at(0)
        spark.range(3).foreachPartition(crash)
        """,
        held_out=True,
    ),
    _spark(
        "spark_connect_without_grpc",
        ERROR,
        """\
        spark.stop()
        spark = SparkSession.builder.remote('local[1]').getOrCreate()
        spark.range(3).select('flihgt').show()
        """,
        held_out=True,
    ),
    _sql(
        "sql_no_view",
        ANALYSIS,
        "select carrier, avg(delay) as delay from load group by carrier\n",
        held_out=True,
    ),
)
