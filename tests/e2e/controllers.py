"""What a cluster needs to have a platform's controllers without internet: charts and images.

The programs and the charts are the projects' own, of the versions that are pinned; the image around
the program is made here, and stands in containerd under the name that the chart's pods ask for.
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
from sandbox.toolchain import (
    JOBSET_CHART,
    JOBSET_CONTROLLER,
    KUEUE_CHART,
    KUEUE_CONTROLLER,
    Tool,
    tool_folder,
)
from tests.e2e.lab import Lab
from tests.registry.lab import Server

Json = dict[str, Any]

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
CHARTS = "controllerCharts"
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
# The others are chosen by settings of their own.
assert PARTS.keys() == {name for name, kind in CONTROLLERS.items() if not kind.chosen_by}


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


def push_chart(server: Server, name: str) -> str:
    """Put the packed chart into a registry with TLS, as `helm push` does; returns its address."""
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
    """The answer's header Location."""
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
    """A registry with JobSet's chart, which platforms name by its digest."""

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
        """A platform that takes the chart from here."""
        made = lab.stack(name, "sandbox", {**self.settings, **settings})
        made.environment["SSL_CERT_FILE"] = str(self._authority)  # Helm's, in Pulumi's provider
        return made


@contextmanager
def make_jobset_of_others(lab: Lab) -> Iterator[str]:
    """A JobSet of another team, which has no pods; its name."""
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


def settings_for(*names: str) -> dict[str, str]:
    """The settings of a platform that installs these controllers."""
    listed = {f"controllers[{index}]": name for index, name in enumerate(names)}
    return listed | {f"{CHARTS}.{name}": str(chart_of(name)) for name in names}


def traces(lab: Lab) -> dict[str, str]:
    """What the cluster has of `KINDS`, and of rights in namespaces that were there before."""
    found = lab.uids(*KINDS)
    for item in lab.get("role,rolebinding", namespace="kube-system")["items"]:
        found[f"{item['kind']}/{item['metadata']['name']}"] = item["metadata"]["uid"]
    return found
