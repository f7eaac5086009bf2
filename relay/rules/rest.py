"""How long to rest after looks that are slow because vacuum is held back, and pass over all that was delivered."""

_TIMES = 20
_LONGEST_S = 30.0


class Rest:
    """Remembers how long the last look took. One that was slow by itself counts for nothing: anything may do that."""

    def __init__(self) -> None:
        self._last_s = 0.0

    def after(self, took_s: float) -> float:
        """Seconds to rest after a look: twenty times the shorter one of the last two, 30 s at most."""
        shorter_s, self._last_s = min(took_s, self._last_s), took_s
        return min(_LONGEST_S, _TIMES * shorter_s)
