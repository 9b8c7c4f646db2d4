"""Leader election and retrieval for components, with the interfaces of Flink's high-availability services."""
