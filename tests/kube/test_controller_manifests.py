"""Controllers that are installed by manifests, checked with the files of their projects' own
modules.
"""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.controllers import CONTROLLERS, lws, training_operator
from infra.controllers.kind import PinnedManifests
from infra.controllers.manifests import OF_THE_CLUSTER, objects_of, parsed
from infra.kube.controllers.programs_of_runs import ALL, is_of
from infra.platform.controllers import controller_for_tasks
from sandbox.toolchain import bin_dir, tool_folder
from tests.kube.published import (
    TOOLS,
    pinned_files,
    published_file,
    published_images,
    published_texts,
)

Json = dict[str, Any]
EVERY = pytest.mark.parametrize("name", list(TOOLS))
IMAGES = {
    "mpi-operator": {"mpioperator/mpi-operator:0.8.2"},
    "training-operator": {"ghcr.io/kubeflow/training-v1/training-operator:v1-93c5489"},
    "trainer": {"ghcr.io/kubeflow/trainer/trainer-controller-manager:v2.3.0"},
    "lws": {"registry.k8s.io/lws/lws:v0.9.0"},
    "volcano": {
        f"docker.io/volcanosh/vc-{part}:v1.14.0"
        for part in ("controller-manager", "scheduler", "webhook-manager")
    },
}


PROGRAMS = {
    "mpi-operator": {"mpi-operator": "Kubeflow's MPI Operator"},
    "training-operator": {"training-operator": "Kubeflow's Training Operator"},
    "trainer": {"kubeflow-trainer-controller-manager": "Kubeflow Trainer"},
    "lws": {"lws-controller-manager": "LeaderWorkerSet's controller"},
    "volcano": {
        "volcano-controllers": "Volcano's controller",
        "volcano-scheduler": "Volcano's scheduler",
    },
}


def test_every_controller_by_manifests_is_looked_at() -> None:
    assert TOOLS.keys() == {name for name, kind in CONTROLLERS.items() if kind.files}


@EVERY
def test_pinned_checksums_are_those_of_the_module(name: str) -> None:
    """The pinned checksum of each manifest is that of the file in the project's Go module.

    Go's checksum database vouches for the module, so the manifest is the one that the project
    published.
    """
    for file in pinned_files(name):
        content = published_file(name, file).read_bytes()
        assert hashlib.sha256(content).hexdigest() == file.sha256, file.address


@EVERY
def test_programs_that_runs_need_are_found_by_their_labels(name: str) -> None:
    """`./disttrain status` and `doctor` find each controller by the labels that its project
    publishes, and take no Deployment for another one.
    """
    made = objects_of(CONTROLLERS[name], published_texts(name))
    deployments = [item for item in made if item["kind"] == "Deployment"]
    found = [
        (item["metadata"]["name"], p.title) for item in deployments for p in ALL if is_of(p, item)
    ]
    assert dict(found) == PROGRAMS[name]
    assert len(found) == len(PROGRAMS[name])


@EVERY
def test_objects_lie_in_the_controllers_own_namespace(name: str) -> None:
    """Every object of a controller is cluster-wide or in the controller's own namespace.

    So removing the controller removes all of them, and nothing that others have in other
    namespaces. The definitions and images of the manifests are those that this program expects.
    """
    kind = CONTROLLERS[name]
    made = objects_of(kind, published_texts(name))
    for item in made:
        about = item["metadata"]
        inside = None if item["kind"] in OF_THE_CLUSTER else kind.namespace
        assert about.get("namespace") == inside, (item["kind"], about["name"])
        for subject in item.get("subjects", ()):
            assert subject.get("namespace") in (None, kind.namespace)
        for hook in item.get("webhooks", ()):
            assert hook["clientConfig"]["service"]["namespace"] == kind.namespace
    defined = {
        each["metadata"]["name"] for each in made if each["kind"] == "CustomResourceDefinition"
    }
    assert defined == set(controller_for_tasks(kind).definitions)
    assert published_images(name) == IMAGES[name]
    assert len({(each["kind"], each["metadata"]["name"]) for each in made}) == len(made)


