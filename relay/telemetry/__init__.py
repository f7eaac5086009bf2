"""What the relay tells of itself: events for people and machines, metrics, and traces."""

from relay.telemetry.log import LogFormat, configure_logging, event

__all__ = ["LogFormat", "configure_logging", "event"]
