"""The state of a Kubernetes API server: objects with versions, and their changes. No network.

Source: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import copy
import re
import threading
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]
KINDS = {
    "pods": "Pod",
    "services": "Service",
    "configmaps": "ConfigMap",
    "persistentvolumeclaims": "PersistentVolumeClaim",
    "networkpolicies": "NetworkPolicy",
}
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")
_LABEL_VALUE = re.compile(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?)?")


class ApiError(Exception):
    """An error that the server answers as a Status."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason, self.message = code, reason, message


@dataclass(frozen=True)
class Change:
    """An event of a watch."""

    version: int
    kind: str
    """Plural."""
    type: str
    object: Object


class Store:
    """All objects. Any thread may call it."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self._objects: dict[tuple[str, str, str], Object] = {}
        self._version = 100
        self.changes: list[Change] = []
        self.forgotten = 0
        """Changes up to this version are deleted: watches from there get 410."""
        self.namespaces = {"default"}
        self.pods_at_most = 1 << 30
        """A quota."""

    def version(self) -> int:
        return self._version

    def forget_changes(self) -> None:
        """Delete old changes, like a compaction."""
        with self.changed:
            self.forgotten = self._version

    def create(self, kind: str, namespace: str, given: Mapping[str, Any]) -> Object:
        with self.changed:
            made = copy.deepcopy(dict(given))
            meta = made.setdefault("metadata", {})
            if "name" not in meta and "generateName" in meta:
                meta["name"] = meta["generateName"] + uuid.uuid4().hex[:5]
            self._check(kind, namespace, made)
            key = (kind, namespace, meta["name"])
            if key in self._objects:
                raise ApiError(409, "AlreadyExists", f'{kind} "{meta["name"]}" already exists')
            if kind == "pods":
                self._admit(namespace, meta["name"])
                made.setdefault("spec", {}).setdefault("restartPolicy", "Always")
                made["spec"].setdefault("terminationGracePeriodSeconds", 30)
                made["status"] = {"phase": "Pending"}
            meta |= {"namespace": namespace, "uid": str(uuid.uuid4()), "creationTimestamp": now()}
            made |= {"apiVersion": "v1", "kind": KINDS[kind]}
            return self._put(kind, "ADDED", made)

    def _check(self, kind: str, namespace: str, made: Object) -> None:
        if namespace not in self.namespaces:
            raise ApiError(404, "NotFound", f'namespaces "{namespace}" not found')
        name = made["metadata"].get("name") or ""
        labels = (made["metadata"].get("labels") or {}).values()
        if len(name) > 253 or not _NAME.fullmatch(name):
            raise ApiError(422, "Invalid", f'{KINDS[kind]} "{name}" is invalid: metadata.name: Invalid value')
        if not all(_LABEL_VALUE.fullmatch(str(value)) for value in labels):
            raise ApiError(422, "Invalid", f'{KINDS[kind]} "{name}" is invalid: metadata.labels')

    def _admit(self, namespace: str, name: str) -> None:
        there = sum(1 for kind, place, _ in self._objects if (kind, place) == ("pods", namespace))
        if there >= self.pods_at_most:
            message = f'pods "{name}" is forbidden: exceeded quota: pods, used: pods={there}'
            raise ApiError(403, "Forbidden", message)

    def get(self, kind: str, namespace: str, name: str) -> Object:
        with self.changed:
            found = self._objects.get((kind, namespace, name))
            if found is None:
                raise ApiError(404, "NotFound", f'{kind} "{name}" not found')
            return copy.deepcopy(found)

    def list(self, kind: str, namespace: str, labels: str = "", fields: str = "") -> list[Object]:
        with self.changed:
            return [
                copy.deepcopy(one)
                for (its_kind, its_namespace, _), one in sorted(self._objects.items())
                if its_kind == kind and its_namespace == namespace and selected(one, labels, fields)
            ]

    def replace(self, kind: str, namespace: str, name: str, given: Mapping[str, Any]) -> Object:
        """Write a whole object. 409 if it has another `resourceVersion`."""
        with self.changed:
            old, made = self.get(kind, namespace, name), copy.deepcopy(dict(given))
            meta = made.setdefault("metadata", {})
            said = meta.get("resourceVersion")
            if said is not None and said != old["metadata"]["resourceVersion"]:
                raise ApiError(409, "Conflict", f'{kind} "{name}": the object has been modified')
            for kept in ("uid", "creationTimestamp", "namespace", "name", "deletionTimestamp"):
                if kept in old["metadata"]:
                    meta[kept] = old["metadata"][kept]
            if kind == "configmaps" and old.get("immutable") and made.get("data") != old.get("data"):
                raise ApiError(422, "Invalid", f'ConfigMap "{name}" is invalid: data is immutable')
            return self._put(kind, "MODIFIED", made)

    def delete(self, kind: str, namespace: str, name: str, options: Mapping[str, Any]) -> Object:
        """Delete an object. A pod on a node is only deleted when its kubelet confirms it (grace 0)."""
        with self.changed:
            found = self.get(kind, namespace, name)
            uid = (options.get("preconditions") or {}).get("uid")
            if uid is not None and uid != found["metadata"]["uid"]:
                message = f"the UID in the precondition ({uid}) does not match the UID in record"
                raise ApiError(
                    409, "Conflict", f'Operation cannot be fulfilled on {kind} "{name}": {message}'
                )
            spec = found.get("spec") or {}
            grace = options.get("gracePeriodSeconds", spec.get("terminationGracePeriodSeconds", 30))
            if kind == "pods" and spec.get("nodeName") and grace:
                if "deletionTimestamp" in found["metadata"]:
                    return found
                found["metadata"] |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": grace}
                return self._put(kind, "MODIFIED", found)
            del self._objects[kind, namespace, name]
            return self._put(kind, "DELETED", found)

    def _put(self, kind: str, change: str, made: Object) -> Object:
        self._version += 1
        made["metadata"]["resourceVersion"] = str(self._version)
        if change != "DELETED":
            self._objects[kind, made["metadata"]["namespace"], made["metadata"]["name"]] = made
        self.changes.append(Change(self._version, kind, change, copy.deepcopy(made)))
        self.changed.notify_all()
        return copy.deepcopy(made)

    def after(
        self, version: int, kind: str, namespace: str, labels: str, fields: str
    ) -> tuple[int, list[Change]]:
        """Changes since a version. 410 if these are deleted."""
        with self.changed:
            if version < self.forgotten:
                raise ApiError(410, "Expired", f"too old resource version: {version} ({self.forgotten})")
            found = [
                one
                for one in self.changes
                if one.version > version
                and one.kind == kind
                and one.object["metadata"]["namespace"] == namespace
                and selected(one.object, labels, fields)
            ]
            return self._version, found


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def selected(one: Object, labels: str, fields: str) -> bool:
    """Whether selectors of labels and of fields match an object."""
    has = one["metadata"].get("labels") or {}
    if not all(_label_fits(has, term) for term in _terms(labels)):
        return False
    for term in _terms(fields):
        path, _, wanted = term.replace("==", "=").partition("=")
        if (_field(one, path.rstrip("!")) == wanted) is path.endswith("!"):
            return False
    return True


def _terms(text: str) -> Iterator[str]:
    yield from (term.strip() for term in re.split(r",(?![^(]*\))", text) if term.strip())


def _label_fits(has: Mapping[str, str], term: str) -> bool:
    if found := re.fullmatch(r"(\S+)\s+(in|notin)\s+\((.*)\)", term):
        values = {value.strip() for value in found[3].split(",")}
        return (has.get(found[1]) in values) is (found[2] == "in")
    if "!=" in term:
        name, _, value = term.partition("!=")
        return has.get(name.strip()) != value.strip()
    if "=" in term:
        name, _, value = term.replace("==", "=").partition("=")
        return has.get(name.strip()) == value.strip()
    return (term[1:] not in has) if term.startswith("!") else term in has


def _field(one: Object, path: str) -> Any:
    value: Any = one
    for part in path.split("."):
        value = (value or {}).get(part)
    return value


def merged(old: Any, patch: Any) -> Any:
    """A JSON merge patch (RFC 7396)."""
    if not isinstance(patch, dict):
        return patch
    result = dict(old) if isinstance(old, dict) else {}
    for name, value in patch.items():
        if value is None:
            result.pop(name, None)
        else:
            result[name] = merged(result.get(name), value)
    return result
