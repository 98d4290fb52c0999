"""What the doctor is to look at: which host, which cluster, what is expected. Goes as JSON."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, cast

from infra.node.expectations import Expectations


@dataclass(frozen=True)
class SshTarget:
    """How to reach a host; an empty `host_key` leaves it to known_hosts.

    `jump` is a host on the way; it gets the same key.
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
        """The address as people write it."""
        user = f"{self.user}@" if self.user else ""
        return f"ssh://{user}{self.host}:{self.port}"


@dataclass(frozen=True)
class Machine:
    """A further machine.

    `name` is its node's in the cluster, `interface` is for it what `node_interface` of Expectations
    is for the first machine. `is_server` is true for one of several servers, as the first one is.
    """

    name: str
    ssh: SshTarget
    interface: str = ""
    sudo_password: str = field(default="", repr=False)
    is_server: bool = False


@dataclass(frozen=True)
class Plan:
    """One run of the doctor.

    `machines` are those beside the host, which are examined with it and in pairs. With the name of
    one of them in `only`, what is found of others alone is left out.

    `kubectl` is empty where k3s' own on the host is used; with a `kubeconfig` it is a command of
    this machine, shell-quoted. `ctr` is the node's, for the question whether the image is there.
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
        """The host's name for people."""
        return self.ssh.name if self.ssh else "local"

    def to_json(self) -> str:
        """The plan as JSON, always the same text for the same plan; it holds secrets."""
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> "Plan":
        """The reverse.

        Raises:
            ValueError: this is no plan.
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
            # not the text itself: it may hold a password
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
