"""What is stored: one object in the object store, one file on disk."""

from __future__ import annotations

from blobsync.release.blob import Blob
from blobsync.release.layout import Pack

StoredObject = Pack | Blob
"""A pack, or a blob that travels alone. Both have a `name` and a `size_bytes`."""
