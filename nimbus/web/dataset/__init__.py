"""The pages of datasets and their lineage."""
