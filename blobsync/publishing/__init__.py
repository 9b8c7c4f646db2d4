"""Putting a release into the object store: choosing, hashing, packing and uploading its files."""
