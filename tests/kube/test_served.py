"""Whether a cluster serves what a setting needs, asked of a real API server."""

from infra.monitoring.objects import GROUP_VERSION
from infra.platform.monitoring import OTHERWISE
from tests.crds import definition
from tests.kube.lab import Lab, Run, wait_for

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "podmonitors.monitoring.coreos.com"


def look(lab: Lab, kind: str = "PodMonitor") -> tuple[int, str]:
    needs = {"group_version": GROUP_VERSION, "served_kind": kind, "otherwise": OTHERWISE}
    return lab.run("served", "create", {**Run(lab, "any", "dev").job(), **needs})


def test_setting_is_refused_until_the_operator_is_there(lab: Lab) -> None:
    status, output = look(lab)
    assert status == 1, output
    assert "monitoring: 'existing' cannot be used: the cluster serves no" in output
    assert "pulumi config set monitoring none" in output
    lab.api.create(DEFINITIONS, definition(NAME, "PodMonitor"))
    try:
        wait_for("the operator's kinds", lambda: look(lab) == (0, ""))
        status, output = look(lab, "PrometheusRule")  # of the same group, which is served now
        assert (status, OTHERWISE in output) == (1, True), output
    finally:
        lab.api.delete(f"{DEFINITIONS}/{NAME}", {})
