"""A ZooKeeper session over kazoo, and requests answered over it. `leader.fencing` uses kazoo, too."""
