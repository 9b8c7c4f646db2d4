"""Leader election and retrieval for components, modelled on Flink's high-availability services.

- `service`: `LeaderElectionService`, several components in one election.
- `component`: one component, with its contender and the node that publishes its address.
- `retrieval`: `LeaderRetrievalService`, which follows a leader without queueing.
- `view`: what is known of that leader.
"""
