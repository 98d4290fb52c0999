"""Runs of `trainjob` under older versions of Kubeflow Trainer, which users' clusters may have.

The real controllers of each version carry out the runs, with the JobSet that the version needs. The
tests are those of test_engines.py for the pinned versions. `make test-engines` runs this file.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from sandbox.controllers import CONTROLLERS
from sandbox.controllers.controller import start_controller
from sandbox.controllers.older import OLDER_TRAINERS
from sandbox.stack import Stack
from sandbox.toolchain import tool_folder
from tests.e2e import test_engines as promises
from tests.e2e.engines import TRAINJOB
from tests.e2e.lab import Lab

# `multi-pod` comes first, because the configurations of the others are compared with that of its
# ranks.
PLACES = [("multi-pod", 2, 2), *(("trainjob", *shape) for shape in promises.SHAPES)]

reference = promises.reference
probing = promises.probing


@pytest.fixture(scope="module", params=list(OLDER_TRAINERS))
def version(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture(scope="module")
def served(lab: Lab, version: str) -> Iterator[Lab]:
    """Yield the lab with the controllers of this version alone, and without runs of another
    version.
    """
    with promises.only_meanwhile(lab, OLDER_TRAINERS[version]):
        yield lab
    # The next version's runs have the same names, and would be finished before they begin.
    shutil.rmtree(lab.cluster.data_root / "runs", ignore_errors=True)


@pytest.fixture(scope="module")
def stack(served: Lab, version: str) -> Iterator[Stack]:
    name = f"e2e-trainer-{version.replace('.', '-')}"
    with promises.stack_of(served, name, [promises.JOBSET, TRAINJOB]) as made:
        yield made


@pytest.fixture(scope="module")
def configs(version: str) -> dict[str, Any]:
    """Return a dictionary for each version, so that all its runs are compared (test_engines.py)."""
    assert version
    return {}


def test_programs_are_of_this_version(served: Lab, version: str) -> None:
    """The controllers that run are those of this version.

    The pinned version is neither started beside them nor taken for them.
    """
    node = served.cluster.node(1)
    for controller in OLDER_TRAINERS[version]:
        program = node.program(controller.name)
        assert program is not None
        assert Path(program).parent == tool_folder(controller.tool)
    with pytest.raises(RuntimeError, match=f"version {version} of it runs in cluster"):
        start_controller(served.cluster, CONTROLLERS["trainer"])


def test_definition_knows_every_field(served: Lab, tmp_path: Path) -> None:
    """This version's definitions know every field of our objects, and its webhooks accept the
    objects.
    """
    promises.test_definition_of_the_controller_knows_every_field(served, TRAINJOB, tmp_path)


@pytest.mark.parametrize(("topology", "pods", "per_pod"), PLACES)
def test_each_rank_is_in_place(
    served: Lab,
    probing: Stack,
    configs: dict[str, Any],
    topology: str,
    pods: int,
    per_pod: int,
) -> None:
    """Each rank finds in its pod what it should, in each shape of the run.

    Each `up` changes the number of pods.
    """
    promises.test_each_rank_is_where_it_should_be(served, probing, configs, topology, pods, per_pod)


def test_lost_pod_changes_no_weights(served: Lab, stack: Stack, reference: dict[str, str]) -> None:
    """A run that loses a pod ends with the same weights, and a second `up` changes nothing."""
    promises.test_lost_pod_starts_the_ranks_again_and_the_weights_are_the_same(
        served, stack, reference, TRAINJOB
    )


def test_plain_torchrun_has_same_weights(served: Lab, reference: dict[str, str]) -> None:
    """Plain torchrun on this machine ends with the same weights as the pods."""
    promises.test_plain_torchrun_ends_with_the_same_bits(served, reference)


def test_evicted_pod_restarts_all_pods(served: Lab, stack: Stack) -> None:
    """If a pod is evicted, all pods are made anew, and no step is lost or made twice."""
    promises.test_evicted_pod_starts_all_pods_anew(served, stack, TRAINJOB)


def test_stopped_run_goes_on_elsewhere(served: Lab, stack: Stack) -> None:
    """A run can be stopped, resumed, and given to another kind of workload, and loses no step."""
    promises.test_stopped_run_goes_on_where_it_was_and_hands_over(served, stack, TRAINJOB)


def test_fatal_error_ends_without_retry(served: Lab, stack: Stack) -> None:
    """A fatal error fails the workload without a retry."""
    promises.test_fatal_error_fails_the_workload_without_a_retry(served, stack, TRAINJOB)
