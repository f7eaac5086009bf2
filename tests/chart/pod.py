"""The pods of a render, wherever they stand in an object."""

from typing import Any

from tests.chart.helm import RELEASE, Manifest

Spec = dict[str, Any]


def one(rendered: list[Manifest], kind: str, name: str = RELEASE) -> Manifest:
    """The object of this kind and name; fails where there is none."""
    [found] = [each for each in rendered if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return found


def specs(rendered: list[Manifest]) -> dict[str, Spec]:
    """The pod of each object that has one, by the object's kind and name."""
    found = {}
    for each in rendered:
        spec = each.get("spec") or {}
        pod = spec if each["kind"] == "Pod" else spec.get("template", {}).get("spec")
        if pod:
            found[f"{each['kind']} {each['metadata']['name']}"] = dict(pod)
    return found


def containers(spec: Spec) -> list[Spec]:
    """Every container of a pod, those that run first included."""
    return [*spec.get("initContainers", []), *spec["containers"]]
