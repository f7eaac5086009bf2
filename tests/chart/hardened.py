"""`make chart-test`: what every pod of the chart keeps to, whatever the values."""

from collections.abc import Iterator

import pytest

from tests.chart.helm import Helm4
from tests.chart.matrix import MATRIX
from tests.chart.pod import Spec, containers, one, specs

PODS = {f"{row}: {name}": pod for row, values in MATRIX.items() for name, pod in specs(Helm4().render(values)).items()}
CONTAINERS = {f"{name}: {each['name']}": each for name, pod in PODS.items() for each in containers(pod)}
every_pod = pytest.mark.parametrize("pod", PODS.values(), ids=PODS)
every_container = pytest.mark.parametrize("container", CONTAINERS.values(), ids=CONTAINERS)


@every_pod
def test_a_pod_does_not_run_as_root(pod: Spec) -> None:
    context = pod["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["runAsUser"] > 0
    assert context["runAsGroup"] > 0


@every_pod
def test_a_pod_has_no_token_and_nothing_of_its_node(pod: Spec) -> None:
    assert pod["automountServiceAccountToken"] is False
    assert {"hostNetwork", "hostPID", "hostIPC"}.isdisjoint(pod)
    assert [each for each in pod["volumes"] if "hostPath" in each] == []
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}


@every_pod
def test_a_pods_files_are_not_for_everybody(pod: Spec) -> None:
    modes = [each["projected"]["defaultMode"] for each in pod["volumes"] if "projected" in each]
    assert [mode for mode in modes if mode != 0o440] == []


@every_container
def test_a_container_is_of_the_restricted_profile_on_a_file_system_that_it_cannot_write(container: Spec) -> None:
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }


@every_container
def test_a_containers_image_is_of_one_version(container: Spec) -> None:
    name = container["image"].rpartition("/")[2]
    assert ":" in name
    assert not name.endswith(":latest")


@every_container
def test_a_container_has_requests_and_limits(container: Spec) -> None:
    for amounts in (container["resources"]["requests"], container["resources"]["limits"]):
        assert amounts.keys() >= {"cpu", "memory"}


def _secrets_in_environment() -> Iterator[str]:
    for container in CONTAINERS.values():
        for variable in container["env"]:
            if "valueFrom" in variable:
                yield variable["name"]


def test_no_secret_is_in_the_environment_but_the_owners_connection_string() -> None:
    assert set(_secrets_in_environment()) == {"RELAY_DATABASE_DSN"}


@pytest.mark.parametrize("row", MATRIX)
def test_selectors_match_the_replicas_and_nothing_else(row: str) -> None:
    rendered = Helm4().render(MATRIX[row])
    deployment = next(each for each in rendered if each["kind"] == "Deployment")
    selector = deployment["spec"]["selector"]["matchLabels"]
    assert selector.items() <= deployment["spec"]["template"]["metadata"]["labels"].items()
    for kind in ("Service", "PodDisruptionBudget", "ServiceMonitor", "PodMonitor"):
        for each in (each for each in rendered if each["kind"] == kind):
            matched = each["spec"]["selector"]
            assert matched.get("matchLabels", matched) == selector
    for each in rendered:
        labels = each["spec"]["template"]["metadata"]["labels"] if each["kind"] == "Job" else {}
        assert not selector.items() <= labels.items()


def test_the_network_policy_selects_every_pod() -> None:
    rendered = Helm4().render(MATRIX["open network"])
    selector = one(rendered, "NetworkPolicy")["spec"]["podSelector"]["matchLabels"]
    replica = one(rendered, "Deployment")["spec"]["template"]["metadata"]["labels"]
    setup = one(rendered, "Job", "relay-setup")["spec"]["template"]["metadata"]["labels"]
    assert selector.items() <= replica.items()
    assert selector.items() <= setup.items()
