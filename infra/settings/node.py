"""Reads which machine is the node: this one, or another one and how to reach it over SSH."""

import re
from dataclasses import asdict, dataclass
from typing import Any

from infra.settings.address import ADDRESS, ADDRESS_FORM, check_address
from infra.settings.private_key import private_key_problem
from infra.settings.reader import Reader
from infra.settings.secret import Secret
from infra.settings.setting_error import SettingError

_HOST_KEY = r"(ssh-\S+|ecdsa-\S+) [A-Za-z0-9+/=]+( .*)?|"
_KEY_EXAMPLE = "ssh-ed25519 AAAA..., without the host's name that ssh-keyscan prints before it"
_ADDRESS_OR_NONE = f"({ADDRESS})?"
# The name of a user of a directory service has its domain behind an @, and may begin with a digit.
USER = r"[A-Za-z0-9_][A-Za-z0-9_.@-]*"
INTERFACE = r"[A-Za-z0-9][A-Za-z0-9_.-]{0,14}"
INTERFACE_FORM = "the name of a network interface"


@dataclass(frozen=True)
class JumpSettings:
    """A jump host: SSH reaches the node through it, with the same private key."""

    host: str
    port: int
    user: str
    host_key: str


@dataclass(frozen=True)
class SshSettings:
    """How to reach the host by SSH."""

    host: str
    port: int
    user: str
    private_key: Secret | None
    host_key: str
    jump: JumpSettings | None

    def ssh_spec(self) -> dict[str, Any]:
        """Return these settings in the form that `ssh_command` takes; it holds the private key."""
        jump = asdict(self.jump) if self.jump else None
        key = self.private_key.text if self.private_key else None
        return {**asdict(self), "jump": jump, "private_key": key}


@dataclass(frozen=True)
class HostSettings:
    """The machine that is the node; `ssh` is None if it is this machine.

    `defaults` holds the settings of SSH even if `ssh` is None, because further machines (nodes.py)
    use the same user, port, key and jump host unless they have their own. `gone` says that the
    machine is lost.
    """

    ssh: SshSettings | None
    sudo_password: Secret | None
    gone: bool
    defaults: SshSettings

    @property
    def kind(self) -> str:
        """The setting `host`: local or ssh."""
        return "ssh" if self.ssh else "local"

    @property
    def address(self) -> str:
        """The name or address by which the machine is reached; `localhost` for this machine."""
        return self.ssh.host if self.ssh else "localhost"

    def access_fields(self) -> dict[str, Any]:
        """Return how a command reaches the host, as JSON values.

        They hold the private key and sudo's password.
        """
        return {
            "ssh": self.ssh.ssh_spec() if self.ssh else None,
            "sudo_password": self.sudo_password.text if self.sudo_password else "",
        }


def read_host(reader: Reader) -> HostSettings:
    """Read which machine the node is, and how it is reached."""
    more = ", and the machine's name or address in sshHost"
    kind = reader.choice("host", ("local", "ssh"), more=more)
    ssh = SshSettings(
        reader.text(
            "sshHost",
            pattern=_ADDRESS_OR_NONE,
            form=ADDRESS_FORM,
            example="gpu01.example.com, and the user in sshUser",
        ),
        reader.integer("sshPort", at_least=1, at_most=65535),
        reader.text("sshUser", pattern=USER, form="the name of a user", example="root"),
        _read_private_key(reader),
        _read_host_key(reader, "sshHostKey"),
        _read_jump(reader),
    )
    check_address(reader, "sshHost", ssh.host, "sshPort")
    if kind == "ssh" and not ssh.host and reader.are_right("sshHost"):
        reader.problem(
            "sshHost",
            ssh.host,
            "host: ssh needs to know which machine the node is",
            "Set the node's name or address",
        )
    if kind == "local" and ssh.host and reader.are_right("host"):
        reader.problem(
            "sshHost",
            ssh.host,
            "with host: local everything is done on this machine, and never there",
            "Set host to ssh, or remove it (`pulumi config rm sshHost`)",
        )
    if kind == "ssh" and not ssh.host_key and reader.are_right("sshHostKey"):
        reader.problem(
            "sshHostKey",
            "",
            "without it another machine could take the node's place",
            "Set the node's public key; `ssh-keyscan` shows it, compare it on the node itself",
        )
    return HostSettings(
        ssh if kind == "ssh" else None,
        reader.secret("sudoPassword"),
        reader.boolean("hostGone"),
        ssh,
    )


def _read_private_key(reader: Reader) -> Secret | None:
    key = "sshPrivateKey"
    reader.hide(key)
    secret = reader.secret(key)
    if secret and reader.is_encrypted(key) and (fault := private_key_problem(secret.text, key)):
        reader.problem(key, secret.text, fault.reason, fault.hint)
    return secret


def _read_host_key(reader: Reader, key: str) -> str:
    """Read a host's public key. A key of a kind that Pulumi's plugin cannot use is refused."""
    text = reader.text(key, pattern=_HOST_KEY, form="a host's public key", example=_KEY_EXAMPLE)
    if text.startswith("ssh-rsa "):
        try:
            host_key_fault(text)
        except SettingError as refused:
            reader.problem(key, text[:20] + "...", refused.reason, refused.hint)
    return text


def host_key_fault(text: str, whose: str = "the node's") -> None:
    """Check a host's public key. `whose` says in messages whose key it is.

    Raises:
        SettingError: the key is missing, is not a public key, or is of a kind that Pulumi's plugin
            cannot use.
    """
    if not text:
        raise SettingError(
            f"without it another machine could take {whose} place",
            f"Set {whose} public key; `ssh-keyscan` shows it, compare it on that machine itself",
        )
    if re.fullmatch(_HOST_KEY, text) is None:
        raise SettingError("it is not a host's public key", f"Write it like {_KEY_EXAMPLE}")
    if text.startswith("ssh-rsa "):
        raise SettingError(
            "with such a key pulumi-command 1.2.1 asks for SHA-1 signatures, which SSH servers "
            "refuse nowadays",
            "Set the host's ed25519 or ecdsa key; `ssh-keyscan -t ed25519,ecdsa HOST` shows them",
        )


def read_doctor(reader: Reader) -> str:
    """Read from which severity on the doctor's findings about the host stop `pulumi up`."""
    return reader.choice("doctor", ("error", "warning", "none"))


def _read_jump(reader: Reader) -> JumpSettings | None:
    jump = JumpSettings(
        reader.text(
            "sshJumpHost", pattern=_ADDRESS_OR_NONE, form=ADDRESS_FORM, example="gate.example.com"
        ),
        reader.integer("sshJumpPort", at_least=1, at_most=65535),
        reader.text("sshJumpUser", pattern=USER, form="the name of a user", example="root"),
        _read_host_key(reader, "sshJumpHostKey"),
    )
    check_address(reader, "sshJumpHost", jump.host, "sshJumpPort")
    if jump.host and not jump.host_key and reader.are_right("sshJumpHostKey"):
        reader.problem(
            "sshJumpHostKey",
            "",
            "without it another machine could take the jump host's place",
            "Set the public key of sshJumpHost; `ssh-keyscan` shows it, compare it on that host",
        )
    return jump if jump.host else None
