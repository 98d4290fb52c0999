"""Puts run configurations into immutable ConfigMaps whose names contain a hash of the content."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pulumi
import yaml

from infra.dependencies import child_options
from infra.labels import content_hash, metadata
from infra.objects import Manifest, kubernetes_object


def config_map_name(prefix: str, stack: str, configuration: Mapping[str, Any]) -> str:
    """The name `<prefix>-<hash>`, where the hash is that of the stack and the configuration.

    If the content changes, the name in the pods changes too, and so the pods are made again. The
    stack is part of the hash, so that two stacks never own the same object.
    """
    return f"{prefix}-{content_hash([stack, dict(configuration)])}"


@dataclass(frozen=True)
class RunConfigMapArgs:
    """One configuration: the ConfigMap's name, its component and owner, and its content."""

    config_map: str
    namespace: str
    component: str
    stack: str
    owner: pulumi.Output[str]
    configuration: Mapping[str, Any]


class RunConfigMap(pulumi.ComponentResource):
    """The ConfigMap with the file `run.yaml`.

    If the content changes, a new ConfigMap is made. So pods never see a change of a file in use.
    """

    def __init__(
        self, name: str, args: RunConfigMapArgs, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__("disttrain:infra:RunConfigMap", name, {}, opts)
        kubernetes_object(f"{name}-config-map", config_map(args), child_options(self, opts))
        self.register_outputs({})


def config_map(args: RunConfigMapArgs) -> Manifest:
    """The manifest of the ConfigMap."""
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": metadata(
            args.config_map, args.namespace, args.component, stack=args.stack, owner=args.owner
        ),
        "immutable": True,
        "data": {"run.yaml": yaml.safe_dump(dict(args.configuration), sort_keys=False)},
    }
