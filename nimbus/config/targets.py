"""Named places where the Spark of tasks runs: `spark.targets`, with the keys of each kind of target.

What a key is for is told once, in `configs/nimbus.example.yaml`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from nimbus.config import texts
from nimbus.config.checking import Strict, kind_faults
from nimbus.config.problems import KeyPath
from nimbus.config.values import AbsoluteFile, AbsolutePath, PositiveDuration, described

_KEYS = {
    "local": (("master",), ("conf", "history", "environment")),
    "connect": (("url",), ("token_file", "token_variable", "executors_see")),
    "standalone": (
        ("master",),
        (
            *("rest", "pages", "token_file", "token_variable", "executors_see"),
            *("conf", "history", "schedulers", "queue_timeout", "environment"),
        ),
    ),
    "yarn": (
        ("hadoop_conf_dir",),
        ("rest", "executors_see", "conf", "history", "schedulers", "queue_timeout", "environment"),
    ),
    "kubernetes": (
        ("master", "image"),
        (
            *("namespace", "service_account", "token_file", "ca_file", "executors_see"),
            *("conf", "history", "schedulers", "queue_timeout", "environment"),
        ),
    ),
}
"""Required and optional keys of each kind of target. All kinds have `slots`."""
_MASTERS = {
    "local": (re.compile(r"local(\[[^\]]+\])?"), "local[N]"),
    "standalone": (re.compile(r"spark://[^:/,\s]+:\d+(,[^:/,\s]+:\d+)*"), "spark://host:port,host:port"),
    "kubernetes": (re.compile(r"k8s://(https?://)?[^:/\s]+(:\d+)?"), "k8s://https://host:port"),
}
_SECRET = re.compile(r"secret|password|token|access[.]?key", re.IGNORECASE)
"""The same as the default of `spark.redaction.regex`."""
_REFERENCE = re.compile(r"file$|path$|name$|^spark\.kubernetes\.(?!.*oauthToken$)", re.IGNORECASE)
"""Properties whose value is the place of a secret, not the secret."""


def _urls(value: object) -> object:
    return [part.strip() for part in value.split(",")] if isinstance(value, str) else value


class TargetSection(Strict):
    """One place. Its keys depend on its kind."""

    kind: Literal["local", "connect", "standalone", "yarn", "kubernetes"]
    executors_see: Literal["data", "host"] | None = None
    environment: Annotated[str, BeforeValidator(texts.plain_name)] | None = None
    slots: Annotated[int, Field(ge=1, le=10_000)] = 8
    master: str | None = None
    url: Annotated[str, BeforeValidator(texts.connect_url)] | None = None
    rest: Annotated[list[Annotated[str, BeforeValidator(texts.url)]], BeforeValidator(_urls)] = Field(
        default_factory=list
    )
    pages: Annotated[list[Annotated[str, BeforeValidator(texts.url)]], BeforeValidator(_urls)] = Field(
        default_factory=list
    )
    conf: dict[
        Annotated[str, BeforeValidator(texts.spark_key)], Annotated[str, BeforeValidator(texts.scalar)]
    ] = Field(default_factory=dict)
    history: Annotated[str, BeforeValidator(texts.url)] | None = None
    schedulers: list[Annotated[str, BeforeValidator(texts.url)]] = Field(default_factory=list)
    queue_timeout: PositiveDuration = timedelta(hours=24)
    token_file: AbsoluteFile | None = None
    token_variable: Annotated[str, BeforeValidator(texts.variable_name)] | None = None
    ca_file: AbsoluteFile | None = None
    hadoop_conf_dir: AbsolutePath | None = None
    namespace: str = "default"
    image: str | None = None
    service_account: str | None = None


def target_faults(name: str, target: TargetSection) -> Iterator[tuple[KeyPath, str]]:
    """Faults in the combination of a target's keys."""
    for key, message in (*_key_faults(target), *_conf_faults(target)):
        yield ("spark", "targets", name, key), message


def _key_faults(target: TargetSection) -> Iterator[tuple[str, str]]:
    required, optional = _KEYS[target.kind]
    yield from kind_faults(target, target.kind, required, ("slots", *optional))
    if target.kind in _MASTERS and target.master is not None:
        form, words = _MASTERS[target.kind]
        if not form.fullmatch(target.master):
            yield "master", f"must be {words}, not {described(target.master)}"
    if target.token_file is not None and target.token_variable is not None:
        yield "token_variable", "token_file is given as well; keep one of them"


def _conf_faults(target: TargetSection) -> Iterator[tuple[str, str]]:
    for name in target.conf:
        if name == "spark.master":
            yield "conf", "spark.master is the key master of a target; remove it here"
        elif name == "spark.kubernetes.namespace" and target.kind == "kubernetes":
            yield "conf", f"{name} is the key namespace of a target; remove it here"
        elif names_a_secret(name):
            where = "spark-defaults.conf, in the folder that SPARK_CONF_DIR of worker.env names"
            yield "conf", f"{name} would stand in command lines: write it into {where}"


def names_a_secret(name: str) -> bool:
    """True if the value of such a property or variable is probably a secret, and not the place of one."""
    return bool(_SECRET.search(name)) and not _REFERENCE.search(name)
