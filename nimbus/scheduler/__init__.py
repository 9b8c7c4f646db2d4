"""One scheduler process, assembled from its parts: election, guard, sync, engine, registration, API."""
