"""The home page: what needs attention, the cluster and its election."""
