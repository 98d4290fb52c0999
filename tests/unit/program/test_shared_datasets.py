"""What the program asks the cluster about the names of data sets, before it registers anything."""

from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pulumi
import pytest

from infra.kube.api_server.access import Access
from infra.kube.api_server.findings import Findings
from infra.kube.runs.dataset_findings import DatasetUse
from tests.unit.stacks import deploy, outputs_of

ASKED = list[tuple[Access, DatasetUse]]


@pytest.fixture
def asked() -> Iterator[ASKED]:
    """Yield a list of what the program asks a k3s, which answers that the name is taken."""
    found: ASKED = []

    def answer(access: Access, use: DatasetUse) -> Findings:
        found.append((access, use))
        return Findings(problems=["datasetName: taken"])

    with patch("tests.unit.stacks.DATASET", answer):
        yield found


def test_run_on_the_k3s_of_another_stack_is_refused(tmp_path: Path, asked: ASKED) -> None:
    """The run on another stack's k3s is refused before anything is registered (`deploy` checks
    it), so also by `pulumi preview`.
    """
    with pytest.raises(pulumi.RunError, match="nothing was made:\n  - datasetName: taken"):
        deploy("multipod", tmp_path)
    ((access, use),) = asked
    assert access.kubeconfig
    assert (use.namespace, use.claim, use.owner) == ("disttrain", "disttrain-pvc", "")
    assert use.dataset["name"] == "shakespeare-char"


def test_later_up_on_an_own_k3s_is_refused(tmp_path: Path, asked: ASKED) -> None:
    """The stack of the platform may change its data while runs of others are on its k3s. Its first
    `up` makes the k3s, so nobody can be there.
    """
    first = deploy("dev", tmp_path)
    assert asked == []
    first.one("cluster-provider").inputs["kubeconfig"] = "clusters:\n- name: c\n"
    with pytest.raises(pulumi.RunError, match="datasetName: taken"):
        deploy("dev", tmp_path, before=first)
    ((access, use),) = asked
    assert access.kubeconfig.startswith("clusters:")
    assert (use.claim, use.owner != "") == ("disttrain-pvc", True)


@pytest.mark.parametrize("stack", ["sandbox", "sandbox-multipod"])
def test_cluster_of_others_is_asked_with_the_rest(stack: str, tmp_path: Path) -> None:
    """On a cluster of others, the question is one of those that `ask` has."""
    uses: list[DatasetUse] = []

    def ask(*given: object) -> Findings:
        uses.extend(each for each in given if isinstance(each, DatasetUse))
        return Findings()

    outputs_of("sandbox")  # They are made now, and so without a question that would count here.
    with patch("tests.unit.stacks.ANSWER", ask):
        deploy(stack, tmp_path)
    (use,) = uses
    assert use.dataset["name"] == "shakespeare-char"


def test_program_of_the_user_has_no_data_set(tmp_path: Path, asked: ASKED) -> None:
    deploy("multipod", tmp_path, {"program": {"command": ["true"]}})
    assert asked == []
