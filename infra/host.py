"""What happens on the host before the cluster: a bundle, the doctor, its trust, the data folder."""

import pulumi

from infra.bundled import check_bundle, send_bundle
from infra.doctor import Doctor
from infra.runner import Runner
from infra.settings import Settings
from infra.storage import DataFolder


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


def prepare_host(settings: Settings, runner: Runner) -> list[pulumi.Resource]:
    """What the cluster waits for, and `destroy` comes to last; the folder alone if it exists."""
    first = check_bundle(settings)
    if settings.cluster.kind == "k3s":
        first.append(Doctor("doctor", settings))
        if settings.proxy.ca_bundle:
            first.append(HostTrust("trust", settings.proxy.ca_bundle, runner, [*first]))
    first += send_bundle(settings, runner, [*first])
    return [*first, DataFolder("data-root", settings, runner, [*first])]
