"""The resource definitions of several versions of controllers, which users' clusters may have.

They come from the modules that the controllers' projects publish, as the definitions of the pinned
versions do. No controller is built.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

import yaml

from infra.kube.paths import DEFINITIONS
from infra.labels import OWNER_LABEL
from infra.workloads import WORKLOADS
from sandbox.toolchain import tool_folder
from sandbox.tools.controllers import (
    JOBSET,
    JOBSET_CHART,
    KUEUE,
    KUEUE_CONTROLLER,
    TRAINER,
    TRAINER_MANIFESTS,
)
from sandbox.tools.older import minor
from sandbox.tools.tool import GoBuild, Tool
from tests.kube.lab import Lab, wait_for
from tests.unit.stacks import deploy

Json = dict[str, Any]


def _jobset(version: str) -> Tool:
    module_file = ("sigs.k8s.io/jobset", "config/components/crd/bases")
    build = GoBuild(f"jobset-{minor(version)}", (), module_files=(module_file,))
    return Tool("jobset-definitions", version, ("bases",), build)


def _trainer(version: str) -> Tool:
    module_file = ("github.com/kubeflow/trainer/v2", "manifests/base/crds")
    build = GoBuild(f"trainer-{minor(version)}", (), module_files=(module_file,))
    return Tool("trainer-definitions", version, ("crds",), build)


def _volcano(version: str) -> Tool:
    name = "batch.volcano.sh_jobs.yaml"
    module_file = ("volcano.sh/volcano", f"config/crd/volcano/bases/{name}")
    build = GoBuild(f"volcano-{minor(version)}", (), module_files=(module_file,))
    return Tool("volcano-definitions", version, (name,), build)


def _kueue(version: str) -> Tool:
    module_file = ("sigs.k8s.io/kueue", "config/components/crd/bases")
    build = GoBuild(f"kueue-{minor(version)}", (), module_files=(module_file,))
    return Tool("kueue-definitions", version, ("bases",), build)


# For each topology and version of its controller: the tool, and the folder in it.
LEVELS: dict[tuple[str, str], tuple[Tool, str]] = {
    ("jobset", "0.8.2"): (_jobset("0.8.2"), "bases"),
    ("jobset", "0.10.1"): (_jobset("0.10.1"), "bases"),
    ("jobset", "0.11.1"): (_jobset("0.11.1"), "bases"),
    ("jobset", JOBSET): (JOBSET_CHART, "jobset/crds"),
    ("trainjob", "2.1.0"): (_trainer("2.1.0"), "crds"),
    ("trainjob", "2.2.1"): (_trainer("2.2.1"), "crds"),
    ("trainjob", TRAINER): (TRAINER_MANIFESTS, "manifests/base/crds"),
    ("volcano", "1.15.1"): (_volcano("1.15.1"), "."),
}

# The same for Kueue. 0.14 is the oldest version with topologies, and serves only v1beta1.
QUEUE_LEVELS: dict[str, tuple[Tool, str]] = {
    "0.14.8": (_kueue("0.14.8"), "bases"),
    KUEUE: (KUEUE_CONTROLLER, "config/components/crd/bases"),
}


def definitions(topology: str, version: str) -> list[Json]:
    """Return the definitions of this version of the topology's controller."""
    return _read(*LEVELS[topology, version])


def schemas_of_kueue(version: str, api_version: str) -> dict[str, tuple[str, Json]]:
    """Return the kind and schema of each kind of object in this version of Kueue, by its plural
    name.
    """
    found = dict[str, tuple[str, Json]]()
    for item in _read(*QUEUE_LEVELS[version]):
        names = item["spec"]["names"]
        for each in item["spec"]["versions"]:
            if each["name"] == api_version:
                found[names["plural"]] = names["kind"], each["schema"]["openAPIV3Schema"]
    return found


def unknown_fields(value: object, schema: Json, path: str = "") -> list[str]:
    """Return the fields of an object that its schema lacks, at any depth, such as
    `.spec.queueName`.
    """
    if isinstance(value, list):
        items = cast(list[object], value)
        return [each for one in items for each in unknown_fields(one, schema["items"], path)]
    if not isinstance(value, dict) or path == ".metadata" or "properties" not in schema:
        return []
    found = list[str]()
    for name, inside in cast(Json, value).items():
        place = f"{path}.{name}"
        known = schema["properties"].get(name)
        found += unknown_fields(inside, known, place) if known else [place]
    return found


def _read(tool: Tool, place: str) -> list[Json]:
    files = sorted((tool_folder(tool) / place).glob("*.yaml"))
    items = [item for file in files for item in yaml.safe_load_all(file.read_text())]
    return [item for item in items if item["kind"] == "CustomResourceDefinition"]


@contextmanager
def served(lab: Lab, items: list[Json]) -> Iterator[None]:
    """Let the cluster have these definitions during the block; they are removed afterwards."""
    paths = [f"{DEFINITIONS}/{item['metadata']['name']}" for item in items]

    def established(path: str) -> bool:
        found = lab.api.get(path) or {}
        conditions = found.get("status", {}).get("conditions") or []
        return any((c["type"], c["status"]) == ("Established", "True") for c in conditions)

    try:
        for item in items:
            lab.api.create(DEFINITIONS, item)
        for path in paths:
            wait_for(f"{path} to be served", lambda path=path: established(path))
        yield
    finally:
        for path in paths:
            lab.api.delete(path, {})
        for path in paths:
            wait_for(f"the end of {path}", lambda path=path: lab.api.get(path) is None)


def rendered(topology: str, folder: Path) -> list[Json]:
    """Return those objects of a run, as `up` makes them, that are in the API group of its kind."""
    kind = WORKLOADS[topology]
    group, changes = kind.api_version, {"topology": topology}
    if not kind.no_ttl_because:
        changes["ttlSecondsAfterFinished"] = "3600"  # so that the object has every possible field
    found = list[Json]()
    for resource in deploy("sandbox-multipod", folder, changes).resources:
        api_version, _, kind = resource.type.removeprefix("kubernetes:").rpartition(":")
        if api_version == group:
            text = json.dumps({**resource.inputs, "apiVersion": api_version, "kind": kind})
            # The recording engine's owner is no valid label value, so another text replaces it.
            owner = resource.inputs["metadata"]["labels"][OWNER_LABEL]
            found.append(json.loads(text.replace(json.dumps(owner), json.dumps("owner"))))
    return found
