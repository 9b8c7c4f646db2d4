"""Tools for tests of whatever leads: faults on the wire, a ZooKeeper in memory, a simulator, a checker."""
