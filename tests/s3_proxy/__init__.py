"""An S3 proxy that fails on purpose. See `proxy`."""
