"""What a cluster needs to have a platform's controllers without internet: charts and images.

The programs and the charts are the projects' own, of the versions that are pinned; the image around
the program is made here, and stands in containerd under the name that the chart's pods ask for.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from infra.controllers import CONTROLLERS, jobset, kueue
from sandbox.image_archive import image_archive
from sandbox.toolchain import (
    JOBSET_CHART,
    JOBSET_CONTROLLER,
    KUEUE_CHART,
    KUEUE_CONTROLLER,
    Tool,
    tool_folder,
)
from tests.e2e.lab import Lab

# What lies in no namespace, and may be left behind by an installation.
KINDS = (
    "customresourcedefinition",
    "clusterrole",
    "clusterrolebinding",
    "mutatingwebhookconfiguration",
    "validatingwebhookconfiguration",
    "apiservice",
    "namespace",
)
PROGRAM = "manager"  # the charts' pods start this one
USER = "65532"  # as in the projects' images; the pods may not run as root


@dataclass(frozen=True)
class Parts:
    """Of one controller: its chart, its program, and the name of its image."""

    chart: Tool
    program: Tool
    image: str


PARTS = {
    "jobset": Parts(JOBSET_CHART, JOBSET_CONTROLLER, f"{jobset.IMAGE}:{jobset.TAG}"),
    "kueue": Parts(KUEUE_CHART, KUEUE_CONTROLLER, f"{kueue.IMAGE}:{kueue.TAG}"),
}
assert PARTS.keys() == set(CONTROLLERS)


def import_controller(lab: Lab, name: str) -> None:
    """Put the image with the controller's real program into the cluster's containerd."""
    parts = PARTS[name]
    program = lab.scratch / name / PROGRAM
    program.parent.mkdir(exist_ok=True)
    shutil.copyfile(tool_folder(parts.program) / name, program)
    archive = lab.scratch / f"{name}.tar"
    archive.write_bytes(image_archive(program, stored_name(parts.image), USER))
    program.unlink()
    lab.ctr("images", "import", str(archive))
    archive.unlink()


def stored_name(image: str) -> str:
    """As containerd looks for an image: one with a digest has no tag."""
    name, _, digest = image.partition("@")
    return f"{name.rpartition(':')[0]}@{digest}" if digest else image


def chart_of(name: str) -> Path:
    """The folder of the chart in the project's own module."""
    return tool_folder(PARTS[name].chart) / name


def settings_for(*names: str) -> dict[str, str]:
    """The settings of a platform that installs these controllers."""
    listed = {f"controllers[{index}]": name for index, name in enumerate(names)}
    return listed | {f"controllerCharts.{name}": str(chart_of(name)) for name in names}


def traces(lab: Lab) -> dict[str, str]:
    """What the cluster has of `KINDS`, and of rights in namespaces that were there before."""
    found = lab.uids(*KINDS)
    for item in lab.get("role,rolebinding", namespace="kube-system")["items"]:
        found[f"{item['kind']}/{item['metadata']['name']}"] = item["metadata"]["uid"]
    return found
