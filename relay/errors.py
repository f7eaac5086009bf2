"""Errors that end a command with one sentence: what happened, with which value, and what to do."""


class RelayError(Exception):
    """A fault the operator can act on; printed without a traceback."""


class ConfigError(RelayError):
    """The configuration cannot be used; the text has one line for each fault, each naming its key path."""


class SchemaError(RelayError):
    """The database schema is missing, older, newer or different from what this version needs."""


class DatabaseUnavailableError(RelayError):
    """The database cannot be reached or refuses us; the text says which host and why."""
