"""Takes over a changed configuration while the replica runs: all of it, or none.

What it was read from is looked at every few seconds: the file, and every file that it names for a secret or for TLS.
Digests of their content decide, so a ConfigMap or a Secret whose symlinks were swapped is seen as well.
"""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from pathlib import Path

from relay.config import Settings, load
from relay.config.content import digest
from relay.config.difference import Configuration, difference, live, needs_restart
from relay.errors import ConfigError
from relay.model import Destination
from relay.replica import Replica
from relay.sender import Sender
from relay.telemetry import configure_logging, event

_LOOK_S = 3.0
# What is being written is read when it has stayed the same for so long.
_STEADY_S = 0.5

Compare = Callable[[Sequence[Destination], AbstractSet[str]], Awaitable[None]]


class Reloader:
    """The configuration in use, and whether what is on disk is still the same.

    `compare` says where the registry differs from destinations that were taken over; it is told which are skipped.
    """

    def __init__(self, configuration: Configuration, *, replica: Replica, sender: Sender, compare: Compare) -> None:
        self._started = configuration.settings
        self._configuration = configuration
        self._replica = replica
        self._sender = sender
        self._compare = compare
        self._seen = self._read = b""
        self._asked = False
        self._refused: str | None = None
        self._skipped: Mapping[str, str] = configuration.settings.broken_destinations()
        self._to_compare = False

    def ask(self) -> None:
        """Read it with the next step, whether it has changed or not."""
        self._asked = True

    async def step(self) -> float:
        """Looks once; seconds until the next look."""
        if self._replica.stopping:
            return math.inf
        asked, self._asked = self._asked, False
        # Taken before the files are read: what changes from here on is seen by the next look.
        seen = await asyncio.to_thread(digest, self._configuration.settings.files())
        steady, self._seen = seen == self._seen, seen
        if asked or (steady and (seen != self._read or self._refused)):
            self._read = seen
            await self._reload(asked=asked)
        if self._to_compare:
            await self._compare(self._configuration.destinations, self._skipped.keys())
            self._to_compare = False
        return _LOOK_S if steady else _STEADY_S

    async def _reload(self, *, asked: bool) -> None:
        try:
            wanted, usable = await asyncio.to_thread(self._load)
        except ConfigError as error:
            self._refuse(str(error), asked=asked)
            return
        changed = difference(self._configuration, wanted)
        if changed:
            self._take_over(wanted, usable)
        if changed or asked or self._refused:
            restart = needs_restart(self._started, wanted.settings)
            event(logging.INFO, "configuration_read", changed=changed, needs_restart=restart)
            # Last, so that what makes the log quieter is still said.
            configure_logging(usable.log.level, usable.log.format)
        self._refused, self._replica.outdated = None, False

    def _load(self) -> tuple[Configuration, Settings]:
        """What is on disk, and as much of it as this replica can use; raises ConfigError when that is not all."""
        file = self._started.origin.file
        settings = load(Path(file) if file else None)
        usable = live(settings, self._started)
        in_use = {each.name: each for each in self._configuration.destinations}
        broken = usable.broken_destinations()
        if lost := [why for name, why in broken.items() if name in in_use]:
            raise ConfigError("\n".join(lost))
        destinations = usable.resolved_destinations()
        self._sender.read(destinations)
        return Configuration(settings, destinations), usable

    def _take_over(self, wanted: Configuration, usable: Settings) -> None:
        self._replica.configure(usable, wanted.destinations)
        self._sender.configure(wanted.destinations)
        skipped = usable.broken_destinations()
        for name, why in skipped.items():
            if self._skipped.get(name) != why:
                event(logging.ERROR, "destination_skipped", destination=name, why=why)
        self._configuration, self._skipped, self._to_compare = wanted, skipped, True

    def _refuse(self, why: str, *, asked: bool) -> None:
        if asked or why != self._refused:
            event(logging.ERROR, "configuration_refused", why=why, advice="the one before it stays in use")
        self._refused, self._replica.outdated = why, True
