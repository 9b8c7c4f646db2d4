"""S3: `store` is the adapter, `reader` reads objects over our own connections, boto3 does the rest."""
