"""Finds out what an S3 store can really do. For `python -m blobsync probe`."""
