"""Sends generated requests to every operation of an API. Each answer must match its schema."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path

import httpx

# The same requests in each run: those at the limits of the schema, and a few random ones.
CONFIG = """
color = false
# A busy machine is no fault of the API.
request-timeout = 60
suppress-health-check = ["all"]

[parameters]
{parameters}
{dictionaries}

[generation]
deterministic = true
max-examples = {examples}

# Links that the document has, none that are guessed.
[phases.stateful]
inference.algorithms = []

[checks]
not_a_server_error.expected-statuses = ["2xx", "3xx", "4xx", {more}]
# 412: drawn tags name no revision.
positive_data_acceptance.expected-statuses = ["2xx", "401", "403", "404", "409", "412", "429", "5xx"]
"""

ENDLESS = "/api/v1/events"
"""A stream; see `test_api_events`."""
ENVIRONMENT = {**os.environ, "PYTHONHASHSEED": "0"}


def command(
    url: str,
    folder: Path,
    *,
    phases: str = "examples,fuzzing",
    operations: str = "",
    more: str = "",
    examples: int = 5,
    parameters: Mapping[str, str] | None = None,
    usual: Mapping[str, str] | None = None,
) -> list[str]:
    """The command line that sends them. This function reads the schema, which a busy machine makes slowly.

    Args:
        url: Base URL of the server.
        folder: Its working folder, with its configuration.
        phases: `coverage` sends requests at the limits of the schema, about 2,500; `stateful` follows links
            from answer to request.
        operations: Regular expression that selects operations; empty: all.
        more: Allowed status codes in addition to the documented ones, such as `"503"`.
        examples: Number of random requests to each operation.
        parameters: Fixed values of some parameters, which are not random then.
        usual: Values that some fields of bodies, such as `pipeline`, have in most requests.
    """
    config = folder / "schemathesis.toml"
    given = "\n".join(
        f"{json.dumps(name)} = {json.dumps(value)}" for name, value in (parameters or {}).items()
    )
    for place, name in enumerate(usual or {}):
        given += f'\n"body.{name}" = {{dictionary = "usual{place}", probability = 0.9}}'
    dictionaries = "\n".join(
        f"[dictionaries.usual{place}]\nvalues = [{json.dumps(value)}]"
        for place, value in enumerate((usual or {}).values())
    )
    config.write_text(
        CONFIG.format(parameters=given, dictionaries=dictionaries, examples=examples, more=more)
    )
    document = folder / "openapi.json"
    document.write_bytes(httpx.get(f"{url}/openapi.json", timeout=120).raise_for_status().content)
    return [
        *(sys.executable, "-m", "schemathesis.cli", "--config-file", str(config), "run"),
        *(("--include-operation-id-regex", operations) if operations else ()),
        *("--phases", phases, "--exclude-path", ENDLESS, "--url", url, str(document)),
    ]
