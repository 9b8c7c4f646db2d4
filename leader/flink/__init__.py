"""Leader election and retrieval for components, after Flink's high-availability services.

- `service`: `LeaderElectionService`, several components on one election. `component`: one of them, with its
  contender and the node that says where it can be reached.
- `retrieval`: `LeaderRetrievalService` follows a leader from outside. `view`: what it knows of that leader.
"""
