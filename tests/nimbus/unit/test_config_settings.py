"""A daemon's settings: refusals, changes by the environment, and values that are never shown."""

from __future__ import annotations

import re
import socket
from collections.abc import Iterator, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import pytest
import yaml
from pydantic import BaseModel, BeforeValidator

from nimbus.config import InvalidConfigurationError, Settings, load_settings
from nimbus.config.load import secret_files
from nimbus.definition.models import PipelineKeys

GOOD: dict[str, Any] = {
    "zookeeper": {"hosts": "zk1.example.com:2181"},
    "storage": {"bucket": "nimbus"},
    "scheduler": {"state_dir": "/var/lib/nimbus"},
    "worker": {"data": "/srv/data"},
}


def load(folder: Path, document: dict[str, Any] | str, environ: dict[str, str] | None = None) -> Settings:
    file = folder / "nimbus.yaml"
    file.write_text(document if isinstance(document, str) else yaml.safe_dump(document, sort_keys=False))
    return load_settings(file, environ or {})


def refusal(folder: Path, document: dict[str, Any] | str, environ: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(InvalidConfigurationError) as refused:
        load(folder, document, environ)
    assert refused.value.exit_code == 2
    assert refused.value.code == "invalid_configuration"
    return str(refused.value).replace(f"{folder}/", "").splitlines()


SINGLE: dict[str, Any] = {"leadership": {"elector": "single"}, "zookeeper": {}}

BASE = """\
zookeeper:
  hosts: zk1.example.com:2181
storage:
  bucket: nimbus
scheduler:
  state_dir: /var/lib/nimbus
worker:
  data: /srv/data
"""

TARGET = "spark:\n  targets:\n    big: {"
BAD: list[tuple[str, str]] = [
    ("worker2: {}", '9: worker2: unknown key (did you mean "worker"?)'),
    ("log:\n  levle: info", '10: log.levle: unknown key (did you mean "level"?)'),
    ("log:\n  zebra: info", "10: log.zebra: unknown key; known here: level, format"),
    (
        "log:\n  level: Info",
        "must be one of debug, info, warning, error, not 'Info' (did you mean \"info\"?)",
    ),
    ("leadership:\n  gate_policy: lax", "10: leadership.gate_policy: must be one of per_pipeline, strict"),
    ("leadership:\n  guard_timeout: 10", 'say the unit, for example 10s (did you mean "10s"?)'),
    ("leadership:\n  guard_timeout: 0s", "10: leadership.guard_timeout: must be longer than 0s"),
    (
        "supervision:\n  max_mishaps: '3'",
        "10: supervision.max_mishaps: must be a whole number, not '3'; take off its quotes",
    ),
    ("supervision:\n  max_mishaps: 0", "10: supervision.max_mishaps: must be at least 1, not 0"),
    ("cluster:\n  root: nimbus", "10: cluster.root: must be an absolute path"),
    ("cluster:\n  root: /nimbus/", "10: cluster.root: must be an absolute path"),
    ("cluster:\n  root: /zookeeper/x", "10: cluster.root: '/zookeeper/x' is ZooKeeper's own"),
    ("cluster: /nimbus", "9: cluster: must be a mapping of keys to values, not '/nimbus'"),
    ("runs:\n  keep_finished: yes", "10: runs.keep_finished: 'yes' is not a duration; write for example"),
    ("retention:\n  logs: 30", 'say the unit, for example 10s (did you mean "30s"?)'),
    ("retention:\n  logs: 5m", "10: retention.logs: must be at least 1h, not 5m"),
    (
        "retention:\n  logs: 31d\n  history: 30d",
        "10: retention.logs: logs (31d) must not be above retention.history (30d), with which they go",
    ),
    (
        "leadership:\n  requeue_min: 1m",
        "requeue_max (30s) must not be below leadership.requeue_min (1m): the pauses grow",
    ),
    (
        "leadership:\n  step_down_margin: 5s",
        "10: leadership.step_down_margin: step_down_margin (5s) must be below half of zookeeper.session",
    ),
    (
        "supervision:\n  host_lost_after: 9s",
        "host_lost_after (9s) must not be below zookeeper.session_timeout (10s): a host that is only cut off",
    ),
    (
        "supervision:\n  beat_grace: 40s",
        "host_lost_after (30s) must not be below supervision.beat_grace (40s)",
    ),
    (
        "leadership:\n  guard_timeout: 20s\n  forced_takeover_after: 15s",
        "forced_takeover_after (15s) must not be below leadership.guard_timeout (20s)",
    ),
    (
        "leadership:\n  guard_timeout: 9s",
        "guard_timeout (9s) must not be below zookeeper.call_timeout (10s): the guard reads the catalog",
    ),
    ("sync:\n  threads: 0", "10: sync.threads: must be at least 1, not 0"),
    ("sync:\n  threads: 2.5", "10: sync.threads: must be a whole number, not 2.5"),
    ("sync:\n  bandwidth_bytes_per_s: 0", "sync.bandwidth_bytes_per_s: must be at least 1000, not 0"),
    ("sync:\n  bandwidth_bytes_per_s: 10MB", "bandwidth_bytes_per_s: must be a whole number, not '10MB'"),
    ("sync:\n  bandwith_bytes_per_s: 1", 'unknown key (did you mean "bandwidth_bytes_per_s"?)'),
    ("sync:\n  scrub_bytes_per_s: 50", "10: sync.scrub_bytes_per_s: must be at least 1000, not 50"),
    ("sync:\n  look_interval: 0s", "10: sync.look_interval: must be at least 1s, not 0s"),
    ("sync:\n  scrub_interval: 60", 'say the unit, for example 10s (did you mean "60s"?)'),
    ("sync:\n  digests: sha265", "must be one of name, sha256, not 'sha265' (did you mean \"sha256\"?)"),
    ("artifacts:\n  gc_grace: 30m", 'artifacts.gc_grace: must be at least 1h, not 30m (did you mean "1h"?)'),
    ("artifacts:\n  gc_grace: 24", 'say the unit, for example 10s (did you mean "24s"?)'),
    ("artifacts:\n  gc_keep_age: 1h", "10: artifacts.gc_keep_age: must be at least 1d, not 1h"),
    ("artifacts:\n  gc_interval: 1s", "10: artifacts.gc_interval: must be at least 1m, not 1s"),
    ("artifacts:\n  gc_max_share: 0", "10: artifacts.gc_max_share: must be above 0, not 0"),
    ("artifacts:\n  gc_max_share: 1.5", "10: artifacts.gc_max_share: must be at most 1, not 1.5"),
    ("artifacts:\n  gc_keep_newest: -1", "10: artifacts.gc_keep_newest: must be at least 0, not -1"),
    ("artifacts:\n  gc: yes please", "10: artifacts.gc: must be true or false, not 'yes please'"),
    ("artifacts:\n  gc_intervall: 1h", 'unknown key (did you mean "gc_interval"?)'),
    (f"{TARGET}kind: sparc}}", "must be one of local, connect, standalone, yarn, kubernetes, not 'sparc'"),
    (f"{TARGET}master: yarn}}", "11: spark.targets.big.kind: is missing; it has no default"),
    (f"{TARGET}kind: yarn, masters: x}}", 'big.masters: unknown key (did you mean "master"?)'),
    (f"{TARGET}kind: standalone}}", "11: spark.targets.big.master: is missing; a standalone target needs it"),
    (f"{TARGET}kind: kubernetes, master: 'k8s://https://k'}}", "big.image: is missing; a kubernetes target"),
    (f"{TARGET}kind: yarn}}", "big.hadoop_conf_dir: is missing; a yarn target needs it"),
    (f"{TARGET}kind: connect}}", "big.url: is missing; a connect target needs it"),
    (
        f"{TARGET}kind: local, master: 'local[2]', rest: []}}",
        "targets.big.rest: a local target has no",
    ),
    (f"{TARGET}kind: connect, url: 'sc://h', conf: {{}}}}", "targets.big.conf: a connect target has no conf"),
    (f"{TARGET}kind: local, master: yarn}}", "big.master: must be local[N], not 'yarn'"),
    (
        f"{TARGET}kind: standalone, master: 'spark://a'}}",
        "must be spark://host:port,host:port, not 'spark://a'",
    ),
    (
        f"{TARGET}kind: kubernetes, image: i, master: 'k8s://'}}",
        "must be k8s://https://host:port, not 'k8s://'",
    ),
    (
        f"{TARGET}kind: standalone, master: 'spark://a:7077', rest: 'a:6066'}}",
        "11: spark.targets.big.rest[0]: 'a:6066' is not http(s)://host[:port] (did you mean \"http://a:6066\"?)",
    ),
    (f"{TARGET}kind: local, master: local, slots: 0}}", "big.slots: must be at least 1, not 0"),
    (f"{TARGET}kind: local, master: local, conf: {{spark.master: x}}}}", "spark.master is the key master"),
    (
        f"{TARGET}kind: kubernetes, master: k8s://h, image: i, conf: {{spark.kubernetes.namespace: x}}}}",
        "spark.kubernetes.namespace is the key namespace",
    ),
    (
        f"{TARGET}kind: local, master: local, conf: {{spark.authenticate.secret: hush-hush}}}}",
        "big.conf: spark.authenticate.secret would stand in command lines: write it into spark-defaults.conf",
    ),
    (
        f"{TARGET}kind: connect, url: 'sc://h', token_file: /t, token_variable: T}}",
        "big.token_variable: token_file is given as well; keep one of them",
    ),
    (f"{TARGET}kind: local, master: local, executors_see: host}}", "a local target has no executors_see"),
    (f"{TARGET}kind: local, master: local, environment: x}}", "is x, and worker.environments has none"),
    (f"{TARGET}kind: connect, url: 'sc://h', environment: x}}", "a connect target has no environment"),
    (f"{TARGET}kind: connect, url: 'sc://h', executors_see: all}}", "must be one of data, host, not 'all'"),
    ("spark:\n  history: 'history:18080'", '(did you mean "http://history:18080"?)'),
    (
        f"{TARGET}kind: local, master: local, history: 'http://h/x'}}",
        "big.history: 'http://h/x' must end after",
    ),
    (f"{TARGET}kind: connect, url: 'sc://h', history: 'http://h'}}", "a connect target has no history"),
    ("spark:\n  targets: {Big: {kind: local, master: local}}", "'Big' is not a name: 1 to 63 of a-z, 0-9"),
    ("log: [info]", "9: log: must be a mapping of keys to values, not a list"),
    (
        "log:\n  level: info\n  level: debug",
        "11: log.level: this key is here twice (first on line 10); keep one",
    ),
    ("log:\n\tlevel: info", "10: a tab is used for indentation; use spaces"),
]


@pytest.mark.parametrize(("more", "words"), BAD, ids=[re.sub(r"\W+", "-", more) for more, _ in BAD])
def test_configuration_is_refused_with_its_place_and_what_to_do(
    tmp_path: Path, more: str, words: str
) -> None:
    (line,) = refusal(tmp_path, BASE + more + "\n")

    assert line.startswith("nimbus.yaml")
    assert words in line


SECTIONS: list[tuple[dict[str, Any], str]] = [
    ({"zookeeper": {}}, "zookeeper.hosts: is missing"),
    (
        SINGLE | {"zookeeper": {"hosts": "zk1"}},
        "hosts is given and leadership.elector is single",
    ),
    (SINGLE | {"worker": {"data": "/d", "embedded": False}}, "the worker of a single scheduler runs in"),
    ({"leadership": {"elector": "single", "nofailover": True}, "zookeeper": {}}, "nobody would lead"),
    ({"leadership": {"elector": "singel"}}, 'did you mean "single"'),
    ({"leadership": {"elector": "memory"}}, "must be zookeeper, single, or package.module:factory"),
    ({"leadership": {"priority": 1}}, "leadership.priority"),
    (
        {
            "zookeeper": {"hosts": "zk1", "call_timeout": "5s"},
            "leadership": {"guard_timeout": "5s", "forced_takeover_after": "5s"},
        },
        "forced_takeover_after (5s) must not be below zookeeper.session_timeout (10s)",
    ),
    ({"zookeeper": {"hosts": "zk1:0"}}, "'zk1:0' is not host:port"),
    ({"zookeeper": {"hosts": "zk1;zk2"}}, "'zk1;zk2' is not host:port; separate hosts with commas"),
    ({"zookeeper": {"hosts": "zk1:2181/a,zk2:2181/a"}}, "write it once, after all hosts"),
    ({"zookeeper": {"hosts": 5}}, "must be ZooKeeper's hosts"),
    ({"zookeeper": {"hosts": "zk1", "session_timeout": "2s", "x": 1}}, "zookeeper.x: unknown key"),
    ({"zookeeper": {"hosts": "zk1", "username": "u"}}, "username is given and password is not"),
    ({"zookeeper": {"hosts": "zk1", "password": "p"}}, "password is given and username is not"),
    (
        {"zookeeper": {"hosts": "zk1", "tls_ca_file": "/ca.pem"}},
        "zookeeper.tls_ca_file: tls_ca_file is given and zookeeper.tls is false",
    ),
    (
        {"zookeeper": {"hosts": "zk1", "tls_verify": "none"}},
        "zookeeper.tls_verify: tls_verify is given and zookeeper.tls is false",
    ),
    (
        {"zookeeper": {"hosts": "zk1", "tls": True, "tls_key_file": "/k.pem"}},
        "zookeeper.tls_key_file: tls_key_file is given and tls_cert_file is not",
    ),
    (
        {"zookeeper": {"hosts": "zk1", "tls": True, "tls_ca_file": "ca.pem"}},
        "zookeeper.tls_ca_file: 'ca.pem' must be an absolute path",
    ),
    (
        {"zookeeper": {"hosts": "zk1", "tls": True, "tls_verify": "ful"}},
        "must be one of full, no_hostname, none, not 'ful' (did you mean \"full\"?)",
    ),
    ({"zookeeper": {"hosts": "zk1", "tls": "yes"}}, "zookeeper.tls: must be true or false, not 'yes'"),
    ({"storage": {"bucket": "a/b"}}, "folders belong into storage.prefix"),
    ({"storage": {"bucket": "nimbus", "endpoint_url": "minio:9000"}}, '(did you mean "http://minio:9000"?)'),
    ({"storage": {"bucket": "nimbus", "endpoint_url": "http://x:99999"}}, "is not http(s)://host[:port]"),
    ({"storage": {"bucket": "nimbus", "endpoint_url": "http://x/y"}}, "must end after the host and port"),
    ({"storage": {"bucket": "nimbus", "prefix": "a/../b"}}, "must be a prefix of keys"),
    (
        {"storage": {"bucket": "nimbus", "access_key_id": "k"}},
        "access_key_id is given and secret_access_key is",
    ),
    ({"scheduler": {}}, "scheduler.state_dir: is missing"),
    ({"scheduler": {"state_dir": "/x", "allowed_hosts": "a.b"}}, "must be a list, not 'a.b'; write [a.b]"),
    ({"scheduler": {"state_dir": "/x", "allowed_hosts": ["a.b:80"]}}, "name or address without port"),
    ({"scheduler": {"state_dir": "/x", "allowed_hosts": ["http://a.b"]}}, "name or address without port"),
    ({"scheduler": {"state_dir": "data"}}, "'data' must be an absolute path"),
    ({"scheduler": {"state_dir": "/x", "port": 70000}}, "scheduler.port: must be at most 65535, not 70000"),
    ({"scheduler": {"state_dir": "/x", "port": 0}}, "scheduler.port: must be at least 1, not 0"),
    ({"scheduler": {"state_dir": "/x", "id": "a/b"}}, "scheduler.id: must be 1 to 127 letters"),
    ({"scheduler": {"state_dir": "/x", "id": 7}}, "scheduler.id: must be 1 to 127 letters"),
    ({"scheduler": {"state_dir": "/my files"}}, "worker.work_dir: '/my files/worker' must not contain ' '"),
    ({"worker": {"work_dir": "/w,x", "data": "/d"}}, "worker.work_dir: '/w,x' must not contain ','"),
    ({"worker": {"work_dir": "/w:x", "data": "/d"}}, "worker.work_dir: '/w:x' must not contain ':'"),
    (
        {"worker": {}},
        "worker.data: is missing; name the folder, shared by all workers, or the s3://bucket/prefix, where",
    ),
    ({"worker": {"data": "data"}}, "worker.data: 'data' must be an absolute path"),
    ({"worker": {"data": "s3:/b/p"}}, "worker.data: 's3:/b/p' is not s3://bucket or s3://bucket/prefix"),
    ({"worker": {"data": "s3://b/p"}}, "worker.data: must be a bucket's name, 3 to 63 characters, not 'b'"),
    ({"worker": {"data": "s3://bucket/a/../b"}}, "worker.data: must be a prefix of keys"),
    (
        {"storage": {"bucket": "nimbus", "encryption": "AES256", "kms_key_id": "k"}},
        "storage.kms_key_id: kms_key_id is given; set storage.encryption to aws:kms",
    ),
    ({"storage": {"bucket": "nimbus", "encryption": "aes"}}, "storage.encryption"),
    ({"data": {"region": "eu"}}, "data.region: region is given and worker.data is no s3://bucket/prefix"),
    (
        {"worker": {"data": "s3://bucket"}, "data": {"access_key_id": "me"}},
        "data.access_key_id: access_key_id is given and secret_access_key is not",
    ),
    ({"worker": {"data": "/d", "slots": 0}}, "worker.slots: must be at least 1, not 0"),
    ({"worker": {"data": "/d", "metrics": 8471}}, "worker.metrics: must be host:port, such as 127.0.0.1"),
    ({"worker": {"data": "/d", "metrics": "127.0.0.1"}}, "worker.metrics: must be host:port"),
    ({"worker": {"data": "/d", "metrics": "127.0.0.1:0"}}, "worker.metrics: must be host:port"),
    (
        {"worker": {"data": "/d", "metrics": "0.0.0.0:8471"}},
        "worker.metrics: metrics (0.0.0.0:8471) is no loopback address and api.auth is optional",
    ),
    ({"worker": {"data": "/d", "slots": True}}, "worker.slots: must be a whole number, not true"),
    ({"worker": {"data": "/d", "embedded": "yes"}}, "worker.embedded: must be true or false, not 'yes'"),
    ({"worker": {"data": "/d", "master": "lokal"}}, "must be a Spark master such as local[2]"),
    ({"worker": {"data": "/d", "spark_conf": {"executor.x": 1}}}, '(did you mean "spark.executor.x"?)'),
    (
        {"worker": {"data": "/d", "spark_conf": {"spark.x": [1]}}},
        "worker.spark_conf.spark.x: it must be text",
    ),
    (
        {"worker": {"data": "s3://bucket", "executors_see": "data"}},
        "worker.executors_see: is data, but worker.data is a bucket",
    ),
    (
        {
            "worker": {"data": "s3://bucket"},
            "spark": {"targets": {"big": {"kind": "connect", "url": "sc://h", "executors_see": "data"}}},
        },
        "spark.targets.big.executors_see: is data, but worker.data is a bucket",
    ),
    ({"connect": {"url": "https://spark:15002"}}, "connect.url: must be sc://host[:port] and no more"),
    ({"connect": {"url": "spark:15002"}}, '(did you mean "sc://spark:15002"?)'),
    ({"connect": {"url": "sc://spark:15002/;token=x"}}, "connect.url: must be sc://host[:port] and no more"),
    ({"connect": {"url": 7}}, "connect.url: must be sc://host[:port] and no more"),
    ({"connect": {"url": "sc://127.0.0.1:15002"}}, '(did you mean "sc://localhost:15002"?)'),
    ({"connect": {"token": "x"}}, "connect.token: token is given and url is not"),
    ({"connect": {"idle_timeout": "0s"}}, "connect.idle_timeout: must be longer than 0s"),
    ({"worker": {"data": "/d", "env": {"A-B": "1"}}}, "is not a name of an environment variable"),
    ({"worker": {"preload": ["pandas", "a-b"]}}, "is not the name of a Python module"),
    ({"worker": {"data": "/d", "env": "A=1"}}, "worker.env: must be a mapping of keys to values"),
]


@pytest.mark.parametrize(("sections", "words"), SECTIONS, ids=[words[:40] for _, words in SECTIONS])
def test_section_is_refused_alone_without_echoes(
    tmp_path: Path, sections: dict[str, Any], words: str
) -> None:
    (line,) = refusal(tmp_path, GOOD | sections)

    assert words in line


def test_session_timeout_that_one_dead_server_would_use_up_is_refused(tmp_path: Path) -> None:
    zookeeper = {"hosts": "zk1", "session_timeout": "2s"}

    (line,) = refusal(
        tmp_path, GOOD | {"zookeeper": zookeeper} | {"leadership": {"step_down_margin": "500ms"}}
    )

    assert "session_timeout (2s) must be above 2s" in line


def test_all_problems_of_file_and_environment_are_told_at_once(tmp_path: Path) -> None:
    document = "zookeeper: {host: zk1}\nstorage: {bucket: nimbus}\nworker: {slots: many}\n"

    lines = refusal(tmp_path, document, {"NIMBUS__SCHEDULER__PROT": "1", "NIMBUS__LOG__LEVEL": "loud"})

    environment = "environment: NIMBUS__SCHEDULER__PROT: no setting has this variable"
    assert lines == [
        environment + ' (did you mean "NIMBUS__SCHEDULER__PORT"?)',
        "nimbus.yaml: scheduler.state_dir: is missing; it has no default",
        "environment: NIMBUS__LOG__LEVEL: must be one of debug, info, warning, error, not 'loud'",
        "nimbus.yaml:1: zookeeper.hosts: is missing; it has no default",
        'nimbus.yaml:1: zookeeper.host: unknown key (did you mean "hosts"?)',
        "nimbus.yaml:3: worker.slots: must be a whole number, not 'many'",
    ]


def test_what_is_not_given_has_its_default_or_is_derived(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD | {"log": None, "cluster": {}})

    host = socket.gethostname()
    assert settings.scheduler.id == settings.worker.id == host
    assert settings.scheduler.advertise_url == "http://127.0.0.1:8470"
    assert settings.worker.work_dir == Path("/var/lib/nimbus/worker")
    assert settings.zookeeper.session_timeout == timedelta(seconds=10)
    assert settings.worker.data_dir == Path("/srv/data")
    assert settings.log.level == "info"


def test_derived_values_follow_what_they_derive_from_and_yield_to_what_is_given(tmp_path: Path) -> None:
    settings = load(
        tmp_path, GOOD | {"scheduler": {"state_dir": "/x/", "id": "s1", "host": "::1", "port": 99}}
    )
    assert settings.worker.id == "s1"
    assert settings.worker.work_dir == Path("/x/worker")
    assert settings.scheduler.advertise_url == "http://[::1]:99"

    asked = {"api": {"auth": "required", "tls": {"certificate": "/x/api.pem", "key": "/x/api.key"}}}
    everywhere = load(tmp_path, GOOD | asked | {"scheduler": {"state_dir": "/x", "host": "0.0.0.0"}})
    assert everywhere.scheduler.advertise_url == f"https://{socket.gethostname()}:8470"

    given = load(tmp_path, GOOD | {"worker": {"id": "w9", "work_dir": "/w", "data": "/d"}})
    assert (given.worker.id, given.worker.work_dir) == ("w9", Path("/w"))


def test_environment_wins_over_the_file_and_values_take_their_types(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        GOOD | {"scheduler": {"state_dir": "/x", "port": 1}},
        {
            "NIMBUS__SCHEDULER__PORT": "8471",
            "NIMBUS__SCHEDULER__ID": "12",
            "NIMBUS__SCHEDULER__ALLOWED_HOSTS": '["nimbus.example.com", "[2001:db8::1]"]',
            "NIMBUS__WORKER__EMBEDDED": "false",
            "NIMBUS__WORKER__SPARK_CONF": '{"spark.a": 1, "spark.b": true, "spark.c": "x"}',
            "NIMBUS__ZOOKEEPER__SESSION_TIMEOUT": "12s",
            "NIMBUS__STORAGE__ENDPOINT_URL": "",
            "NIMBUS__SYNC__BANDWIDTH_BYTES_PER_S": "1000000",
            "NIMBUS__SYNC__SCRUB_BYTES_PER_S": "",
            "NIMBUS__ARTIFACTS__GC": "true",
            "NIMBUS__ARTIFACTS__GC_MAX_SHARE": "0.5",
            "NIMBUS_OTHER": "not ours",
        },
    )

    assert settings.scheduler.port == 8471
    assert settings.scheduler.advertise_url == "http://127.0.0.1:8471"
    assert settings.scheduler.id == "12"
    assert settings.scheduler.allowed_hosts == ["nimbus.example.com", "[2001:db8::1]"]
    assert settings.worker.embedded is False
    assert settings.worker.spark_conf == {"spark.a": "1", "spark.b": "true", "spark.c": "x"}
    assert settings.zookeeper.session_timeout == timedelta(seconds=12)
    assert settings.storage.endpoint_url is None
    assert (settings.sync.bandwidth_bytes_per_s, settings.sync.scrub_bytes_per_s) == (1_000_000, None)
    assert (settings.artifacts.gc, settings.artifacts.gc_max_share) == (True, 0.5)


def test_on_is_a_word_where_it_is_a_key_in_a_variable_too(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        GOOD | {"alerts": {"targets": {"hook": {"kind": "webhook", "url": "http://localhost/x"}}}},
        {"NIMBUS__ALERTS__NOTIFY": "[{on: [failed], to: hook}]"},
    )

    assert [(sorted(one.on), one.to) for one in settings.alerts.notify] == [(["failed"], "hook")]


@pytest.mark.parametrize("written", ["010", "1.10", "+10:30", "yes", "1_000", "2024-01-01"])
def test_text_without_quotes_stays_as_it_is_written(tmp_path: Path, written: str) -> None:
    text = BASE.replace(
        "  data: ", f"  env: {{A: {written}}}\n  spark_conf: {{spark.a: {written}}}\n  data: "
    )
    variable = {"NIMBUS__WORKER__ENV": f"{{A: {written}}}"}

    for settings in (load(tmp_path, text), load(tmp_path, BASE, variable)):
        assert settings.worker.env == {"A": written}
    assert load(tmp_path, text).worker.spark_conf == {"spark.a": written}


@pytest.mark.parametrize("model", [Settings, PipelineKeys])
def test_every_boolean_and_number_of_a_form_takes_its_ways_of_writing(model: type[BaseModel]) -> None:
    bare = [str(kind) for kind in _kinds(model) if kind in (bool, float)]

    assert bare == []


def _kinds(annotation: Any, metadata: Sequence[Any] = ()) -> Iterator[Any]:
    """The types of all fields in a model that have no validator of their own."""
    if any(isinstance(one, BeforeValidator) for one in metadata):
        return
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for field in annotation.model_fields.values():
            yield from _kinds(field.annotation, field.metadata)
    elif get_origin(annotation) is Annotated:
        yield from _kinds(get_args(annotation)[0], annotation.__metadata__)
    elif get_args(annotation):
        for part in get_args(annotation):
            yield from _kinds(part)
    else:
        yield annotation


def test_a_variable_gives_a_key_that_is_a_mapping(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        GOOD,
        {
            "NIMBUS__WORKER__SECRETS": "{provider: env}",
            "NIMBUS__API__TLS": "{certificate: /c, key: /k}",
            "NIMBUS__TELEMETRY__LINEAGE": "{file: /l}",
        },
    )

    assert settings.worker.secrets.provider == "env"
    assert settings.api.tls is not None
    assert settings.api.tls.certificate == Path("/c")
    assert settings.telemetry.lineage is not None


def test_secret_in_a_variable_that_cannot_be_read_is_not_shown(tmp_path: Path) -> None:
    lines = refusal(tmp_path, GOOD, {"NIMBUS__ALERTS__TARGETS": "{a: {url: https://u:s3cr3t@h"})

    assert lines == ["environment: NIMBUS__ALERTS__TARGETS: cannot be read as YAML or JSON"]


def test_environment_alone_can_give_what_is_required(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        {"log": {"level": "debug"}},
        {
            "NIMBUS__ZOOKEEPER__HOSTS": "zk1:2181",
            "NIMBUS__STORAGE__BUCKET": "nimbus",
            "NIMBUS__SCHEDULER__STATE_DIR": "/x",
            "NIMBUS__WORKER__DATA": "/d",
        },
    )

    assert settings.zookeeper.hosts == "zk1:2181"


@pytest.mark.parametrize(
    ("variable", "value", "words"),
    [
        ("NIMBUS__WORKER__SLOT", "3", '(did you mean "NIMBUS__WORKER__SLOTS"?)'),
        ("NIMBUS__ZEBRA", "3", "no setting has this variable"),
        ("NIMBUS__WORKER__SLOTS", "three", "environment: NIMBUS__WORKER__SLOTS: must be a whole number"),
        ("NIMBUS__WORKER__SPARK_CONF", "{", "cannot be read as YAML or JSON"),
        (
            "NIMBUS__WORKER__SPARK_CONF",
            '{"x": 1}',
            "environment: NIMBUS__WORKER__SPARK_CONF.x: 'x' is no Spark",
        ),
        ("NIMBUS__WORKER__SPARK_CONF", "{spark.a: 1, spark.a: 2}", "cannot be read as YAML or JSON"),
        ("NIMBUS__WORKER__SPARK_CONF", "[" * 100_000, "cannot be read as YAML or JSON"),
        (
            "NIMBUS__ALERTS__NOTIFY",
            "[{on: [failed]}]",
            "environment: NIMBUS__ALERTS__NOTIFY[0].to: is missing",
        ),
        (
            "NIMBUS__LEADERSHIP__STEP_DOWN_MARGIN",
            "1h",
            "environment: NIMBUS__LEADERSHIP__STEP_DOWN_MARGIN: step",
        ),
        (
            "NIMBUS__STORAGE__SECRET_ACCESS_KEY_FILE",
            "/nowhere/x",
            "the file '/nowhere/x' cannot be read: No such",
        ),
    ],
)
def test_bad_variable_is_refused_by_its_name(tmp_path: Path, variable: str, value: str, words: str) -> None:
    (line,) = refusal(tmp_path, GOOD, {variable: value})

    assert line.startswith("environment: ")
    assert words in line


def test_secret_comes_from_a_file_that_a_variable_names(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush-hush\n")
    environ = {
        "NIMBUS__STORAGE__ACCESS_KEY_ID": "key",
        "NIMBUS__STORAGE__SECRET_ACCESS_KEY_FILE": str(secret),
    }

    settings = load(tmp_path, GOOD, environ)

    assert settings.storage.secret_access_key is not None
    assert settings.storage.secret_access_key.get_secret_value() == "hush-hush"
    both = environ | {"NIMBUS__STORAGE__SECRET_ACCESS_KEY": "x"}
    (line,) = refusal(tmp_path, GOOD, both)
    assert "NIMBUS__STORAGE__SECRET_ACCESS_KEY is set as well; set one of them" in line


def test_users_of_tasks_are_names_or_numbers_and_not_root(tmp_path: Path) -> None:
    given = {
        **GOOD,
        "worker": {"data": "/srv/data", "run_as": "etl", "run_as_pipelines": {"flights": 1001}},
    }

    worker = load(tmp_path, given).worker

    assert (worker.run_as, worker.run_as_pipelines) == ("etl", {"flights": "1001"})
    for user, words in {
        "root": "do not run as root",
        0: "do not run as root",
        "a b": "name or number",
    }.items():
        (line,) = refusal(tmp_path, {**GOOD, "worker": {"data": "/srv/data", "run_as": user}})
        assert "worker.run_as" in line
        assert words in line


def test_files_that_secrets_come_from_are_known(tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("hush-hush\n")
    by_variable = {
        "NIMBUS__STORAGE__ACCESS_KEY_ID": "key",
        "NIMBUS__STORAGE__SECRET_ACCESS_KEY_FILE": str(secret),
    }
    in_file = {**GOOD, "zookeeper": {"hosts": "zk:2181", "username": "nimbus", "password": "hush"}}
    none = {**GOOD, "zookeeper": {"hosts": "zk:2181", "password": None}}

    assert secret_files(load(tmp_path, none), {}) == set()
    assert secret_files(load(tmp_path, GOOD), {}) == set()
    assert secret_files(load(tmp_path, GOOD, by_variable), by_variable) == {secret}
    assert secret_files(load(tmp_path, in_file), {}) == {tmp_path / "nimbus.yaml"}


def test_origin_of_every_value_is_known(tmp_path: Path) -> None:
    settings = load(tmp_path, BASE, {"NIMBUS__LOG__LEVEL": "debug"})

    assert settings.origins["storage.bucket"] == f"{tmp_path}/nimbus.yaml:4"
    assert settings.origins["log.level"] == "environment NIMBUS__LOG__LEVEL"
    assert settings.origins["zookeeper.session_timeout"] == "default"
    assert settings.origins["worker.id"] == "default"
    assert settings.origins["worker.data"] == f"{tmp_path}/nimbus.yaml:8"
    with pytest.raises(TypeError):
        settings.origins["log.level"] = "x"  # type: ignore[index]


def test_secrets_are_in_no_text_of_the_settings_and_in_no_refusal(tmp_path: Path) -> None:
    storage = {"bucket": "nimbus", "access_key_id": "key", "secret_access_key": "hush-hush"}
    zookeeper = {"hosts": "zk1", "username": "u", "password": "hush-hush"}
    settings = load(tmp_path, GOOD | {"storage": storage, "zookeeper": zookeeper})
    for text in (repr(settings), str(settings), settings.model_dump_json(), f"{settings.storage}"):
        assert "hush" not in text

    (line,) = refusal(tmp_path, GOOD | {"storage": storage | {"secret_access_key": 20131231}})
    assert "storage.secret_access_key: must be text; put it in quotes" in line
    assert "2013" not in line
    (line,) = refusal(tmp_path, GOOD | {"storage": storage | {"endpoint_url": "ftp://me:hush-hush@x"}})
    assert "hush" not in line


def test_scheduler_without_a_worker_needs_no_data_until_somebody_asks_for_it(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD | {"worker": {"embedded": False}})

    with pytest.raises(InvalidConfigurationError, match=r"worker\.data: is missing"):
        _ = settings.worker.data_dir


@pytest.mark.parametrize(
    ("given", "uri", "folder"),
    [
        ({"data": "/srv/x"}, None, "/srv/x"),
        ({"data": "s3://bucket/some/prefix/"}, "s3://bucket/some/prefix", "/w/inputs"),
        ({"data": "s3://bucket"}, "s3://bucket", "/w/inputs"),
    ],
)
def test_data_are_in_a_shared_folder_or_a_bucket(
    tmp_path: Path, given: dict[str, str], uri: str | None, folder: str
) -> None:
    worker = load(tmp_path, GOOD | {"worker": {"work_dir": "/w", **given}}).worker

    assert (worker.data_uri, worker.data_dir) == (uri, Path(folder))


def test_settings_cannot_be_changed(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD)

    with pytest.raises(ValueError, match="frozen"):
        settings.log.level = "debug"


def test_hosts_may_be_a_list(tmp_path: Path) -> None:
    settings = load(tmp_path, GOOD | {"zookeeper": {"hosts": ["zk1:2181", "zk2", "[::1]:2181"]}})

    assert settings.zookeeper.hosts == "zk1:2181,zk2,[::1]:2181"


def test_missing_file_is_refused_as_configuration(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigurationError, match="there is no such file"):
        load_settings(tmp_path / "none.yaml", {})


def test_targets_are_read_with_their_defaults(tmp_path: Path) -> None:
    text = f"""{BASE}
spark:
  targets:
    big:
      kind: standalone
      master: spark://a:7077,b:7077
      rest: http://a:6066,http://b:6066
      conf: {{spark.executor.memory: 4g, spark.cores.max: 8}}
      token_file: /run/token
    here: {{kind: local, master: "local[8]", slots: 1, ca_file: null}}
    pods: {{kind: kubernetes, master: "k8s://https://k:1", image: i, token_file: /run/drivers-read-this}}
"""
    settings = load(tmp_path, text)

    big, here = settings.spark.targets["big"], settings.spark.targets["here"]
    assert (big.master, big.rest) == ("spark://a:7077,b:7077", ["http://a:6066", "http://b:6066"])
    assert (big.conf, big.slots) == ({"spark.executor.memory": "4g", "spark.cores.max": "8"}, 8)
    assert (here.slots, here.rest, here.namespace) == (1, [], "default")
    assert secret_files(settings, {}) == {Path("/run/token")}


def test_secret_in_a_target_is_not_shown(tmp_path: Path) -> None:
    target = {"kind": "local", "master": "local", "conf": {"spark.hadoop.fs.s3a.secret.key": "hush-hush"}}

    (line,) = refusal(tmp_path, GOOD | {"spark": {"targets": {"big": target}}})

    assert "hush" not in line


@pytest.mark.parametrize(
    "name",
    [
        "spark.kubernetes.authenticate.oauthTokenFile",
        "spark.kubernetes.driver.secrets.keys",
        "spark.hadoop.fs.s3a.aws.credentials.provider",
    ],
)
def test_property_that_says_where_a_secret_is_may_be_in_a_target(tmp_path: Path, name: str) -> None:
    target = {"kind": "local", "master": "local", "conf": {name: "/etc/x"}}

    assert load(tmp_path, GOOD | {"spark": {"targets": {"big": target}}}).spark.targets["big"].conf


def test_token_in_the_url_of_a_connect_server_is_not_shown(tmp_path: Path) -> None:
    (line,) = refusal(tmp_path, GOOD | {"connect": {"url": "sc://spark:15002/;token=t0ken"}})

    assert "t0ken" not in line


def test_a_single_scheduler_needs_no_zookeeper_and_names_the_folder_of_its_store(tmp_path: Path) -> None:
    document = {**GOOD, "leadership": {"elector": "single"}}
    del document["zookeeper"]

    assert load(tmp_path, document).store_folder == Path("/var/lib/nimbus/store")
    assert load(tmp_path, GOOD).store_folder is None


def test_an_elector_of_ones_own_and_its_place_in_the_queue_are_read(tmp_path: Path) -> None:
    told = {"elector": "my.electors:make", "priority": -2, "nofailover": True}
    leadership = load(tmp_path, {**GOOD, "leadership": told}).leadership

    assert (leadership.elector, leadership.priority, leadership.nofailover) == ("my.electors:make", -2, True)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "nimbus.example.com", "127.0.0.1.example.com"])
def test_address_off_loopback_without_required_tokens_is_refused(tmp_path: Path, host: str) -> None:
    document = GOOD | {"scheduler": {"state_dir": "/x", "host": host}}

    with pytest.raises(InvalidConfigurationError) as refused:
        load(tmp_path, document)

    (problem,) = refused.value.problems
    assert problem.key == "scheduler.host"
    assert "api.auth" in problem.message
    assert "nimbus token create" in problem.message
    assert refused.value.exit_code == 2
    with_tokens = document | {"api": {"auth": "required"}}
    with pytest.raises(InvalidConfigurationError, match=r"read the tokens\. Set api\.tls"):
        load(tmp_path, with_tokens)
    pair = {"certificate": "/x/api.pem", "key": "/x/api.key"}
    assert load(tmp_path, document | {"api": {"auth": "required", "tls": pair}}).scheduler.host == host
    proxied = {"state_dir": "/x", "host": host, "advertise_url": "https://nimbus.example.com"}
    assert load(tmp_path, with_tokens | {"scheduler": proxied}).api.tls is None


def test_metrics_off_loopback_need_tokens_and_tls(tmp_path: Path) -> None:
    document = GOOD | {"worker": {"data": "/d", "metrics": "0.0.0.0:8471"}, "api": {"auth": "required"}}

    with pytest.raises(InvalidConfigurationError) as refused:
        load(tmp_path, document)

    (problem,) = refused.value.problems
    assert problem.key == "worker.metrics"
    assert "api.tls" in problem.message


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost"])
def test_address_on_loopback_needs_no_tokens(tmp_path: Path, host: str) -> None:
    assert load(tmp_path, GOOD | {"scheduler": {"state_dir": "/x", "host": host}}).api.auth == "optional"
