"""The run's configuration for the pods, as an immutable ConfigMap."""

import pulumi
import pulumi_kubernetes as kubernetes

from infra.manifests.config_map import config_map
from infra.manifests.training_pod import TRAINING
from infra.revisions import Revisions
from infra.settings import Settings


class RunConfigMap(pulumi.ComponentResource):
    """One YAML file; another content is another object, so that pods never see half a change."""

    config_map_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        settings: Settings,
        names: Revisions,
        depends_on: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("disttrain:infra:RunConfigMap", name, {}, opts)
        self.config_map = kubernetes.core.v1.ConfigMap(
            f"{name}-config-map",
            **config_map(settings, names.run_config, TRAINING, settings.run.to_mapping()),
            opts=pulumi.ResourceOptions(parent=self, depends_on=depends_on),
        )
        self.config_map_name = self.config_map.metadata["name"]
        self.register_outputs({"config_map_name": self.config_map_name})
