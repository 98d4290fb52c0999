"""What pods need on further machines: the image and the storage. A run is told if it leaves
machines idle.
"""

import json
from dataclasses import replace
from pathlib import Path
from unittest.mock import patch

import pulumi
import pytest

from infra.deliveries import DELIVERIES
from infra.node.k3s_observation import K3sObservation
from tests.unit.platform.machines import FITTING, IMPORTED, THREE, TWO, before, deployed
from tests.unit.program.parts import everything_before, training_template, variables
from tests.unit.stacks import RecordingMonitor, deploy, raw_settings, run_with


def test_storage_that_pods_would_not_find_is_refused(tmp_path: Path) -> None:
    """A folder of the first machine is refused as storage if there are further machines, where pods
    would not find it.
    """
    with pytest.raises(pulumi.RunError, match="folder of the first machine"):
        deployed(tmp_path, TWO, storageOptions={})


def test_delivery_to_the_first_machine_alone_is_refused(tmp_path: Path) -> None:
    """A kind of image delivery that serves only the first machine is refused if there are further
    ones. A user may have registered such a kind.
    """
    kind = replace(DELIVERIES["import"], serves_further=False)
    with (
        patch.object(DELIVERIES, "_kinds", {"import": kind}),
        pytest.raises(pulumi.RunError, match="image only to the first machine"),
    ):
        deploy("dev", tmp_path, {**FITTING, "nodes": [TWO], **IMPORTED})


def test_image_is_imported_to_every_machine_that_has_joined(tmp_path: Path) -> None:
    """The image is imported to each machine by a command of its own, after all machines have
    joined. A machine that is added does not change the commands of the others, and the engine only
    forgets the command of a lost machine.
    """
    result = deployed(tmp_path, TWO, THREE, **IMPORTED)
    for name in ("gpu2", "gpu3"):
        ensure = result.one(f"image-ensure-{name}")
        first = everything_before(result, ensure)
        assert {"node-gpu2-k3s", "node-gpu3-k3s", "cluster-k3s"} <= first
        way = json.loads(ensure.inputs["environment"]["DISTTRAIN_NODE"])
        assert way["ssh"]["host"] == {"gpu2": "10.1.2.4", "gpu3": "10.1.2.5"}[name]
        assert ensure.inputs["create"] == result.one("image-ensure").inputs["create"]
        assert f"image-ensure-{name}" in before(result, "training-job")
    less = deployed(tmp_path, TWO, **IMPORTED)
    for name in ("image-ensure", "image-ensure-gpu2"):
        assert less.one(name).inputs == result.one(name).inputs
    gone = deployed(tmp_path, {**TWO, "gone": True}, **IMPORTED).one("image-ensure-gpu2")
    assert gone.request.retainOnDelete


def test_image_that_each_machine_would_build_is_refused(tmp_path: Path) -> None:
    """`imageBuildOn: node` is refused with further machines, because each of them would build the
    image.
    """
    with pytest.raises(pulumi.RunError, match="imageBuildOn: 'node' cannot be used: nodes lists"):
        deployed(tmp_path, TWO, imageBuildOn="node", **IMPORTED)


def test_run_that_leaves_machines_idle_is_told_how_to_use_them(tmp_path: Path) -> None:
    """A run with the setting `topology: single-pod` on several machines is told that it uses only
    one of them, and what to set. Nobody is told if there is one machine, if the others are lost, or
    if there is no run.
    """

    def notes(**changes: object) -> list[str]:
        said: list[str] = []
        with (
            patch(
                "infra.platform.further_machines.observe_k3s",
                lambda *_, **__: K3sObservation("repair-1", ""),
            ),
            patch("infra.preflight.pulumi.log.info", said.append),
        ):
            deploy("dev", tmp_path, {**FITTING, **changes})
        return said

    assert notes(nodes=[TWO, THREE]) == [
        "this run has one pod (topology: single-pod), so it trains on one machine, and the "
        "platform has 2 more. To train on all 3: set topology: indexed-job, pods: 3, and gpus to "
        "the GPUs of all of them (docs/one-to-many.md)"
    ]
    several = {"topology": "indexed-job", "pods": 2, "gpus": 2, "gpusPerPod": 1}
    gone = [{**TWO, "gone": True}]
    for changes in ({"nodes": []}, {"nodes": [TWO], **several}, {"nodes": gone}):
        assert notes(**changes) == []
    assert notes(nodes=[TWO], topology="none") == []


@pytest.mark.parametrize(
    ("nodes", "changes", "chosen", "said"),
    [
        ([TWO, THREE], {}, ("indexed-job", 3), ""),
        ([TWO, {**THREE, "gone": True}], {}, ("indexed-job", 2), ""),
        ([], {}, ("single-pod", 1), ""),
        ([TWO], {"topology": "single-pod"}, ("single-pod", 1), "the platform has 1 more"),
        ([TWO], {"topology": "multi-pod"}, ("multi-pod", 2), ""),
        ([], {"topology": "multi-pod", "gpusPerPod": 1}, ("multi-pod", 3), ""),
    ],
)
def test_run_elsewhere_knows_the_platforms_machines(
    tmp_path: Path,
    nodes: list[object],
    changes: dict[str, object],
    chosen: tuple[str, int],
    said: str,
) -> None:
    """A run on another stack's platform with `topology: auto` gets a pod on each machine of that
    platform that is not lost. The setting `nodes` is in the other stack, so the machines come from
    its outputs.
    """
    outputs = deployed(tmp_path, *nodes, gpus=6).outputs
    monitor, notes = RecordingMonitor(dict(outputs)), list[str]()
    with patch("infra.preflight.pulumi.log.info", notes.append):
        run_with(monitor, "multipod", raw_settings("multipod", {"topology": "auto", **changes}))
    pods = variables(training_template(monitor.deployment))["PET_NNODES"]
    assert (monitor.deployment.outputs["topology"], int(pods)) == chosen
    assert said in "".join(notes)
    assert bool(notes) is bool(said)
