"""Nimbus: redundant schedulers for PySpark pipelines, with guarded leadership."""
