"""Elections other than ZooKeeper's, behind the port `leader.elector.Elector`, and the choice among them."""
