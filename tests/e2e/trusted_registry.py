"""Runs a real registry with a login and with TLS that the cluster trusts, to deliver images."""

import ipaddress
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from sandbox.stack import Stack
from tests.e2e.lab import Lab
from tests.registry.lab import LOGIN, Server, running

REPOSITORY = "team/trainer"


@dataclass(frozen=True)
class TrustedRegistry:
    """The registry, and the file with the authority that signed its certificate."""

    lab: Lab
    server: Server
    authority: Path

    @property
    def repository(self) -> str:
        """The setting `imageRepository`."""
        return f"{self.server.name}/{REPOSITORY}"

    def stack(self, name: str, settings: Mapping[str, str | None]) -> Stack:
        """Return a stack whose platform delivers its images by the registry."""
        ours = {
            "imageDelivery": "registry",
            "imageRepository": self.repository,
            # The test's containerd already has the uncompressed layers, so it need not pull them.
            "imageDeliveryOptions.compression": "none",
        }
        made = self.lab.stack(name, "sandbox", {**ours, **settings})
        self.let_push(made)
        return made

    def let_push(self, stack: Stack) -> None:
        """Give the registry's login and its authority to a stack."""
        stack.set_all({"imageDeliveryOptions.user": LOGIN.user, "caBundle": str(self.authority)})
        stack.set("imageDeliveryOptions.password", LOGIN.password, secret=True)

    def tags(self, repository: str = REPOSITORY) -> set[str]:
        """Return the tags of a repository; empty if there is no such repository."""
        folder = self.server.tags(repository)
        return {tag.name for tag in folder.iterdir()} if folder.exists() else set()


@contextmanager
def trusted_registry(lab: Lab, folder: Path) -> Iterator[TrustedRegistry]:
    """Run the registry during the block, and remove it afterwards."""
    assert lab.cluster.node_ip
    host = str(ipaddress.ip_address(lab.cluster.node_ip) - 1)  # this machine's end of the link
    with running(folder, login=True, tls=True, host=host) as server:
        authority = folder / "ca.crt"
        authority.write_text(server.authority)
        trusted = lab.cluster.layout.registries / server.name
        trusted.mkdir(parents=True)
        (trusted / "hosts.toml").write_text(
            f'server = "https://{server.name}"\n'
            f'[host."https://{server.name}"]\nca = "{authority}"\n'
        )
        try:
            yield TrustedRegistry(lab, server, authority)
        finally:
            shutil.rmtree(trusted)
            shutil.rmtree(server.storage, ignore_errors=True)
