"""What users of Kubeflow's Python library see of a run of `trainjob`; the library itself is asked.

`make test-engines` runs this file.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.workloads import trainjob
from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import running
from sandbox.stack import Stack
from sandbox.venvs import ensure_venv
from tests.e2e.asking import people_run, training_pods
from tests.e2e.lab import ENDLESS, NAMESPACE, Lab, run_settings, wait_for

pytestmark = pytest.mark.in_order

RUN, NAME, PODS = "e2e-kubeflow", trainjob.KIND.object_name, 2
PROGRAM = Path(__file__).with_name("kubeflow_client.py")


@pytest.fixture(scope="module")
def stack(lab: Lab) -> Iterator[Stack]:
    with running(lab.cluster, [CONTROLLERS[name] for name in ("jobset", "trainer")]):
        settings = {"topology": "trainjob", "pods": str(PODS), "processesPerPod": "1"}
        made = lab.stack(RUN, "sandbox", {**run_settings(RUN, ENDLESS), **settings})
        made.up()
        yield made
        made.destroy()


def seen(lab: Lab) -> dict[str, Any]:
    """Return what kubeflow_client.py prints of the run's TrainJob."""
    python = ensure_venv(".venv-kubeflow") / "bin" / "python"
    words = [python, PROGRAM, lab.cluster.kubeconfig, NAMESPACE, NAME]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_library_knows_pods_and_log(lab: Lab, stack: Stack) -> None:
    """Kubeflow's library can read our TrainJob, with its pods as steps, their status, and the log.

    If it could not, its `list_jobs` would fail for everybody in the namespace.
    """
    found = seen(lab)
    assert found["jobs"] == [NAME]
    assert (found["status"], found["nodes"]) == ("Running", PODS)
    pods = dict(found["pods"].values())
    assert {f"pod/{name}" for name in pods} == set(training_pods(lab, stack))
    assert set(found["pods"]) == {f"node-{index}" for index in range(PODS)}
    assert set(pods.values()) == {"Running"}
    assert any(line.startswith("step ") for line in found["log"])


def test_library_sees_the_end(lab: Lab, stack: Stack) -> None:
    """The library calls a finished run `Complete`."""
    people_run(lab, stack, f"./disttrain stop --stack {stack.name}")
    stack.set("run.train.max_steps", str(max(lab.losses(RUN)) + 5))
    stack.up()
    lab.wait_done(RUN)
    wait_for("the end as the library sees it", lambda: seen(lab)["status"] == "Complete", 120)
