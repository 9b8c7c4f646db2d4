"""A TCP proxy that fails on purpose, and reads ZooKeeper's frames to know when. See `proxy`."""
