"""What happens on the host before the cluster: the doctor looks, then its trust is set."""

import pulumi

from infra.doctor import Doctor
from infra.runner import Runner
from infra.settings import Settings


class HostTrust(pulumi.ComponentResource):
    """The authorities of `caBundle` in the host's trust store, where k3s' containerd finds them."""

    installed: pulumi.Output[str]
    """What the script said."""

    def __init__(
        self,
        name: str,
        bundle: str,
        runner: Runner,
        depends_on: list[pulumi.Resource],
        opts: pulumi.ResourceOptions | None = None,
    ) -> None:
        super().__init__("disttrain:infra:HostTrust", name, {}, opts)
        command = runner.script(
            f"{name}-bundle",
            "ca-bundle.sh",
            {"CA_BUNDLE": bundle},
            pulumi.ResourceOptions(parent=self, depends_on=depends_on),
        )
        self.installed = pulumi.Output.from_input(command.stdout)
        self.register_outputs({"installed": self.installed})


def before_cluster(settings: Settings, runner: Runner) -> list[pulumi.Resource]:
    """What the cluster waits for; nothing where it exists already."""
    if settings.cluster.kind != "k3s":
        return []
    first: list[pulumi.Resource] = [Doctor("doctor", settings)]
    if settings.proxy.ca_bundle:
        first.append(HostTrust("trust", settings.proxy.ca_bundle, runner, [*first]))
    return first
