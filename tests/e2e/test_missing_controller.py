"""The preview refuses a kind of workload whose controller the cluster lacks, before anything is
made.
"""

import pytest

from infra.workloads import WORKLOADS, lws
from infra.workloads.kind import WorkloadKind
from sandbox.stack import PulumiFailedError
from tests.e2e.lab import NAMESPACE, Lab, run_settings
from tests.in_depth import in_depth

NEEDY = [kind for kind in WORKLOADS.values() if kind.otherwise]
EVERY = [in_depth(kind) if kind is lws.KIND else kind for kind in NEEDY]


@pytest.mark.parametrize("kind", EVERY, ids=lambda kind: kind.name)
def test_preview_says_which_controller_is_missing(lab: Lab, kind: WorkloadKind) -> None:
    settings = {"topology": kind.name, "pods": "2", "processesPerPod": "1"}
    stack = lab.stack("e2e-missing", "sandbox", {**run_settings("e2e-missing", 10), **settings})
    with pytest.raises(PulumiFailedError) as refused:
        stack.preview()
    said = " ".join(refused.value.args[0].split())  # the engine indents the lines
    assert f"nothing was made: - {kind.setting} cannot be used: {kind.otherwise}" in said
    assert NAMESPACE not in lab.kubectl("get", "namespaces", "-o", "name")
