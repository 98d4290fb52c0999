"""A kind of workload whose controller is not in the cluster is refused before anything is made."""

import pytest

from infra.workloads.jobset import OTHERWISE
from sandbox.stack import PulumiFailedError
from tests.e2e.lab import NAMESPACE, Lab, run_settings


def test_preview_says_which_controller_is_missing(lab: Lab) -> None:
    settings = {"topology": "jobset", "pods": "2", "processesPerPod": "1"}
    stack = lab.stack("e2e-missing", "sandbox", {**run_settings("e2e-missing", 10), **settings})
    with pytest.raises(PulumiFailedError) as refused:
        stack.preview()
    said = " ".join(refused.value.args[0].split())  # the engine indents the lines
    assert f"nothing was made: - {OTHERWISE}" in said
    assert NAMESPACE not in lab.kubectl("get", "namespaces", "-o", "name")
