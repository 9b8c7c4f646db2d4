"""What is stored: one object in the object store, one file on disk. And what is fetched."""

from __future__ import annotations

from blobsync.release.blob import Blob
from blobsync.release.layout import Pack
from blobsync.release.loose import Bundle

StoredObject = Pack | Blob
"""A pack, or a blob that travels alone. Both have a `name` and a `size_bytes`."""

Fetchable = StoredObject | Bundle
"""What is fetched at once: an object, or many small ones that are kept as a pack."""
