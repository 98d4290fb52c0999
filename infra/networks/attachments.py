"""Second network interfaces of a pod, which Multus adds where a cluster has it.

A NetworkAttachmentDefinition describes the second network, and the administrator of the cluster
makes it. The pod names it in an annotation. The container then has a further interface, which
Multus calls net1 unless the annotation says another name.
https://github.com/k8snetworkplumbingwg/multus-cni/blob/master/docs/how-to-use.md
"""

import re

from infra.names import ATTACHMENTS_ANNOTATION
from infra.networks.pod_tcp import POD_INTERFACE
from infra.registry import OptionError

_NAME = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"  # Multus takes no name with a point in this list.
_ONE = re.compile(rf"({_NAME}/)?{_NAME}(@[a-zA-Z0-9][a-zA-Z0-9_.-]{{0,14}})?")
_THERE_ALREADY = ("lo", POD_INTERFACE)


def check_attachments(text: str) -> None:
    """Check the option `attachments`.

    Raises:
        OptionError: the text is not a list of names, as Multus reads it.
    """
    for one in text.split(","):
        if _ONE.fullmatch(one.strip()) is None:
            raise OptionError(
                "attachments",
                "Multus reads names of NetworkAttachmentDefinitions, separated by commas, each as "
                "NAME or NAMESPACE/NAME, with @INTERFACE if it should not be net1",
                "Set names that `kubectl get network-attachment-definitions -A` shows",
            )
    interfaces = _interfaces(text)
    for place, name in enumerate(interfaces):
        fault = ""
        if name in _THERE_ALREADY:
            fault = f"each pod has an interface {name} already"
        elif name in interfaces[:place]:
            fault = f"two of the networks would have the interface {name}"
        if fault:
            hint = (
                "Give each another name, or leave out @INTERFACE: Multus takes net1, net2 and so on"
            )
            raise OptionError("attachments", fault, hint)


def annotations_of(text: str) -> dict[str, str]:
    """Return the annotation of a pod that gets these networks."""
    return {ATTACHMENTS_ANNOTATION: text}


def interface_of(text: str) -> str:
    """Return the name that the interface in the first of these networks has in the pod."""
    return _interfaces(text)[0]


def _interfaces(text: str) -> list[str]:
    """Return the names of the interfaces. One without a name is called by its place in the list."""
    given = [one.strip().partition("@")[2] for one in text.split(",")]
    return [name or f"net{place}" for place, name in enumerate(given, start=1)]
