"""Gives a cluster what a platform's controllers need without internet: charts and images.

The programs, charts and manifests are the projects' own, in the pinned versions. The image around a
program is made here, and imported into containerd under the name that the pods ask for.
"""

import hashlib
import http.client
import io
import json
import shutil
import ssl
import tarfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from infra.controllers import CONTROLLERS, jobset, kueue
from sandbox.image_archive import image_archive
from sandbox.stack import Stack
from sandbox.toolchain import tool_folder
from sandbox.tools.controllers import (
    JOBSET_CHART,
    JOBSET_CONTROLLER,
    KUEUE_CHART,
    KUEUE_CONTROLLER,
    LWS_CONTROLLER,
    MPIJOB_CONTROLLER,
    PYTORCHJOB_CONTROLLER,
    TRAINER_CONTROLLER,
    VOLCANO_CONTROLLERS,
    VOLCANO_WEBHOOKS,
)
from sandbox.tools.tool import Tool
from tests.e2e.lab import Lab
from tests.e2e.volcano_image import webhook_image
from tests.kube.published import published_images
from tests.registry.lab import Server

Json = dict[str, Any]

# The kinds of cluster-wide objects that an installation may leave behind.
KINDS = (
    "customresourcedefinition",
    "clusterrole",
    "clusterrolebinding",
    "mutatingwebhookconfiguration",
    "validatingwebhookconfiguration",
    "apiservice",
    "namespace",
)
CHARTS = "controllerCharts"
PROGRAM = "manager"  # the program that the charts' pods start
USER = "65532"  # as in the projects' images; the pods may not run as root


@dataclass(frozen=True)
class Parts:
    """A controller's chart, its program, and the name of its image."""

    chart: Tool
    program: Tool
    image: str


PARTS = {
    "jobset": Parts(JOBSET_CHART, JOBSET_CONTROLLER, f"{jobset.IMAGE}:{jobset.TAG}"),
    "kueue": Parts(KUEUE_CHART, KUEUE_CONTROLLER, f"{kueue.IMAGE}:{kueue.TAG}"),
}
# For each controller that is installed by manifests: a word in the name of an image, and the
# program that this image contains.
PROGRAMS: dict[str, dict[str, tuple[Tool, str]]] = {
    "mpi-operator": {"mpi-operator": (MPIJOB_CONTROLLER, "mpi-operator")},
    "lws": {"lws": (LWS_CONTROLLER, "lws")},
    "trainer": {"trainer": (TRAINER_CONTROLLER, "trainer-controller-manager")},
    "training-operator": {"training": (PYTORCHJOB_CONTROLLER, "training-operator.v1")},
    "volcano": {
        "controller-manager": (VOLCANO_CONTROLLERS, "controller-manager"),
        "scheduler": (VOLCANO_CONTROLLERS, "scheduler"),
        "webhook-manager": (VOLCANO_WEBHOOKS, "webhook-manager"),
    },
}
# The remaining controllers are chosen by settings of their own.
assert {*PARTS, *PROGRAMS} == {name for name, kind in CONTROLLERS.items() if not kind.chosen_by}


def import_controller(lab: Lab, name: str) -> None:
    """Put the images with the controller's real programs into the cluster's containerd."""
    if name in PARTS:
        parts = PARTS[name]
        _import(lab, tool_folder(parts.program) / name, parts.image)
        return
    images = published_images(name)
    for word, (tool, program) in PROGRAMS[name].items():
        (image,) = (each for each in images if word in each)
        _import(lab, tool_folder(tool) / program, image)


def _import(lab: Lab, program: Path, image: str) -> None:
    copy = lab.scratch / "image" / PROGRAM
    copy.parent.mkdir(exist_ok=True)
    shutil.copyfile(program, copy)
    archive = lab.scratch / "image.tar"
    named = stored_name(image)
    made = webhook_image if program.name == "webhook-manager" else image_archive
    archive.write_bytes(made(copy, named, USER))
    copy.unlink()
    lab.ctr("images", "import", str(archive))
    archive.unlink()


def stored_name(image: str) -> str:
    """Return the name by which containerd finds an image.

    The name has a registry, and no tag if it has a digest.
    """
    name, _, digest = image.partition("@")
    if "." not in name.partition("/")[0]:
        name = f"docker.io/{name}"
    return f"{name.rpartition(':')[0]}@{digest}" if digest else name


def chart_of(name: str) -> Path:
    """Return the folder of the chart in the project's own module."""
    return tool_folder(PARTS[name].chart) / name


