"""The values that the chart is rendered with, by what they show."""

from typing import Any

Values = dict[str, Any]

DATABASE: Values = {"database": {"existingSecret": "relay-database"}}
BILLING: Values = {
    "url": "https://billing.example/hooks",
    "topics": ["order.*"],
    "secrets": [{"secretKeyRef": {"name": "relay-billing", "key": "new"}}],
}
EVERY_MONITOR: Values = {
    "serviceMonitor": {"enabled": True, "labels": {"release": "prometheus"}},
    "podMonitor": {"enabled": True},
    "prometheusRule": {"enabled": True, "labels": {"release": "prometheus"}},
    "dashboard": {"enabled": True, "annotations": {"grafana_folder": "Relay"}},
}
BACKLOG: Values = {
    "type": "External",
    "external": {
        "metric": {"name": "relay_backlog_age_seconds"},
        "target": {"type": "Value", "value": "30"},
    },
}

# Every key of the chart that changes what is rendered, in some row.
MATRIX: dict[str, Values] = {
    "smallest": DATABASE,
    "one destination": DATABASE | {"destinations": {"billing": BILLING}},
    "database in the configuration": {"config": {"database": {"dsn": "postgresql://relay@db.example/app"}}},
    "rich destinations": {
        **DATABASE,
        "destinations": {
            "billing": BILLING
            | {
                "secrets": [
                    {"secretKeyRef": {"name": "relay-billing", "key": "new"}},
                    {"secretKeyRef": {"name": "relay-billing", "key": "old"}},
                ],
                "tls": {
                    "ca_file": {"configMapKeyRef": {"name": "company", "key": "ca.crt"}},
                    "client_certificate_file": {"secretKeyRef": {"name": "relay-client", "key": "tls.crt"}},
                    "client_key_file": {"secretKeyRef": {"name": "relay-client", "key": "tls.key"}},
                },
                "retry": {"max_attempts": 20, "cap_s": 3600},
                "rate_per_s": 50,
            },
            "search": {
                "url": "https://search.example/events",
                "topics": ["*"],
                "signed": False,
                "headers": {"Authorization": {"secretKeyRef": {"name": "relay-search", "key": "authorization"}}},
                "proxy": {"secretKeyRef": {"name": "relay-proxy", "key": "url"}},
                "on_dead": "skip",
                "egress": ["10.0.0.0/8"],
            },
        },
        "config": {
            "database": {
                "listen_dsn": {"secretKeyRef": {"name": "relay-database", "key": "listen"}},
                "prepared_statements": False,
            },
            "replica": {"lease_s": 120, "drain_s": 50, "poll_s": 0.5, "payload_budget_bytes": 1 << 30},
            "retention": {"done_s": 3600, "attempt_s": 86_400},
            "defaults": {"deadline_s": 30, "permanent_statuses": [400, 422]},
            "registry": {"generation": 7},
            "log": {"format": "json"},
        },
        "extraFiles": [{"secretKeyRef": {"name": "database-ca", "key": "ca.crt"}}],
    },
    "monitors": DATABASE | EVERY_MONITOR,
    "autoscaled by CPU": DATABASE | {"autoscaling": {"enabled": True}},
    "autoscaled by backlog": DATABASE
    | {
        "autoscaling": {
            "enabled": True,
            "targetCPUUtilizationPercentage": None,
            "metrics": [BACKLOG],
            "behavior": {"scaleDown": {"stabilizationWindowSeconds": 300}},
        }
    },
    "closed network": DATABASE
    | {
        "networkPolicy": {
            "enabled": True,
            "from": [{"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "monitoring"}}}],
            "databasePorts": [5432, 6432],
            "databaseTo": [{"ipBlock": {"cidr": "10.1.0.0/24"}}],
            "receiverTo": [{"ipBlock": {"cidr": "10.2.0.0/16"}}],
            "extraEgress": [{"ports": [{"port": 4318}]}],
        }
    },
    "open network": DATABASE | {"networkPolicy": {"enabled": True}},
    "setup by hand": DATABASE | {"migrate": {"enabled": False}, "sync": {"enabled": False}},
    "only migrate": DATABASE | {"migrate": {"existingSecret": "owner", "key": "uri"}, "sync": {"enabled": False}},
    "only sync": DATABASE | {"migrate": {"enabled": False}, "sync": {"retire": ["old-search"]}},
    "bare": DATABASE
    | {
        "service": {"enabled": False},
        "podDisruptionBudget": {"enabled": False},
        "serviceAccount": {"create": False, "name": "shared"},
        "topologySpreadConstraints": [],
        "restartOnConfigChange": False,
    },
    "own names and places": DATABASE
    | {
        "fullnameOverride": "outbox",
        "image": {"repository": "images.example:5000/relay", "digest": "sha256:" + "0" * 64, "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "pull"}],
        "commonLabels": {"team": "payments"},
        "commonAnnotations": {"owner": "payments@example"},
        "podLabels": {"zone": "inner"},
        "podAnnotations": {"reloader.stakater.com/auto": "true"},
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn:aws:iam::1:role/relay"}},
        "priorityClassName": "high",
        "nodeSelector": {"kubernetes.io/os": "linux"},
        "tolerations": [{"key": "dedicated", "operator": "Exists"}],
        "affinity": {"nodeAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": []}},
        "extraEnv": [{"name": "OTEL_EXPORTER_OTLP_ENDPOINT", "value": "http://collector:4318"}],
        "extraEnvFrom": [{"secretRef": {"name": "more"}}],
        "extraVolumes": [{"name": "scratch", "emptyDir": {}}],
        "extraVolumeMounts": [{"name": "scratch", "mountPath": "/scratch"}],
        "setup": {"annotations": {"argocd.argoproj.io/hook": "PreSync"}},
        "service": {"type": "LoadBalancer", "port": 80, "annotations": {"internal": "true"}},
        "podDisruptionBudget": {"maxUnavailable": "50%"},
        "strategy": {"type": "Recreate", "rollingUpdate": None},
        "terminationGracePeriodSeconds": 90,
        "web": {"host": "::", "port": 9090},
    },
}
