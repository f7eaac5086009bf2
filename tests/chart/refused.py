"""`make chart-test`: wrong values are refused by their path, contradictions with a sentence."""

from typing import Any

import pytest

from tests.chart.helm import Engine, RefusedError
from tests.chart.matrix import BILLING, DATABASE

Values = dict[str, Any]

WRONG: dict[str, Values] = {
    "replicas": {"replicas": 3},
    "replicaCount": {"replicaCount": "3"},
    "image.tag": {"image": {"tag": "latest"}},
    "image.repository": {"image": {"repository": "relay:1"}},
    "image.digest": {"image": {"digest": "0123"}},
    "database.password": {"database": {"password": "secret"}},
    "destinations.billing.deadlines_s": {"destinations": {"billing": BILLING | {"deadlines_s": 3}}},
    "destinations.billing.url": {"destinations": {"billing": {"url": "ftp://x"}}},
    "destinations.billing": {"destinations": {"billing": {"topics": ["*"]}}},
    "destinations.billing.secrets.0": {"destinations": {"billing": BILLING | {"secrets": ["whsec_abc"]}}},
    "destinations.billing.on_dead": {"destinations": {"billing": BILLING | {"on_dead": "stop"}}},
    "destinations.Billing": {"destinations": {"Billing": BILLING}},
    "config.replica.drain": {"config": {"replica": {"drain": 10}}},
    "config.replica.termination_grace_s": {"config": {"replica": {"termination_grace_s": 10}}},
    "config.replica.lease_s": {"config": {"replica": {"lease_s": "60s"}}},
    "config.destinations": {"config": {"destinations": {}}},
    "config.web.port": {"config": {"web": {"port": 1}}},
    "resources.limits": {"resources": {"limits": None}},
    # No drain is shorter than 5 s.
    "terminationGracePeriodSeconds": {"terminationGracePeriodSeconds": 15},
    "web.port": {"web": {"port": 0}},
    "serviceMonitor.interval": {"serviceMonitor": {"interval": "15"}},
    "podDisruptionBudget.maxUnavailable": {"podDisruptionBudget": {"maxUnavailable": "half"}},
    "extraFiles.0": {"extraFiles": ["secret"]},
    "sync.retire.0": {"sync": {"retire": ["Old Search"]}},
}

CONTRADICTORY: dict[str, Values] = {
    "no database: set database.existingSecret": {"database": {"existingSecret": ""}},
    "database.existingSecret and config.database.dsn are both set": {"config": {"database": {"dsn": "host=db"}}},
    "terminationGracePeriodSeconds, 34 s, must be at least config.replica.drain_s, 25 s, + 10 s": {
        "terminationGracePeriodSeconds": 34
    },
    "terminationGracePeriodSeconds, 65 s, must be at least config.replica.drain_s, 55.5 s, + 10 s": {
        "terminationGracePeriodSeconds": 65,
        "config": {"replica": {"drain_s": 55.5}},
    },
    "config.defaults.deadline_s, 15 s, + 5 s must be less than config.replica.drain_s, 20 s": {
        "config": {"replica": {"drain_s": 20}}
    },
    "config.defaults.deadline_s, 55 s, + 5 s must be less than config.replica.lease_s, 60 s": {
        "config": {"defaults": {"deadline_s": 55}, "replica": {"drain_s": 61}}
    },
    "destinations.billing.deadline_s, 20 s, + 5 s must be less than config.replica.drain_s, 25 s": {
        "destinations": {"billing": BILLING | {"deadline_s": 20}}
    },
    "autoscaling.minReplicas, 9, is more than autoscaling.maxReplicas, 8": {
        "autoscaling": {"enabled": True, "minReplicas": 9}
    },
    "autoscaling.enabled needs autoscaling.targetCPUUtilizationPercentage or autoscaling.metrics": {
        "autoscaling": {"enabled": True, "targetCPUUtilizationPercentage": None}
    },
    "serviceMonitor.enabled needs service.enabled": {
        "serviceMonitor": {"enabled": True},
        "service": {"enabled": False},
    },
}


@pytest.mark.parametrize("path", WRONG)
def test_a_wrong_value_is_refused_by_its_path(engine: Engine, path: str) -> None:
    with pytest.raises(RefusedError) as refused:
        engine.render(DATABASE | WRONG[path])
    text = str(refused.value)
    whole, (above, _, key) = path.replace(".", "/"), path.rpartition(".")
    assert f"'/{whole}'" in text or (f"at '{'/' * bool(above)}{above.replace('.', '/')}'" in text and key in text)


@pytest.mark.parametrize("sentence", CONTRADICTORY)
def test_a_contradiction_fails_the_render_with_a_sentence(engine: Engine, sentence: str) -> None:
    with pytest.raises(RefusedError) as refused:
        engine.render(DATABASE | CONTRADICTORY[sentence])
    assert sentence in str(refused.value)


def test_a_grace_period_that_is_just_long_enough_is_taken(engine: Engine) -> None:
    assert engine.render(DATABASE | {"terminationGracePeriodSeconds": 35})
