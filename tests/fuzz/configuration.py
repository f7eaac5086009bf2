"""A configuration file and an environment: settings that work, or lines of file, key and reason without a secret."""

import json
import re
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from relay.config import Settings, load, warnings
from relay.config.environment import variables
from relay.errors import ConfigError
from relay.model import Job
from relay.rules.request import headers
from tests.fuzz.case import NASTY, SECRET, Check, came_to, texts

_EXAMPLE = (Path(__file__).parents[2] / "relay.example.yaml").read_text().replace("{ file: /run", "{ env: H } # {")
_SIGNING = "whsec_" + "QUJD" * 8
_ENVIRONMENT = {
    "RELAY_DATABASE_DSN": f"postgresql://u:{SECRET}@h/d",
    "H": f"Bearer {SECRET}",
    "S": _SIGNING,
    "BILLING_WEBHOOK_SECRET": _SIGNING,
}
_JOB = Job(1, "a", "t", "ключ", "k", "text/plain", b"", {"X-Row": "x"}, attempts=1, claims=1)
_PLACE = re.compile(r"(/\S+/relay\.yaml(:\d+)?|RELAY_\w*|configuration)(: .+)")

_numbers = st.one_of(st.sampled_from([0, -1, 1, 0.5, 1e400, -1e400, 10**30, float("nan")]), st.integers(), st.floats())
_reference = st.one_of(
    st.sampled_from([{"env": "S"}, {"env": "H"}, {"env": "NOPE"}, {"file": "/etc/hostname"}, {"file": "/dev/zero"}]),
    st.fixed_dictionaries({"env": texts}), st.fixed_dictionaries({"file": st.sampled_from(NASTY)}),
)  # fmt: skip
_scalar = st.one_of(st.none(), st.booleans(), _numbers, texts, _reference)
_any = st.recursive(
    _scalar, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3), max_leaves=5
)
_URLS = st.one_of(
    st.sampled_from(["https://a.example/hook", "http://127.0.0.1:9/", f"https://u:{SECRET}@a.example/"]),
    texts.map("https://{}".format), texts.map("http://a.example/{}".format), texts.map("https://a.example:{}/".format),
)  # fmt: skip
_RIGHT: dict[str, st.SearchStrategy[Any]] = {
    "topics": st.lists(st.sampled_from(["*", "order.*", "order.paid"]) | texts, max_size=3),
    "secrets": st.lists(_reference, max_size=2),
    "headers": st.dictionaries(st.sampled_from(["X-A", "x-a", "Authorization", "Host"]) | texts, _scalar, max_size=3),
    "proxy": st.sampled_from([None, {"env": "S"}, "http://proxy:3128", f"http://u:{SECRET}@proxy"]) | texts,
    "egress": st.sampled_from(["any", "public", ["10.0.0.0/8"]]) | st.lists(texts, max_size=2),
    "permanent_statuses": st.lists(_numbers, max_size=3),
    "on_dead": st.sampled_from(["block", "skip"]),
    "signed": st.booleans(),
    "retry": st.dictionaries(st.sampled_from(["max_attempts", "base_s", "factor", "cap_s", "jitter"]), _numbers),
    "tls": st.dictionaries(st.sampled_from(["ca_file", "client_key_file", "minimum_version"]), texts),
}


def _group(name: str) -> st.SearchStrategy[dict[str, Any]]:
    annotation = Settings.model_fields[name].annotation
    keys = st.sampled_from(sorted(getattr(annotation, "model_fields", {"x": None})))
    return st.dictionaries(keys | texts, _scalar, max_size=3)


_destination = st.fixed_dictionaries({"url": _URLS}, optional={**_RIGHT, "deadline_s": _numbers, "nonsense": _any})
_unsigned = {"url": st.just("https://a.example/"), "signed": st.sampled_from([False])}
_simple = st.one_of(
    st.fixed_dictionaries({**_unsigned, "url": _URLS}, optional={"nonsense": _any}),
    *(st.fixed_dictionaries({**_unsigned, key: strategy}) for key, strategy in _RIGHT.items()),
)
_tree = st.fixed_dictionaries(
    {"destinations": st.dictionaries(st.sampled_from(["a", "b-1"]), _destination, max_size=2)},
    optional={
        **{name: _group(name) | _any for name in sorted(Settings.model_fields.keys() - {"destinations"})},
        "defaults": st.fixed_dictionaries({}, optional=_RIGHT) | _any,
    },
)


@st.composite
def _mangled(draw: st.DrawFn) -> bytes:
    """The example with some of it replaced."""
    text = _EXAMPLE[draw(st.sampled_from([0, 0, 200])) :]
    for _ in range(draw(st.integers(1, 4))):
        place = draw(st.integers(0, len(text)))
        text = text[:place] + draw(texts) + text[place + draw(st.sampled_from([0, 1, 5, 40])) :]
    return text.encode("utf-8", "surrogatepass")


_few = st.fixed_dictionaries({"destinations": st.dictionaries(st.just("a"), _simple, min_size=1) | _any})
_file = st.one_of(
    _few.map(lambda tree: json.dumps(tree).encode("utf-8", "surrogatepass")),
    _tree.map(lambda tree: json.dumps(tree).encode("utf-8", "surrogatepass")),
    _mangled(),
    st.binary(max_size=60),
)
_variables = st.dictionaries(
    st.sampled_from(sorted(variables(Settings))) | st.from_regex(r"RELAY_[A-Z_]{1,12}", fullmatch=True),
    st.one_of(texts, _any.map(json.dumps)).filter(lambda text: "\0" not in text),
    max_size=3,
)


@contextmanager
def opened() -> Iterator[Check]:
    """A folder for the file."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "relay.yaml"

        @given(_file, st.just({}) | _variables)
        def check(content: bytes, environment: Mapping[str, str]) -> None:
            file.write_bytes(content)
            try:
                _use(load(file, {**_ENVIRONMENT, **environment}))
            except ConfigError as error:
                came_to("refused")
                _explained(str(error))
            else:
                came_to("loaded")

        yield check


def _use(settings: Settings) -> None:
    """All that a replica asks of settings before its first job."""
    said = [repr(settings), str(settings), *warnings(settings)]
    for destination in settings.resolved_destinations():
        said.append(repr(destination))
        headers(_JOB, destination, 1)
    with suppress(ConfigError):
        settings.resolved_tokens()
    said += settings.broken_destinations().values()
    assert not any(SECRET in text for text in said)


def _explained(text: str) -> None:
    """Each line names the place and the reason, and shows no secret."""
    assert SECRET not in text
    text.encode()
    for line in text.split("\n"):
        assert _PLACE.fullmatch(line), line
