"""Defines the doctor's plan, which says what it examines and expects, and is sent as JSON."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from infra.node.expectations import Expectations


@dataclass(frozen=True)
class SshTarget:
    """How a host is reached over SSH.

    If `host_key` is empty, the user's known_hosts decides which host key is right. `jump` is a host
    on the way, which is reached with the same private key.
    """

    host: str
    port: int = 22
    user: str = ""
    private_key: str = field(default="", repr=False)
    identity_file: str = ""
    host_key: str = ""
    jump: "SshTarget | None" = None

    @property
    def name(self) -> str:
        """The address for people, such as `ssh://root@gpu01:22`."""
        user = f"{self.user}@" if self.user else ""
        return f"ssh://{user}{self.host}:{self.port}"


@dataclass(frozen=True)
class Machine:
    """A further machine.

    Args:
        name: name of the machine's node in the cluster.
        ssh: how the machine is reached.
        interface: the machine's network interface, as `node_interface` of Expectations is the one
            of the first machine.
        sudo_password: the password for sudo there, if sudo asks for one.
        is_server: whether the machine is a server of k3s, as the first machine is.
    """

    name: str
    ssh: SshTarget
    interface: str = ""
    sudo_password: str = field(default="", repr=False)
    is_server: bool = False


@dataclass(frozen=True)
class Plan:
    """What one run of the doctor examines.

    Args:
        ssh: how the host is reached; None: it is this machine.
        sudo_password: the password for sudo there, if sudo asks for one.
        kubeconfig: path of the kubeconfig of an existing cluster; empty: the cluster is a k3s.
        kubectl: the command that calls kubectl on this machine, quoted for a shell; empty: k3s' own
            kubectl on the host is used.
        ctr: the command that calls containerd's ctr on the node, to ask whether the image is there.
        scope: what is examined: everything, or only the host.
        expect: what is expected of the host and the cluster.
        machines: the further machines, which are examined too, by themselves and in pairs.
        only: name of one of `machines`. Findings about other machines alone are left out then.
    """

    ssh: SshTarget | None = None
    sudo_password: str = field(default="", repr=False)
    kubeconfig: str = ""
    kubectl: str = ""
    ctr: str = "k3s ctr"
    scope: Literal["all", "host"] = "all"
    expect: Expectations = field(default_factory=Expectations)
    machines: tuple[Machine, ...] = ()
    only: str = ""

    @property
    def host_name(self) -> str:
        """The host's name for people; `local` is this machine."""
        return self.ssh.name if self.ssh else "local"

    def to_json(self) -> str:
        """The plan as JSON, which holds secrets. The same plan always gives the same text."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """Read a plan that `to_json` has written.

        Raises:
            ValueError: the text is not a plan.
        """
        try:
            content: object = json.loads(text)
            if not isinstance(content, dict):
                raise TypeError("not an object")
            values = cast(dict[str, Any], content)
            values["expect"] = Expectations.from_mapping(values["expect"])
            values["ssh"] = _target(values["ssh"])
            values["machines"] = tuple(_machine(machine) for machine in values["machines"])
            return cls(**values)
        except (KeyError, TypeError, json.JSONDecodeError) as problem:
            # The message must not repeat the text, which may hold a password.
            raise ValueError(
                f"--plan: what was read is no plan of this program ({problem})"
            ) from None


def _machine(values: dict[str, Any]) -> Machine:
    ssh = _target(values["ssh"])
    if ssh is None:
        raise TypeError("a machine without an address")
    fields: dict[str, Any] = {**values, "ssh": ssh}
    return Machine(**fields)


def _target(values: dict[str, Any] | None) -> SshTarget | None:
    if values is None:
        return None
    fields: dict[str, Any] = {**values, "jump": _target(values["jump"])}
    return SshTarget(**fields)
