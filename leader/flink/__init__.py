"""Leader election and retrieval for components, after Flink's high-availability services.

- `service`: `LeaderElectionService`, several components on one election. `election`: one of them, and its
  contender. `publication`: the node that says where the component of the leader can be reached.
- `retrieval`: `LeaderRetrievalService` follows a leader from outside. `view`: what it knows of that leader.
"""
