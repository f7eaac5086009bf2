"""docs/metrics.md says what the code does."""

from relay.telemetry.instruments import DISTRIBUTIONS, INSTRUMENTS
from tests.docs.pages import inline_code, table
from tests.metrics.test_counts import prometheus

PAGE = "docs/metrics.md"


def test_the_page_has_every_metric_with_its_kind_unit_and_labels_and_no_other() -> None:
    rows = [[inline_code(cell) or cell for cell in row[:-1]] for row in table(PAGE, "metric")]
    assert rows == [
        [
            [each.name],
            [prometheus(each.name, each.unit, each.kind)],
            each.kind,
            [each.unit] if each.unit else "–",
            [*each.labels] or "–",
        ]
        for each in (*INSTRUMENTS, *DISTRIBUTIONS)
    ]


def test_the_page_means_what_the_code_says() -> None:
    assert [row[-1] for row in table(PAGE, "metric")] == [each.meaning for each in (*INSTRUMENTS, *DISTRIBUTIONS)]


def test_labels_are_few_words_and_never_an_id_a_key_or_a_url() -> None:
    labels = {label for each in (*INSTRUMENTS, *DISTRIBUTIONS) for label in each.labels}
    assert labels == {"destination", "error_class", "loop", "reason", "version"}
