"""An S3 proxy that injects faults. See `proxy`."""
