"""Puts the files of a user's own program into a ConfigMap, which pods mount as /program."""

import base64
from collections.abc import Mapping
from dataclasses import dataclass

import pulumi

from infra.dependencies import child_options
from infra.labels import content_hash, metadata
from infra.names import TRAINING
from infra.objects import Manifest, kubernetes_object

_VOLUME = "program"
_READ_AND_RUN = 0o555  # so that a script can be started as ./NAME


@dataclass(frozen=True)
class ProgramFilesArgs:
    """The ConfigMap's name, the files' contents by their paths, and the stack that owns them."""

    config_map: str
    files: Mapping[str, bytes]
    namespace: str
    stack: str
    owner: pulumi.Output[str]


class ProgramFiles(pulumi.ComponentResource):
    """The ConfigMap with the files.

    If the content changes, a new ConfigMap is made. So all pods of one revision see the same files.
    """

    def __init__(
        self, name: str, args: ProgramFilesArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:ProgramFiles", name, {}, opts)
        kubernetes_object(f"{name}-config-map", _manifest(args), child_options(self, opts))
        self.register_outputs({})


def program_files_name(stack: str, files: Mapping[str, bytes]) -> str:
    """The ConfigMap's name: `program-` and a hash of the stack and of all files."""
    encoded = {path: content.hex() for path, content in files.items()}
    return f"program-{content_hash([stack, encoded])}"


def program_volume(stack: str, files: Mapping[str, bytes]) -> Manifest | None:
    """The pods' volume with the files at their paths; None if there are no files.

    A key of a ConfigMap cannot contain a slash. So the keys are numbered, and the volume has the
    paths.
    """
    if not files:
        return None
    items = [{"key": key, "path": path} for key, path in _keys(files).items()]
    source = {"name": program_files_name(stack, files), "defaultMode": _READ_AND_RUN}
    return {"name": _VOLUME, "configMap": {**source, "items": items}}


def _keys(files: Mapping[str, bytes]) -> dict[str, str]:
    return {f"file-{number:03d}": path for number, path in enumerate(sorted(files))}


def _manifest(args: ProgramFilesArgs) -> Manifest:
    texts, others = dict[str, str](), dict[str, str]()
    for key, path in _keys(args.files).items():
        try:
            texts[key] = args.files[path].decode()
        except UnicodeDecodeError:
            others[key] = base64.b64encode(args.files[path]).decode()
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(
            args.config_map, args.namespace, TRAINING, stack=args.stack, owner=args.owner
        ),
        "immutable": True,
        **({"data": texts} if texts else {}),
        **({"binaryData": others} if others else {}),
    }
