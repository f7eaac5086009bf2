"""Whether Kubernetes would take an object, by its own strict schemas: unknown fields are refused."""

import json
from functools import cache
from importlib.resources import files
from typing import Any

from jsonschema import Draft202012Validator  # type: ignore[import-untyped]
from referencing import Registry, Resource

from tests.chart.crd import SCHEMAS
from tests.chart.helm import Manifest

VERSIONS = [f"1.{minor}" for minor in range(27, 38)]


def faults(manifest: Manifest, version: str) -> list[str]:
    """What this version of Kubernetes has against the object, with paths."""
    errors = _validator(manifest["apiVersion"], manifest["kind"], version).iter_errors(manifest)
    return [f"{error.json_path}: {error.message}" for error in errors]


@cache
def _validator(api: str, kind: str, version: str) -> Draft202012Validator:
    if kind in SCHEMAS:
        return Draft202012Validator(SCHEMAS[kind])
    group, _, number = api.rpartition("/")
    name = f"{kind.lower()}-{group.partition('.')[0]}-{number}" if group else f"{kind.lower()}-{number}"
    return Draft202012Validator(_read(version, name), registry=_definitions(version))


@cache
def _definitions(version: str) -> Registry[Any]:
    return Resource.from_contents(_read(version, "_definitions")) @ Registry()


def _read(version: str, name: str) -> Any:
    # The package's own `validate` reads megabytes of definitions for every object.
    folder = files("kubernetes_validate") / "kubernetes-json-schema" / f"v{version}.0-local-strict"
    return json.loads((folder / f"{name}.json").read_text())
