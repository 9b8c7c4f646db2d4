"""The pages of backfills and their dates."""
