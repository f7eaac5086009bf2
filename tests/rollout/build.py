"""The next version of the relay: a copy of this one with another number and one more migration."""

import re
import shutil
from pathlib import Path

import relay
from relay.migration import migrations

ROOT = Path(relay.__file__).parents[1]
VERSION = "0.2.0.next"
NAME = f"{len(migrations()) + 1:04}_next"

MIGRATION = """\
-- A column that the next version has, and this one does not know.
--
-- why:          a rollout is tried with it
-- locks:        ACCESS EXCLUSIVE on outbox.job for a moment
-- old replicas: {old_replicas}
-- transaction:  one

ALTER TABLE outbox.job ADD COLUMN next text;
"""


def next_version(folder: Path, *, old_replicas: str) -> Path:
    """Build it in `folder`; what PYTHONPATH has to say. `old_replicas` is what the migration's header says of them."""
    shutil.copytree(ROOT / "relay", folder / "relay", ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copytree(ROOT / "schema", folder / "schema")
    init = folder / "relay" / "__init__.py"
    init.write_text(re.sub(r'__version__ = ".*"', f'__version__ = "{VERSION}"', init.read_text()))
    (folder / "schema" / f"{NAME}.sql").write_text(MIGRATION.format(old_replicas=old_replicas))
    return folder
