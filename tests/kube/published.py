"""The manifests that projects publish for their controllers, taken from the projects' modules."""

from pathlib import Path

from infra.controllers import CONTROLLERS
from infra.controllers.kind import PinnedFile, PinnedManifests
from infra.controllers.manifests import WORKLOADS, containers_of, objects_of
from sandbox.toolchain import tool_folder
from sandbox.tools.controllers import (
    LWS_MANIFESTS,
    MPI_OPERATOR_MANIFESTS,
    TRAINER_MANIFESTS,
    TRAINING_OPERATOR_MANIFESTS,
    VOLCANO_MANIFESTS,
)
from sandbox.tools.tool import Tool

TOOLS: dict[str, Tool] = {
    "mpi-operator": MPI_OPERATOR_MANIFESTS,
    "volcano": VOLCANO_MANIFESTS,
    "training-operator": TRAINING_OPERATOR_MANIFESTS,
    "trainer": TRAINER_MANIFESTS,
    "lws": LWS_MANIFESTS,
}


def pinned_files(name: str) -> tuple[PinnedFile, ...]:
    """Return the files of a controller that is installed by manifests."""
    source = CONTROLLERS[name].source
    assert isinstance(source, PinnedManifests)
    return source.files


def published_file(name: str, file: PinnedFile) -> Path:
    """Return the path, in the module's folder, of the file with this address."""
    folder = tool_folder(TOOLS[name])
    for base in ("/manifests/base/", "/config/"):
        if base in file.address:
            return folder / base.strip("/") / file.address.partition(base)[2]
    return folder / file.name


def published_texts(name: str) -> list[str]:
    """Return the texts of the controller's files, in their order."""
    return [published_file(name, file).read_text() for file in pinned_files(name)]


def published_images(name: str) -> set[str]:
    """Return the images that a node pulls for the controller."""
    objects = objects_of(CONTROLLERS[name], published_texts(name))
    pods = [containers_of(each) for each in objects if each["kind"] in WORKLOADS]
    return {container["image"] for containers in pods for container in containers}
