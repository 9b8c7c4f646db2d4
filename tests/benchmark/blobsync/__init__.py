"""`make bench-blobsync`: copies files from S3 to a disk, compared with the fastest other tools."""
