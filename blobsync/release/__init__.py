"""What a release is: its manifest, the packs its small files travel in, and where its bytes are. Pure."""
