"""The data volume: a folder of the node, and the claim by which pods mount it."""

import pulumi
import pulumi_kubernetes as kubernetes

from infra.manifests.volume import claim, volume
from infra.runner import Runner
from infra.settings import Settings


class DataVolume(pulumi.ComponentResource):
    """A hostPath volume bound to `disttrain-pvc`. Destroying it leaves the folder as it is."""

    claim_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        settings: Settings,
        runner: Runner,
        depends_on: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("disttrain:infra:DataVolume", name, {}, opts)
        self.folder = runner.script(
            f"{name}-folder",
            "data-root.sh",
            {"DATA_ROOT": str(settings.storage.data_root)},
            # not deleted with the cluster: nothing of it is in there
            pulumi.ResourceOptions(parent=self),
        )
        after = [*depends_on, self.folder]
        self.volume = kubernetes.core.v1.PersistentVolume(
            f"{name}-volume",
            **volume(settings),
            opts=pulumi.ResourceOptions(parent=self, depends_on=after),
        )
        self.claim = kubernetes.core.v1.PersistentVolumeClaim(
            f"{name}-claim",
            **claim(settings),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self.volume]),
        )
        self.claim_name = self.claim.metadata["name"]
        self.register_outputs({"claim_name": self.claim_name})
