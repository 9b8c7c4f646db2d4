"""The codes of problems: docs/api.md lists all codes that the API can answer."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from nimbus.access.oidc import JwtRefusedError
from nimbus.api.problems import ObjectNotFoundError, problem
from nimbus.domain.cluster.access import AccessDeniedError
from nimbus.domain.errors import RefusedError
from nimbus.engine.decision import Refusal

ROOT = Path(__file__).parents[3]
ELSEWHERE = ("bootstrap", "cli", "client", "demo", "localstack", "tables", "telemetry", "worker")
"""Packages whose errors become no answer of the API: messages of commands, or how an attempt ended."""
WITH_CODE = {
    ObjectNotFoundError.__name__: 0,
    RefusedError.__name__: 0,
    AccessDeniedError.__name__: 0,
    JwtRefusedError.__name__: 0,
    Refusal.__name__: 0,
    problem.__name__: 1,
}
"""Position of the code in a call."""
NOT_ANSWERED = {
    "roots, and defects": {"nimbus", "refused", "blobsync", "invalid_transition"},
    "a process does not start": {
        *("api_start_failed", "bad_certificate", "bind_failed", "blobsync_config", "cluster_unfinished"),
        *("invalid_configuration", "java_missing", "port_in_use", "schema_unknown", "tokens_file"),
        "validator_not_found",
    },
    "of the commands `cluster` and `publish`, which run in the caller's process": {
        *("cluster_archive", "cluster_in_use", "invalid_key", "publish_lapsed", "replicas_missing"),
        *("source_changed", "unmatched_pattern", "unsafe_source"),
    },
    "of a release, where the syncer raises `release_absent` or `release_corrupt`": {
        *("blob_not_found", "corrupt_blob", "corrupt_pack", "invalid_layout", "invalid_manifest"),
        "invalid_pack",
    },
    "of the collector of garbage": {"collect_lapsed", "gc_refused", "nothing_known", "stopped"},
    "in the log of the scheduler or worker": {
        *("alert_not_sent", "scheduler_id_in_use", "telemetry_not_sent", "worker_id_in_use"),
    },
    "why a task or an attempt failed": {"attempt_withdrawn", "bad_read", "no_write_version"},
    "of the leader, which reads the records again": {"slot_taken", "stale_state"},
    "caught by the route": {"key_used", "too_different", "too_many_edges"},
    "text of the login page": {"identity_provider", "login_not_begun", "login_refused"},
}
"""Codes of errors that never reach a client of the API, by the reason."""


def constants(node: ast.expr) -> Iterator[str]:
    """The texts that an expression can be."""
    if isinstance(node, ast.IfExp):
        yield from (*constants(node.body), *constants(node.orelse))
    elif isinstance(node, ast.Constant) and isinstance(node.value, str):
        yield node.value


def codes_of(tree: ast.AST) -> Iterator[str]:
    """The codes in a module: arguments of calls, and what is assigned to `code`, as by a class of errors."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and [ast.unparse(one) for one in node.targets] == ["code"]:
            yield from constants(node.value)
        elif isinstance(node, ast.Call):
            at = WITH_CODE.get(ast.unparse(node.func).rpartition(".")[2])
            if at is not None and len(node.args) > at:
                yield from constants(node.args[at])
            for keyword in node.keywords:
                if keyword.arg == "code":
                    yield from constants(keyword.value)


@cache
def spelled() -> dict[str, str]:
    """Each code, and a module that contains it."""
    ours = ROOT / "nimbus"
    modules = (path for path in ours.rglob("*.py") if path.relative_to(ours).parts[0] not in ELSEWHERE)
    return {
        code: str(path.relative_to(ROOT))
        for path in (*modules, ROOT / "blobsync/errors.py")
        for code in codes_of(ast.parse(path.read_text()))
        if re.fullmatch("[a-z_]+", code)
    }


def test_every_code_that_can_be_answered_is_listed() -> None:
    listed = set(re.findall(r"`([a-z_]+)`", (ROOT / "docs/api.md").read_text()))
    unanswered = set[str]().union(*NOT_ANSWERED.values())

    missing = {code: where for code, where in spelled().items() if code not in listed | unanswered}
    assert missing == {}
    assert unanswered - spelled().keys() == set()
    assert unanswered & listed == set()


@pytest.mark.parametrize(
    "code",
    [
        *("unknown_run", "no_attempt", "quarantined", "unknown_host", "bad_every", "refused_by_validator"),
        *("release_absent", "token_unknown", "withdrawn", "conflict", "definition_not_here"),
    ],
)
def test_codes_are_found_where_they_are_spelled(code: str) -> None:
    assert code in spelled()
