"""The data volume: a folder of the node, and the claim by which pods mount it."""

import pulumi
import pulumi_kubernetes as kubernetes

from infra.manifests.volume import claim, volume
from infra.runner import Runner
from infra.settings import Settings


class DataFolder(pulumi.ComponentResource):
    """The folder of the node; belongs to no cluster, and is the last that `destroy` comes to.

    With `dataOnDestroy: purge`, `destroy` removes what is in it: by then nothing may use it.
    """

    path: pulumi.Output[str]

    def __init__(
        self, name: str, settings: Settings, runner: Runner, depends_on: list[pulumi.Resource]
    ) -> None:
        super().__init__("disttrain:infra:DataFolder", name, {})
        root, purge = str(settings.storage.data_root), settings.storage.purge
        self.command = runner.script(
            f"{name}-folder",
            "data-root.sh",
            {"DATA_ROOT": root, "PURGE": root if purge else ""},
            pulumi.ResourceOptions(parent=self, depends_on=depends_on),
        )
        self.path = pulumi.Output.from_input(root)
        self.register_outputs({"path": self.path})


class DataVolume(pulumi.ComponentResource):
    """A hostPath volume bound to `disttrain-pvc`. Destroying it leaves the folder as it is."""

    claim_name: pulumi.Output[str]

    def __init__(
        self,
        name: str,
        settings: Settings,
        depends_on: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("disttrain:infra:DataVolume", name, {}, opts)
        self.volume = kubernetes.core.v1.PersistentVolume(
            f"{name}-volume",
            **volume(settings),
            opts=pulumi.ResourceOptions(parent=self, depends_on=depends_on),
        )
        self.claim = kubernetes.core.v1.PersistentVolumeClaim(
            f"{name}-claim",
            **claim(settings),
            opts=pulumi.ResourceOptions(parent=self, depends_on=[self.volume]),
        )
        self.claim_name = self.claim.metadata["name"]
        self.register_outputs({"claim_name": self.claim_name})
