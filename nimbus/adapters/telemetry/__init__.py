"""Collectors of traces and lineage, by their own libraries: extras, which are imported when first used."""
