"""The scheduler's doors to the outside: ZooKeeper, S3, the clock. One module, or folder, for each."""
