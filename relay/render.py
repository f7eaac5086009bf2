"""What the operator's verbs print: aligned tables for people, one JSON object a line for machines."""

import dataclasses
import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from relay.admin import DestinationStatus, Operation, Status, Synced, WaitingLane
from relay.check import Finding
from relay.dead import BEHIND_CAP, Opened
from relay.job import Shown
from relay.route import Routed
from relay.rules.escape import escaped
from relay.rules.redrive import Letter, Report
from relay.rules.why import Attempt, JobState, duration, instant

if TYPE_CHECKING:
    from relay.ping import Pinged  # brings HTTP; see relay.cli.run

_COLOURS = {"ok": "green", "warning": "yellow", "fault": "red"}


def as_json(value: Any) -> str:
    """A dataclass on one line; times are ISO 8601 in UTC, durations seconds."""
    return json.dumps(dataclasses.asdict(value), default=_plain, ensure_ascii=False)


def _plain(value: object) -> str:
    if isinstance(value, datetime):
        return value.astimezone(UTC).isoformat()
    raise TypeError(f"{type(value).__name__} has no form in JSON")


def finding_text(finding: Finding) -> str:
    """One line of `relay check`."""
    level = click.style(f"{finding.level:7}", fg=_COLOURS[finding.level])
    return f"{level} {finding.subject}: {escaped(finding.sentence)}"


def sync_text(synced: Synced) -> str:
    """What `relay sync` changed, and what it left for a person to decide."""
    lines = [
        f"{word}: {', '.join(names) or 'nothing new'}"
        for word, names in (("registered", synced.registered), ("retired", synced.retired))
    ]
    lines += [
        f"{name} is registered but not configured; `relay sync --retire {name}` stops routing to it"
        for name in synced.not_configured
    ]
    return "\n".join(lines)


def status_text(status: Status) -> str:
    """The table of `relay status`, and what belongs to no destination."""
    head = ("DESTINATION", "DUE", "OLDEST", "LATER", "RUNNING", "BLOCKED", "DEAD", "STANDING", "DONE/S", "")
    lines = _table([head, *(_status_row(each, status.cap) for each in status.destinations)])
    if status.lanes:
        titles = ("LANES THAT WAIT LONGEST", "HOLDER", "WHY", "BEHIND", "AGE")
        lines += ["", *_table([titles, *(_lane_row(each, status.cap) for each in status.lanes)]), ""]
    if status.unrouted:
        lines.append(f"{_capped(status.unrouted, status.cap)} unrouted: no destination subscribes to their topic")
    names = ", ".join(escaped(each.name) for each in status.replicas) or "none connected"
    return "\n".join([*lines, f"replicas: {names}"])


def _lane_row(lane: WaitingLane, cap: int) -> tuple[str, ...]:
    name = f"{lane.destination} {escaped(lane.entity_key)}"
    return (name, str(lane.holder), lane.why, _capped(lane.behind, cap), duration(lane.age_s))


def _status_row(each: DestinationStatus, cap: int) -> tuple[str, ...]:
    remarks = [
        f"paused: {escaped(each.paused_why)}" if each.paused_why else "",
        "retired" if each.retired else "",
        "" if each.registered else "not registered",
    ]
    oldest = "-" if each.oldest_due_age_s is None else f"{each.oldest_due_age_s:.1f}s"
    return (
        each.name, _capped(each.due, cap), oldest, _capped(each.later, cap), _capped(each.running, cap),
        _capped(each.blocked, 0 if each.blocked_more else cap), _capped(each.dead, cap),
        _capped(each.standing_lanes, cap), f"{each.done_per_s:.1f}", ", ".join(remark for remark in remarks if remark),
    )  # fmt: skip


def _capped(number: int, cap: int) -> str:
    return f"{number}+" if number >= cap else str(number)


def job_text(shown: Shown) -> str:
    """Why, then the row, the holder of its lane, and its failed attempts."""
    job = shown.job
    where = f"job {job.id} for {job.destination}" if job.destination else f"job {job.id}"
    lines = [click.style(escaped(f"{where}: {shown.why}"), bold=True), ""]
    lines += _table([(f"  {name}", escaped(str(value))) for name, value in _facts(job) if value is not None])
    if job.failures:
        head = ("  FAILED AT", "ATTEMPT", "REPLICA", "CLASS", "STATUS", "TOOK", "DETAIL", "TRACE")
        lines += ["", *_table([head, *(_attempt_row(each) for each in job.failures)]), *_answers(job.failures)]
    if shown.content is not None:
        lines += ["", *(f"  {name}: {escaped(value)}" for name, value in shown.content.headers.items())]
        lines.append(f"  {escaped(shown.content.text) if shown.content.text is not None else shown.content.base64}")
    return "\n".join(lines)


