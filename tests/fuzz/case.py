"""What every target shares: a count of what its cases came to, and texts that break things."""

from collections import Counter
from collections.abc import Callable

from hypothesis import strategies as st

# A test of hypothesis's, without its arguments.
Check = Callable[[], None]

SEEN: Counter[str] = Counter()
# Stands for every secret; no error, no log and no page may show it.
SECRET = "hunter2-0123456789-0123456789"


def came_to(what: str) -> None:
    """Counts a case."""
    SEEN["cases"] += 1
    SEEN[what] += 1


# Each has broken some program: controls, text of other directions, half characters, what SQL, HTML, shells, YAML,
# paths and headers take for their own, and numbers beyond every type.
NASTY = [
    "", " ", "\0", "a\0b", "\r\n", "a\r\nX-Injected: 1", "\n", "\x1b[2J", "\x7f", "\x85", "\u2028", "\u202e", "\ufeff",
    "\ud800", "\udcff", "é", "ß", "İ", "👩🏽‍🚀", "𝔘", "\U0010ffff", "a" * 300, "é" * 300, "%", "%s", "%(x)s", "%00",
    "%%", "{}", "{other}", "{0.__class__}", "${PATH}", "$(id)", "`id`", "; rm -rf /", "'", '"', "''", "' OR 1=1 --",
    "'); DROP TABLE outbox.job; --", "\\", "\\'", "$$", "../../etc/passwd", "/dev/zero", "/etc/passwd", "//x", "\\\\x",
    "file:///etc/passwd", "javascript:alert(1)", "<script>alert(1)</script>", "&amp;", "*", "*.*", ".", "..", "-", "--",
    "--help", "-1", "0", "1", "99999999999999999999", "9223372036854775807", "1e400", "NaN", "Infinity", "-Infinity",
    "0x10", "1_000", "null", "~", "true", "yes", "!!python/object:os.system", "&a", "*a", "<<", "? ", "- ", ": ", "#",
    "|", ">", "@", "localhost", "127.0.0.1", "0.0.0.0", "[::1]", "::ffff:127.0.0.1", "169.254.169.254", "2130706433",
]  # fmt: skip

# Texts as PostgreSQL and files can have them, and those that they cannot.
texts = st.one_of(st.sampled_from(NASTY), st.text(max_size=40), st.text("abcXYZ019._-/: \t", max_size=20))
