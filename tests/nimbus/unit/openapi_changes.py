"""Finds changes of the API's document that break callers: `python -m tests.nimbus.unit.openapi_changes`.

Without an argument it compares the current API with `nimbus/api/openapi.json`; `--write` writes that file
again. It stands beside the code, and is not part of the wheel.
`/api/v1` may only grow: all served fields and operations stay, and all accepted input stays accepted.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

COMMITTED = Path(__file__).parents[3] / "nimbus" / "api" / "openapi.json"
Document = Mapping[str, Any]


def served() -> Document:
    """The document of the current API."""
    from nimbus.api.app import create_app
    from tests.nimbus.integration.conftest import World

    found: Document = create_app(World().services()).openapi()
    return found


def breaks(before: Document, after: Document) -> Iterator[str]:
    """Changes from `before` to `after` that break callers."""
    for path, operations in before["paths"].items():
        for method, old in operations.items():
            new = after["paths"].get(path, {}).get(method)
            where = f"{method.upper()} {path}"
            if new is None:
                yield f"{where} is gone"
                continue
            if old["operationId"] != new["operationId"]:
                yield f"{where}: operationId {old['operationId']} is now {new['operationId']}"
            yield from _request(where, old, new)
            for status in old["responses"].keys() - new["responses"].keys():
                yield f"{where}: answer {status} is gone"
    yield from _schemas(before, after)


def _request(where: str, old: Document, new: Document) -> Iterator[str]:
    def named(operation: Document) -> dict[tuple[str, str], Document]:
        return {(one["in"], one["name"]): one for one in operation.get("parameters", [])}

    olds, news = named(old), named(new)
    for key in olds.keys() - news.keys():
        yield f"{where}: parameter {key[1]} is gone"
    for key, one in news.items():
        if one.get("required") and not olds.get(key, {}).get("required"):
            yield f"{where}: parameter {key[1]} is required now"
        if key in olds:
            yield from _narrowed(f"{where}: parameter {key[1]}", olds[key]["schema"], one["schema"])
    if new.get("requestBody", {}).get("required") and not old.get("requestBody", {}).get("required"):
        yield f"{where}: a body is required now"


def _schemas(before: Document, after: Document) -> Iterator[str]:
    """Bodies and answers share the schemas, so both rules apply to each."""
    news = after["components"]["schemas"]
    for name, old in before["components"]["schemas"].items():
        new = news.get(name)
        if new is None:
            yield f"schema {name} is gone"
            continue
        was, now = old.get("properties", {}), new.get("properties", {})
        for field in was.keys() - now.keys():
            yield f"{name}.{field} is gone"
        for field in was.keys() & now.keys():
            yield from _narrowed(f"{name}.{field}", was[field], now[field])
        if old.get("additionalProperties") is False:  # of a body; an answer may get more fields
            for field in set(new.get("required", [])) - set(old.get("required", [])):
                yield f"{name}.{field} is required now"
        yield from _narrowed(name, old, new)


def _narrowed(where: str, old: Document, new: Document) -> Iterator[str]:
    for key in ("type", "format", "$ref", "pattern"):
        if key in new and old.get(key) != new[key]:
            yield f"{where}: {key} {old.get(key)} is now {new[key]}"
    for value in old.get("enum", []):
        if value not in new.get("enum", [value]):
            yield f"{where}: value {value!r} is gone"
    for key, sign in (("maximum", 1), ("maxLength", 1), ("maxItems", 1), ("minimum", -1), ("minLength", -1)):
        if key in new and (key not in old or sign * new[key] < sign * old[key]):
            yield f"{where}: {key} {old.get(key)} is now {new[key]}"


def main() -> int:
    """Print the breaking changes, or write the file."""
    now = served()
    if "--write" in sys.argv[1:]:
        COMMITTED.write_text(json.dumps(now, indent=1, sort_keys=True, ensure_ascii=False) + "\n")
        return 0
    found = list(breaks(json.loads(COMMITTED.read_text()), now))
    sys.stdout.writelines(f"{line}\n" for line in found)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
