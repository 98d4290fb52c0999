"""A controller that is installed by manifests, with small files, and with a server that stands in
for its publisher.
"""

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from infra.controllers import CONTROLLERS, mpi_operator
from infra.controllers.kind import ControllerKind, PinnedFile, PinnedManifests
from infra.platform import controller_files
from tests.unit.airgap.web import Web, serving

NAME = "mpi-operator"
OPERATOR = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingWebhookConfiguration
metadata: {name: checks}
webhooks: []
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: mpi-operator, namespace: mpi-operator, annotations: {theirs: kept}}
spec:
  template:
    spec:
      tolerations: [{key: theirs}]
      containers: [{name: main, image: "example.org/operator:1", imagePullPolicy: Always}]
---
apiVersion: v1
kind: Namespace
metadata: {name: mpi-operator}
---
"""
PARTS = """\
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: mpi-operator, labels: {theirs: kept}, creationTimestamp: null}
rules: []
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: of-others}
aggregationRule: {clusterRoleSelectors: []}
rules: []
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: mpijobs.kubeflow.org}
spec: {group: kubeflow.org}
status: {acceptedNames: {}}
"""
TEXTS = {"operator.yaml": OPERATOR, "parts.yaml": PARTS}


@dataclass(frozen=True)
class Publisher:
    """The server, the controller whose files it has, and the folder of the cache."""

    web: Web
    kind: ControllerKind
    cache: Path

    def file(self, number: int) -> PinnedFile:
        """Return the file with this number, as the program knows it."""
        assert isinstance(self.kind.source, PinnedManifests)
        return self.kind.source.files[number]

    def kept(self) -> list[Path]:
        """Return the files that are in the cache."""
        return sorted(self.cache.glob("manifests/*"))

    def folder(self, place: Path) -> Path:
        """Make a folder with all files, as a user may."""
        place.mkdir()
        for name, text in TEXTS.items():
            (place / name).write_text(text)
        return place


def sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@contextmanager
def publishing(patched: pytest.MonkeyPatch, cache: Path) -> Iterator[Publisher]:
    """Yield a publisher of the MPI Operator that has the files above. The controller's own change
    of its manifests is applied to them too.
    """
    patched.setenv("DISTTRAIN_CACHE", str(cache))
    patched.setenv("no_proxy", "127.0.0.1")
    patched.setattr("infra.airgap.download.time.sleep", lambda _: None)  # pyright: ignore[reportUnknownLambdaType, reportUnknownArgumentType]
    with serving() as web:
        web.files |= {f"/{name}": text.encode() for name, text in TEXTS.items()}
        files = tuple(PinnedFile(f"{web.url}/{name}", sha256(text)) for name, text in TEXTS.items())
        change = mpi_operator.change
        kind = replace(mpi_operator.KIND, source=PinnedManifests(files, change))
        patched.setitem(CONTROLLERS._kinds, NAME, kind)  # pyright: ignore[reportPrivateUsage]
        assert controller_files.CONTROLLERS[NAME] is kind
        yield Publisher(web, kind, cache)
