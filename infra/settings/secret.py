"""A text that must not show up in a log, a state file or a message."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pulumi

MAY_HOLD_SECRETS = (
    *("alertWebhook", "datasetUrl", "httpProxy", "httpsProxy", "imageDeliveryOptions"),
    *("k3sRegistries", "nodes", "podSecrets", "sshPrivateKey", "storageOptions", "sudoPassword"),
    *("topologyOptions", "torchIndexUrl"),
)
"""Settings whose values no message shows where they are set in a wrong place, since the user may
also have forgotten to encrypt them."""


@dataclass(frozen=True)
class Secret:
    """Holds the text; its repr does not, and resources get it as a secret output."""

    text: str = field(repr=False)

    @property
    def output(self) -> pulumi.Output[str]:
        """The secret as an argument of a resource."""
        return pulumi.Output.secret(self.text)

    @property
    def url_without_password(self) -> str:
        """The secret, which is a URL, without its user and password."""
        parts = urlsplit(self.text)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    @property
    def url_has_password(self) -> bool:
        """Whether the secret, which is a URL, has something to hide in it."""
        return "@" in urlsplit(self.text).netloc


def is_url(text: str) -> bool:
    """Whether the parts of an address can be told from each other, and its port is a number."""
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
