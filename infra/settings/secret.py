"""Holds texts that must not appear in a log, in a state file or in a message."""

from dataclasses import dataclass, field
from urllib.parse import urlsplit

import pulumi

MAY_HOLD_SECRETS = (
    *("alertWebhook", "datasetUrl", "httpProxy", "httpsProxy", "imageDeliveryOptions"),
    *("k3sRegistries", "nodes", "podSecrets", "sshPrivateKey", "storageOptions", "sudoPassword"),
    *("topologyOptions", "torchIndexUrl"),
)
"""Settings whose values are not shown if they are set in the wrong stack or with a misspelt name.
The user may also have forgotten to encrypt them."""


@dataclass(frozen=True)
class Secret:
    """A secret text. Its repr does not show it, and resources get it as a secret output."""

    text: str = field(repr=False)

    @property
    def output(self) -> pulumi.Output[str]:
        """The secret as an argument of a resource."""
        return pulumi.Output.secret(self.text)

    @property
    def url_without_password(self) -> str:
        """The secret, which must be a URL, without its user and password."""
        parts = urlsplit(self.text)
        return parts._replace(netloc=parts.netloc.rpartition("@")[2]).geturl()

    @property
    def url_has_password(self) -> bool:
        """Whether the secret, which must be a URL, holds a user or a password."""
        return "@" in urlsplit(self.text).netloc


def is_url(text: str) -> bool:
    """Whether a text can be parsed as a URL with a host, and its port, if any, is a number."""
    try:
        parts = urlsplit(text)
        return bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
