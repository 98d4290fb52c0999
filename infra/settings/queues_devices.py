"""Checks that the platform's own queue covers the network devices of the stack's own run."""

from infra.kube.quantity import amount
from infra.settings.kinds import Kinds
from infra.settings.platform import PlatformSettings
from infra.settings.queues import KEY
from infra.settings.reader import Reader
from infra.settings.run import RunSettings


def check_own_devices(
    reader: Reader, platform: PlatformSettings, run: RunSettings, kinds: Kinds
) -> None:
    """Note a problem for each device of which the run asks for more than the quota of its queue.

    A device without a quota is a problem only if the platform installs Kueue. The configuration of
    a Kueue that others have installed may leave resources out (excludeResourcePrefixes).

    Args:
        reader: collects the problems that are found.
        platform: the settings of the platform, which may make a queue.
        run: the settings of the run, which may be in that queue.
        kinds: the registries of kinds, of which one has the network profiles.
    """
    queues, network = platform.queues, run.network
    if queues is None or run.queue.name != queues.name:
        return
    if network.options is None or not reader.are_right("pods", "topology"):
        return
    try:
        devices = kinds.networks[network.name].with_options(network.options).resources
    except ValueError:  # `read_network` has noted it.
        return
    for resource, each in devices.items():
        asked = run.compute.world.pods * round(amount(each))
        quota = queues.quota.get(resource, "")
        start = (
            f"the run of this stack is in queue {queues.name} and asks for {asked} of it "
            f"(network: {network.name}), and "
        )
        if quota and amount(quota) < asked:
            reason, hint = f"{start}would wait for ever", f"Set at least {asked}"
        elif not quota and platform.brings_kueue:
            reason = f"{start}Kueue starts no run that asks for a resource without a quota"
            path = f'{KEY}.quota["{resource}"]'
            hint = f"Set at least {asked}: pulumi config set --path '{path}' {asked}"
        else:
            continue
        reader.problem(f"{KEY}.quota.{resource}", quota, reason, hint)
