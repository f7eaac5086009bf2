"""What a replica answers over HTTP: how it is, and its metrics."""
