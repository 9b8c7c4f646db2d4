"""The live state in one file of SQLite, for one machine without ZooKeeper (ADR 34)."""
