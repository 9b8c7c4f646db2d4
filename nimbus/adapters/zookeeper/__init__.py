"""The live state in ZooKeeper. Watches only enqueue."""