def push_chart(server: Server, name: str) -> str:
    """Push the packed chart into a registry with TLS, as `helm push` does; return its address."""
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:gz") as tar:
        tar.add(chart_of(name), arcname=name)
    about = yaml.safe_load((chart_of(name) / "Chart.yaml").read_text())
    repository = f"charts/{name}"
    media = "application/vnd.cncf.helm"
    manifest = {
        "schemaVersion": 2,
        "mediaType": "application/vnd.oci.image.manifest.v1+json",
        "config": _push_blob(server, repository, f"{media}.config.v1+json", json.dumps(about)),
        "layers": [
            _push_blob(server, repository, f"{media}.chart.content.v1.tar+gzip", packed.getvalue())
        ],
    }
    body = json.dumps(manifest).encode()
    path = f"/v2/{repository}/manifests/{about['version']}"
    _send(server, "PUT", path, body, manifest["mediaType"])
    return f"oci://{server.name}/{repository}@{_digest(body)}"


def _push_blob(server: Server, repository: str, media_type: str, content: str | bytes) -> Json:
    blob = content.encode() if isinstance(content, str) else content
    place = _send(server, "POST", f"/v2/{repository}/blobs/uploads/", b"", "")
    more = "&" if "?" in place else "?"
    path = place.partition(server.name)[2] or place
    _send(server, "PUT", f"{path}{more}digest={_digest(blob)}", blob, "application/octet-stream")
    return {"mediaType": media_type, "digest": _digest(blob), "size": len(blob)}


def _digest(blob: bytes) -> str:
    return f"sha256:{hashlib.sha256(blob).hexdigest()}"


def _send(server: Server, method: str, path: str, body: bytes, content_type: str) -> str:
    """Send a request that must succeed, and return the answer's header Location."""
    trusted = ssl.create_default_context(cadata=server.authority)
    connection = http.client.HTTPSConnection(*server.address, context=trusted)
    try:
        connection.request(method, path, body, {"Content-Type": content_type})
        answer = connection.getresponse()
        said = answer.read()
        assert answer.status in (201, 202), said
        return answer.getheader("Location") or ""
    finally:
        connection.close()


class RegistryOfCharts:
    """A registry with JobSet's chart; its `settings` name the chart by its digest."""

    def __init__(self, folder: Path) -> None:
        self._server = Server(folder, tls=True)
        self._authority = folder / "authority.crt"
        self._authority.write_text(self._server.authority)
        chart = push_chart(self._server, "jobset")
        self.settings = {**settings_for("jobset"), f"{CHARTS}.jobset": chart}

    def __enter__(self) -> "RegistryOfCharts":
        return self

    def __exit__(self, *_: object) -> None:
        self._server.close()

    def stack(self, lab: Lab, name: str, settings: Mapping[str, str]) -> Stack:
        """Return a stack with a platform that gets the chart from this registry."""
        made = lab.stack(name, "sandbox", {**self.settings, **settings})
        made.environment["SSL_CERT_FILE"] = str(
            self._authority
        )  # read by Helm in Pulumi's provider
        return made


@contextmanager
def make_jobset_of_others(lab: Lab) -> Iterator[str]:
    """Let another team have a JobSet without pods during the block; yield the JobSet's name."""
    item = {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "theirs", "namespace": "default"},
        "spec": {"suspend": True, "replicatedJobs": []},
    }
    given = lab.scratch / "theirs.json"
    given.write_text(json.dumps(item))
    lab.kubectl("create", "-f", str(given), namespace="default")
    try:
        yield "theirs"
    finally:
        lab.kubectl("delete", "-f", str(given), namespace="default")


@contextmanager
def make_secret_of_others(lab: Lab, namespace: str) -> Iterator[str]:
    """Let another team have a Secret in a controller's namespace during the block.

    It yields the name by which a refusal calls the Secret.
    """
    lab.kubectl("create", "secret", "generic", "theirs", namespace=namespace)
    try:
        yield "Secret theirs"
    finally:
        lab.kubectl("delete", "secret", "theirs", namespace=namespace)


def settings_for(*names: str) -> dict[str, str]:
    """Return the settings of a platform that installs these controllers."""
    listed = {f"controllers[{index}]": name for index, name in enumerate(names)}
    return listed | {f"{CHARTS}.{name}": str(chart_of(name)) for name in names if name in PARTS}


def traces(lab: Lab) -> dict[str, str]:
    """Return the uids of the cluster's objects of `KINDS`, and of roles and bindings in
    kube-system.
    """
    found = lab.uids(*KINDS)
    for item in lab.get("role,rolebinding", namespace="kube-system")["items"]:
        found[f"{item['kind']}/{item['metadata']['name']}"] = item["metadata"]["uid"]
    return found
