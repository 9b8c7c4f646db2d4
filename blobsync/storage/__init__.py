"""The object store: the port, its keys, S3 through boto3, and reading releases from it."""
