"""The command line: `python -m blobsync`."""