def _facts(job: JobState) -> list[tuple[str, object]]:
    holder = job.holder
    behind = "this job" if holder and holder.id == job.id else f"job {holder.id}, {holder.status}" if holder else None
    return [
        ("status", job.status),
        ("topic", job.topic),
        ("entity", job.entity_key),
        ("lane held by", behind),
        ("idempotency key", job.idempotency_key),
        ("attempts", job.attempts),
        ("claims", job.claims if job.claims != job.attempts else None),
        ("priority", job.priority),
        ("created", instant(job.created_at)),
        ("scheduled", instant(job.scheduled_at) if job.scheduled_at else None),
        ("due", instant(job.run_at) if job.status in {"pending", "blocked"} else None),
        ("finished", instant(job.finished_at) if job.finished_at else None),
        ("replica", job.locked_by),
        ("redriven", "yes" if job.redrive else None),
        ("body", f"{job.body_bytes} bytes of {job.content_type}"),
        ("traceparent", job.traceparent),
    ]


def _attempt_row(each: Attempt) -> tuple[str, ...]:
    return (
        f"  {instant(each.failed_at)}", str(each.attempt), escaped(each.replica), each.error_class,
        "-" if each.status is None else str(each.status), f"{each.duration_s:.2f}s", escaped(each.detail),
        each.trace_id or "-",
    )  # fmt: skip


def _answers(failures: Sequence[Attempt]) -> list[str]:
    """How the receiver's answers begin, each different one once, with the attempts that got it."""
    attempts: dict[str, list[str]] = {}
    for each in failures:
        if begins := escaped(each.response or "") or each.response_base64:
            attempts.setdefault(begins, []).append(str(each.attempt))
    return [line for text, to in attempts.items() for line in ("", f"  answer to {', '.join(to)}:", f"  {text}")]


def letters_text(letters: Sequence[Letter], *, limit: int) -> str:
    """The table of `relay dead list`."""
    head = ("ID", "DESTINATION", "TOPIC", "ENTITY", "DEAD SINCE", "ATTEMPTS", "BEHIND", "ERROR")
    lines = _table([head, *(_letter_row(each) for each in letters)]) if letters else []
    more = f"; --limit {10 * limit} may show more" if len(letters) == limit else ""
    return "\n".join([*lines, f"{len(letters)} dead letters{more}"])


def _letter_row(letter: Letter) -> tuple[str, ...]:
    return (
        str(letter.id), letter.destination or "-", letter.topic, escaped(letter.entity_key or "-"),
        instant(letter.finished_at), str(letter.attempts), _behind(letter.behind), escaped(letter.error or "-"),
    )  # fmt: skip


def _behind(number: int | None) -> str:
    return "-" if number is None else _capped(number, BEHIND_CAP)


def letter_text(opened: Opened) -> str:
    """As `relay job show` has it, and how many jobs wait behind it."""
    if opened.behind is None:
        return job_text(opened)
    return f"{job_text(opened)}\n\n  {_behind(opened.behind)} jobs of its entity wait behind it"


def report_text(report: Report) -> str:
    """What a bulk redrive or discard did, or would do, in one line."""
    done = {"redrive": "redriven", "discard": "discarded"}[report.verb]
    text = f"{report.matched} matched: {report.changed} {'would be ' if report.dry_run else ''}{done}"
    if report.destinations:
        text += f" ({_each(report.destinations)})"
    if report.marked:
        text += f", {report.marked} of them marked Relay-Redrive"
    return text + (f", {report.refused} refused" if report.refused else "")


def routed_text(routed: Routed) -> str:
    """What `relay route` did, or would do, in one line."""
    text = f"{routed.routed} {'would be ' if routed.dry_run else ''}routed"
    if routed.destinations:
        text += f" ({_each(routed.destinations)})"
    return f"{text}, {routed.unrouted} without a subscriber"


def _each(destinations: Mapping[str, int]) -> str:
    return ", ".join(f"{name} {jobs}" for name, jobs in sorted(destinations.items()))


def operations_text(operations: Sequence[Operation]) -> str:
    """The table of `relay operations`."""
    head = ("AT", "WHO", "VERB", "DESTINATION", "JOB", "DETAIL")
    return "\n".join(_table([head, *(_operation_row(each) for each in operations)]))


def _operation_row(each: Operation) -> tuple[str, ...]:
    detail = ", ".join(f"{name}: {value}" for name, value in sorted(each.detail.items()))
    return (
        instant(each.at), escaped(each.actor), each.verb, each.destination or "-",
        "-" if each.job_id is None else str(each.job_id), escaped(detail),
    )  # fmt: skip


def ping_text(pinged: "Pinged") -> str:
    """One line: what came back, and how soon."""
    took = f"{pinged.duration_s:.3f} s"
    if pinged.delivered:
        return click.style(f"{pinged.destination} accepts: {pinged.status} after {took}", fg="green")
    text = f"{pinged.destination} does not accept: {pinged.error_class}: {escaped(pinged.detail or '')} after {took}"
    return click.style(text, fg="red")


def _table(rows: Sequence[tuple[str, ...]]) -> list[str]:
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
