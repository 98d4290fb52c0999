"""Networks of pods on one machine: a namespace for each pod, and a switch between them.

Each pod has two interfaces, as with a second network: `eth0`, at which the nodes meet, and `net1`
for the ranks. A link can be cut at the switch, as by a dead cable: packets are lost, and neither
end is informed. A link can also be slowed down.
"""

from __future__ import annotations

import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

INTERFACES = ("eth0", "net1")


class Networks:
    """The namespaces of `pods` pods; see `networks`."""

    def __init__(self, pods: int) -> None:
        self._name = f"pods-{uuid.uuid4().hex[:8]}"
        self._made = list[str]()
        self._pods = pods

    def make(self) -> None:
        """Make the namespaces and links; each pod has the addresses `address(pod, interface)`."""
        switch = self._add("switch")
        for interface in INTERFACES:
            _ip("-n", switch, "link", "add", interface, "type", "bridge")
            _ip("-n", switch, "link", "set", interface, "up")
        for number in range(self._pods):
            pod = self._add(str(number))
            _ip("-n", pod, "link", "set", "lo", "up")
            for interface in INTERFACES:
                port = self._port(number, interface)
                peer = ("peer", "name", interface, "netns", pod)
                _ip("-n", switch, "link", "add", port, "type", "veth", *peer)
                _ip("-n", switch, "link", "set", port, "master", interface, "up")
                address = f"{self.address(number, interface)}/24"
                _ip("-n", pod, "addr", "add", address, "dev", interface)
                _ip("-n", pod, "link", "set", interface, "up")

    def address(self, pod: int, interface: str) -> str:
        """Return the address of a pod's interface."""
        return f"10.77.{INTERFACES.index(interface)}.{pod + 1}"

    def inside(self, pod: int) -> Sequence[str]:
        """Return the first words of a command line that runs the rest of it in a pod's network."""
        return ("ip", "netns", "exec", self._of(pod))

    def set_link(self, pod: int, interface: str, state: str) -> None:
        """Set a pod's link to `down` or `up`, at the switch."""
        port = self._port(pod, interface)
        _ip("-n", f"{self._name}-switch", "link", "set", port, state)

    def set_rate(self, pod: int, interface: str, rate: str | None) -> None:
        """Limit both directions of a pod's link by the kernel's token bucket filter.

        `rate` is written as for `tc`, such as `100mbit`. None removes a limit, which must exist.
        """
        ends = ((f"{self._name}-switch", self._port(pod, interface)), (self._of(pod), interface))
        for namespace, device in ends:
            words = ["tc", "-n", namespace, "qdisc", "delete", "dev", device, "root"]
            if rate is not None:
                words[4] = "replace"
                words += ["tbf", "burst", "256kb", "latency", "100ms", "rate", rate]
            subprocess.run(words, check=True)

    def remove(self) -> None:
        """Delete the namespaces, and with them their interfaces."""
        for name in self._made:
            _ip("netns", "del", name)

    def _of(self, pod: int) -> str:
        return f"{self._name}-{pod}"

    def _port(self, pod: int, interface: str) -> str:
        return f"{interface}-{pod}"

    def _add(self, what: str) -> str:
        name = f"{self._name}-{what}"
        _ip("netns", "add", name)
        self._made.append(name)
        return name


@contextmanager
def networks(pods: int) -> Iterator[Networks]:
    """Make the networks for the block; all processes in them have to end before it ends."""
    made = Networks(pods)
    try:
        made.make()
        yield made
    finally:
        made.remove()


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)
