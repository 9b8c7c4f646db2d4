"""Where things are in the object store. No key is spelled anywhere else."""

from __future__ import annotations


def blob(sha256: str) -> str:
    """Key of an artifact's bytes."""
    return f"blobs/sha256/{sha256}"


def manifest(name: str, digest: str) -> str:
    """Key of a release's manifest."""
    return f"{manifests(name)}{digest}.json"


def manifests(name: str) -> str:
    """What the keys of all manifests of `name` begin with."""
    return f"releases/{name}/"
