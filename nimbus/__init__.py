"""Nimbus: redundant schedulers for PySpark pipelines, with guarded leadership."""

__version__ = "0.1.0"
