"""`make bench-blobsync`: bringing files from S3 to a disk, beside the tools that do it fastest."""
