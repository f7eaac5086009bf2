"""An HTTP client for deliveries: a POST, its answer, and kept connections; nothing else of HTTP."""
