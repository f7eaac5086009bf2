"""What may be done to a dead letter, and the count of what was.

| it is                                                  | redrive                          | discard |
|--------------------------------------------------------|----------------------------------|---------|
| dead, without an entity                                | yes                              | yes     |
| dead, and its lane stands still behind it              | yes: nothing has passed it       | yes     |
| dead, and has let go of its lane                       | with force, marked               | yes     |
| delivered, asked for by its id, without an entity      | yes, marked                      | no      |
| delivered, asked for by its id, of an entity           | with force, marked               | no      |
| anything else                                          | no                               | no      |

A marked job is sent with Relay-Redrive. The statements (redrive.sql, discard.sql) look again under the row's lock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal


@dataclass(frozen=True, slots=True)
class Letter:
    """A dead letter; or a job that was asked for by its id, and is not dead. `error` is of its last failed attempt.

    `behind` counts the jobs that wait for it in its lane, up to a cap; None where it does not hold the lane.
    """

    id: int
    destination: str | None
    topic: str
    entity_key: str | None
    status: str
    holds_lane: bool
    redrive: bool
    attempts: int
    finished_at: datetime | None
    error: str | None
    behind: int | None = None

    @property
    def overtaken(self) -> bool:
        """Whether later jobs of its entity may have been delivered already."""
        return self.entity_key is not None and not self.holds_lane

    @property
    def marked(self) -> bool:
        """Whether a redrive marks it."""
        return self.redrive or self.status == "done" or self.overtaken


@dataclass(slots=True)
class Report:
    """What was done to the jobs that matched, or would be.

    `changed` were redriven or discarded, `marked` of them so that the receiver is told. `refused` may not be, and
    `overtaken` of those may with force. `left` were locked, or changed by somebody else meanwhile. `reasons` are
    sentences about refused and left.
    """

    verb: Literal["redrive", "discard"]
    dry_run: bool
    matched: int = 0
    changed: int = 0
    marked: int = 0
    refused: int = 0
    overtaken: int = 0
    left: int = 0
    destinations: dict[str, int] = field(default_factory=dict)
    reasons: list[str] = field(default_factory=list)


def accepted(
    report: Report, letters: Sequence[Letter], *, force: bool = False, delivered: bool = False
) -> list[Letter]:
    """Those of `letters` to which `report.verb` may be done. Enters the others into the report.

    `delivered`: jobs that were delivered may be redriven as well.
    """
    redrives = report.verb == "redrive"
    statuses, wanted = (
        ({"dead", "done"}, "neither dead nor delivered") if redrives and delivered else ({"dead"}, "not dead")
    )
    others = [letter for letter in letters if letter.status not in statuses]
    report.reasons += [f"job {letter.id} is {letter.status}, {wanted}" for letter in others]
    known = [letter for letter in letters if letter.status in statuses]
    allowed = [letter for letter in known if force or not redrives or not letter.overtaken]
    report.matched += len(letters)
    report.overtaken += len(known) - len(allowed)
    report.refused += len(letters) - len(allowed)
    return allowed


def explain(report: Report) -> None:
    """Adds the sentences that are about many jobs at once."""
    if report.overtaken:
        report.reasons.append(
            f"{report.overtaken} of entities whose later jobs may have been delivered already; "
            "--force sends them all the same, marked Relay-Redrive"
        )
    if report.left:
        report.reasons.append(f"{report.left} locked or changed by somebody else meanwhile; try again")
