"""Pipeline definitions: read, checked, rendered."""
