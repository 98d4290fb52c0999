"""Whether a cluster serves the kinds that a setting needs, asked of a real API server."""

from infra.kube.runs.pods_findings import RunPods, pods_findings
from infra.monitoring.objects import GROUP_VERSION
from infra.platform.monitoring import OTHERWISE, SETTING
from tests.crds import definition
from tests.kube.lab import Lab, Run, wait_for
from tests.kube.pool import pod

DEFINITIONS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
NAME = "podmonitors.monitoring.coreos.com"


def look(lab: Lab, kind: str = "PodMonitor") -> tuple[int, str]:
    """Run the task `served` for a kind of the Prometheus operator; return its exit status and
    output.
    """
    needs = {"group_version": GROUP_VERSION, "served_kind": kind}
    needs |= {"setting": SETTING, "otherwise": OTHERWISE}
    return lab.run("served", "create", {**Run(lab, "any", "dev").job(), **needs})


def test_setting_is_refused_until_the_operator_is_there(lab: Lab) -> None:
    status, output = look(lab)
    assert status == 1, output
    assert "monitoring: 'existing' cannot be used: the cluster serves no" in output
    assert "pulumi config set monitoring none" in output
    lab.api.create(DEFINITIONS, definition(NAME, "PodMonitor"))
    try:
        wait_for("the operator's kinds", lambda: look(lab) == (0, ""))
        status, output = look(lab, "PrometheusRule")  # another kind of the group that is served now
        assert (status, OTHERWISE in output) == (1, True), output
    finally:
        lab.api.delete(f"{DEFINITIONS}/{NAME}", {})


def test_version_that_nobody_knows_is_named(lab: Lab) -> None:
    """If a cluster serves a kind only in another version than this program's, the version is named.

    To say that the kind is missing would make people install its controller a second time.
    """
    group, kind = "engine.example.org", "Gang"
    path = f"{DEFINITIONS}/gangs.{group}"
    lab.api.create(DEFINITIONS, definition(f"gangs.{group}", kind))  # of version v1
    setting, otherwise = "topology: 'gang'", f"the cluster serves no {kind}"
    needs = {"served_kind": kind, "setting": setting, "otherwise": otherwise}
    job = {**Run(lab, "any", "dev").job(), **needs}
    try:
        wait_for("the kind", lambda: lab.api.get(f"/apis/{group}/v1") is not None)
        assert lab.run("served", "create", {**job, "group_version": f"{group}/v1"}) == (0, "")
        wanted = f"{group}/v1alpha9"
        status, output = lab.run("served", "create", {**job, "group_version": wanted})
        said = f"the cluster serves {kind} of {group} as v1, and this program only knows v1alpha9"
        assert (status, said in output) == (1, True), output
        assert f"topology: 'gang' cannot be used: {said}" in output
        status, output = lab.run("served", "create", {**job, "group_version": "no.example.org/v1"})
        refused = f"topology: 'gang' cannot be used: the cluster serves no {kind}"
        assert (status, refused in output) == (1, True), output
        run = RunPods(
            lab.namespace(),
            pod({"cpu": "100m"}, {}),
            1,
            grows=False,
            workload=(wanted, kind),
            setting=setting,
            otherwise=otherwise,
        )
        assert any(said in problem for problem in pods_findings(lab.api, run).problems)
    finally:
        lab.api.delete(path, {})
