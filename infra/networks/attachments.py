"""Second network interfaces of a pod, which Multus adds where a cluster has it.

A NetworkAttachmentDefinition describes the second network, and the administrator of the cluster
makes it. The pod names it in an annotation. The container then has a further interface, which
Multus calls net1 unless the annotation says another name.
https://github.com/k8snetworkplumbingwg/multus-cni/blob/master/docs/how-to-use.md
"""

import re

from infra.names import ATTACHMENTS_ANNOTATION
from infra.registry import OptionError

FIRST_INTERFACE = "net1"
_ONE = re.compile(
    r"([a-z0-9]([-a-z0-9]*[a-z0-9])?/)?[a-z0-9]([-.a-z0-9]*[a-z0-9])?(@[a-zA-Z0-9_.-]{1,15})?"
)


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


def annotations_of(text: str) -> dict[str, str]:
    """Return the annotation of a pod that gets these networks."""
    return {ATTACHMENTS_ANNOTATION: text}


def interface_of(text: str) -> str:
    """Return the name that the interface in the first of these networks has in the pod."""
    return text.split(",")[0].strip().partition("@")[2] or FIRST_INTERFACE
