"""The user that runs the pods of a run, if a namespace demands a certain one (`podUser`)."""

from pathlib import Path
from typing import Any

import pulumi
import pytest
import yaml

from infra.kube.files.task_pod import TaskPod, pod_manifest
from tests.unit.program.parts import templates, training_template, variables
from tests.unit.stacks import Deployment, deploy

USER = 1000680000
OF_CLASS = {"storage": "storage-class", "storageOptions": {"className": "disks"}}


def of_commands(made: Deployment) -> dict[str, Any]:
    """Return the security context of a pod that a command of `./disttrain` starts."""
    placement = yaml.safe_load(str(made.outputs["podPlacement"]))
    pod = TaskPod("look", "me", "ml", "image:1", ("true",), "claim", 60, placement=placement)
    return pod_manifest(pod, "p")["spec"]["securityContext"]


def test_all_pods_have_the_user(tmp_path: Path) -> None:
    """The pods of the training, of the data set and of commands run as `podUser`. They get a name
    for this user, which the image does not know.
    """
    made = deploy("sandbox", tmp_path, {"podUser": USER, **OF_CLASS})
    assert len(templates(made)) == 2
    for template in templates(made):
        security = template["spec"]["securityContext"]
        assert (security["runAsUser"], security["runAsGroup"]) == (USER, USER)
        assert security["fsGroup"] == USER
        assert security["runAsNonRoot"] is True
        assert variables(template)["LOGNAME"] == "trainer"
    security = of_commands(made)
    assert (security["runAsUser"], security["runAsGroup"]) == (USER, USER)
    assert security["fsGroup"] == USER


def test_usual_user_changes_no_pod(tmp_path: Path) -> None:
    """Without `podUser`, pods have the usual user and no variable for its name. A variable more
    would change the pods of runs that are up.
    """
    made = deploy("sandbox", tmp_path)
    assert training_template(made)["spec"]["securityContext"]["runAsUser"] == 1000
    assert "LOGNAME" not in variables(training_template(made))
    assert of_commands(made)["runAsUser"] == 1000


@pytest.mark.parametrize(
    ("stack", "more"),
    [
        ("dev", {}),
        ("dev", {"topology": "none"}),
        ("dev", {"k3sExisting": "adopt", "gpuOperator": "false"}),
        ("multipod", {}),
    ],
)
def test_k3s_takes_no_other_user(tmp_path: Path, stack: str, more: dict[str, Any]) -> None:
    """Another `podUser` is refused on a k3s, together with the other problems of the settings."""
    with pytest.raises(pulumi.RunError) as refused:
        deploy(stack, tmp_path, {"podUser": 5000, "trainingTimeoutSeconds": 1, **more})
    user, timeout = str(refused.value).splitlines()[1:]
    assert user == (
        "  - podUser: 5000 cannot be used: the platform's cluster is a k3s (cluster: k3s), where "
        "the data belongs to user 1000 and no other one may write it. Remove it: "
        "`pulumi config rm podUser`."
    )
    assert timeout.startswith("  - trainingTimeoutSeconds: '1' cannot be used")
