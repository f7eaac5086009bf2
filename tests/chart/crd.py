"""Schemas of the Prometheus operator's kinds, as far as the chart uses them (monitoring.coreos.com/v1)."""

from typing import Any

Schema = dict[str, Any]

_TEXT: Schema = {"type": "string"}
_DURATION: Schema = {
    "type": "string",
    "pattern": "^(0|(([0-9]+)y)?(([0-9]+)w)?(([0-9]+)d)?(([0-9]+)h)?(([0-9]+)m)?(([0-9]+)s)?(([0-9]+)ms)?)$",
}
_TEXTS: Schema = {"type": "object", "additionalProperties": _TEXT}


def _strict(required: list[str], **properties: Schema) -> Schema:
    return {"type": "object", "additionalProperties": False, "required": required, "properties": properties}


def _list(items: Schema) -> Schema:
    return {"type": "array", "minItems": 1, "items": items}


def _kind(kind: str, spec: Schema) -> Schema:
    metadata = _strict(["name"], name=_TEXT, namespace=_TEXT, labels=_TEXTS, annotations=_TEXTS)
    version = {"const": "monitoring.coreos.com/v1"}
    required = ["apiVersion", "kind", "metadata", "spec"]
    return _strict(required, apiVersion=version, kind={"const": kind}, metadata=metadata, spec=spec)


def _monitor(kind: str, endpoints: str) -> Schema:
    relabelings = _list({"type": "object"})
    endpoint = _strict(
        ["port"],
        port=_TEXT,
        path=_TEXT,
        interval=_DURATION,
        scrapeTimeout=_DURATION,
        relabelings=relabelings,
        metricRelabelings=relabelings,
    )
    selector = _strict(["matchLabels"], matchLabels=_TEXTS)
    namespaces = _strict([], matchNames=_list(_TEXT), any={"type": "boolean"})
    spec: Schema = {endpoints: _list(endpoint), "selector": selector, "namespaceSelector": namespaces}
    return _kind(kind, _strict([endpoints, "selector"], **spec))


_RULE: Schema = {
    "anyOf": [{"required": ["alert"]}, {"required": ["record"]}],
    **_strict(
        ["expr"],
        alert=_TEXT,
        record=_TEXT,
        expr={"type": ["string", "integer"]},
        keep_firing_for=_DURATION,
        labels=_TEXTS,
        annotations=_TEXTS,
        **{"for": _DURATION},
    ),
}
_GROUP = _strict(["name", "rules"], name=_TEXT, interval=_DURATION, rules=_list(_RULE))

SCHEMAS: dict[str, Schema] = {
    "ServiceMonitor": _monitor("ServiceMonitor", "endpoints"),
    "PodMonitor": _monitor("PodMonitor", "podMetricsEndpoints"),
    "PrometheusRule": _kind("PrometheusRule", _strict(["groups"], groups=_list(_GROUP))),
}
