"""The scheduler's adapters: ZooKeeper, S3, the clock. One module, or folder, for each."""
