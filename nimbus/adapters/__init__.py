"""The adapters behind the ports: ZooKeeper, SQLite, S3, receivers of alerts and telemetry, probes."""
