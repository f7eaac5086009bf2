"""The demo: it runs only where its extra packages are, and says so elsewhere."""

from importlib.util import find_spec

from relay.errors import RelayError

if missing := [name for name in ("rich", "standardwebhooks") if find_spec(name) is None]:
    raise RelayError(f"the demo needs {' and '.join(missing)}: pip install 'outbox-relay[demo]'")