def kustomized(overlay: Path) -> dict[tuple[str, str], Json]:
    """Return what `kubectl kustomize` makes of an overlay, by kinds and names."""
    done = subprocess.run(
        [bin_dir() / "kubectl", "kustomize", str(overlay)],
        capture_output=True,
        text=True,
        check=True,
    )
    return by_name(parsed([done.stdout]))


def by_name(objects: list[Json]) -> dict[tuple[str, str], Json]:
    """Return the objects by their kinds and names."""
    return {(item["kind"], item["metadata"]["name"]): item for item in objects}


def of_trainer(overlay: Path) -> dict[tuple[str, str], Json]:
    """Return the overlay of Kubeflow Trainer without JobSet, which is a controller of its own here.

    The overlay's file itself names the line that has to go in that case.
    """
    file = overlay / "kustomization.yaml"
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if "third-party/jobset" not in line))
    return kustomized(overlay)


def of_training_operator(overlay: Path) -> dict[tuple[str, str], Json]:
    """Return the overlay of the training operator for PyTorchJobs alone, in its own namespace."""
    file = overlay / "kustomization.yaml"
    file.write_text(file.read_text().replace("namespace: kubeflow", "namespace: training-operator"))
    found = kustomized(overlay)
    others = ("jaxjobs", "mpijobs", "paddlejobs", "tfjobs", "xgboostjobs")
    for plural in others:
        del found["CustomResourceDefinition", f"{plural}.kubeflow.org"]
    hooks = found["ValidatingWebhookConfiguration", "validator.training-operator.kubeflow.org"]
    hooks["webhooks"] = [hook for hook in hooks["webhooks"] if "pytorchjob" in hook["name"]]
    (container,) = found["Deployment", "training-operator"]["spec"]["template"]["spec"][
        "containers"
    ]
    container["args"] = training_operator.SERVED
    return found


def of_lws(overlay: Path) -> dict[tuple[str, str], Json]:
    """Return the overlay of LWS with one pod, smaller requests, and the image of the release."""
    found = kustomized(overlay)
    spec = found["Deployment", "lws-controller-manager"]["spec"]
    (container,) = spec["template"]["spec"]["containers"]
    assert (spec["replicas"], "staging" in container["image"]) == (2, True)
    spec["replicas"] = 1
    container |= {"image": lws.IMAGE, "resources": {"requests": lws.REQUESTS}}
    return found


@pytest.mark.parametrize(
    ("name", "overlay", "expect"),
    [
        ("trainer", "manifests/overlays/manager", of_trainer),
        ("training-operator", "manifests/overlays/standalone", of_training_operator),
        ("lws", "config/default", of_lws),
    ],
)
def test_objects_are_those_that_kustomize_makes_of_the_overlay(
    name: str,
    overlay: str,
    expect: Callable[[Path], dict[tuple[str, str], Json]],
    tmp_path: Path,
) -> None:
    """This program installs the objects of the project's overlay, but for a few wanted differences.

    The file of the controller in `infra/controllers` names these differences.
    """
    (tool,) = TOOLS[name].programs  # a folder
    shutil.copytree(tool_folder(TOOLS[name]) / tool, tmp_path / tool)
    expected = expect(tmp_path / overlay)
    source = CONTROLLERS[name].source
    assert isinstance(source, PinnedManifests)
    made = by_name(source.change(parsed(published_texts(name))))
    made, expected = (  # the platform makes the namespace
        {key: value for key, value in found.items() if key[0] != "Namespace"}
        for found in (made, expected)
    )
    assert made.keys() == expected.keys()
    for key in made:
        assert plain(made[key]) == plain(expected[key]), key


def plain(item: Json) -> Json:
    """Return an object in a form in which equal objects are equal.

    The configuration in a ConfigMap becomes an object, because its text may be YAML or JSON. A
    Secret loses its empty fields, because kustomize writes out the data of an empty one.
    """
    if item["kind"] == "Secret":
        return {key: value for key, value in item.items() if value}
    if item["kind"] != "ConfigMap":
        return item
    data = {key: yaml.safe_load(text) for key, text in item["data"].items()}
    return json.loads(json.dumps({**item, "data": data}))
