"""The outbox relay: delivers jobs that were written to PostgreSQL in a business transaction to webhooks."""

__version__ = "0.1.0"
