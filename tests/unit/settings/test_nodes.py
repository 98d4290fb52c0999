"""The list of further machines (`nodes`): what it may contain, and with which words the rest is
refused.
"""

from typing import Any

import pytest

from infra.settings import JumpSettings
from tests.unit.settings.reading import SSH, platform, refusal

NODE: dict[str, Any] = {
    "name": "gpu2",
    "address": "10.1.2.4",
    "host_key": "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIExample",
}
JUMP = {"jump_host": "door", "jump_host_key": "ssh-ed25519 AAAADOOR"}
OTHER = {**NODE, "name": "gpu3", "address": "10.1.2.5"}


def with_nodes(*nodes: object, **more: object) -> dict[str, object]:
    """Return the settings of a platform with these further machines."""
    shared = {"storageOptions": {"shared": True}}  # else pods there would find no data
    return {**SSH, **shared, "topology": "none", "nodes": [*nodes], **more}


def test_machine_has_what_the_first_one_has() -> None:
    """A further machine has user, port, key, jump host and sudo's password of the first one, unless
    its item has its own.
    """
    first = {"sshUser": "admin", "sshPort": 2222, "sshPrivateKey": "key", "sudoPassword": "sudo"}
    jump = {"sshJumpHost": "gate", "sshJumpHostKey": NODE["host_key"]}
    own = {"user": "root", "port": 22, "private_key": "own", "sudo_password": "own-sudo"}
    changes = with_nodes(NODE, {**OTHER, **own}, **first, **jump)
    found = platform(changes, ("sshPrivateKey", "sudoPassword", "nodes")).nodes
    shown: list[tuple[object, ...]] = []
    for node in found:
        ssh, sudo = node.ssh, node.host.sudo_password
        assert ssh.private_key
        assert sudo
        assert ssh.jump
        shown.append((ssh.host, ssh.user, ssh.port, ssh.private_key.text, sudo.text, ssh.jump.host))
    assert shown == [
        ("10.1.2.4", "admin", 2222, "key", "sudo", "gate"),
        ("10.1.2.5", "root", 22, "own", "own-sudo", "gate"),
    ]


def test_machine_has_a_jump_host_of_its_own_or_none() -> None:
    """A machine may have its own jump host, or none with an empty text. Unless the item says
    otherwise, the port is 22 and the user is that of the machine.
    """
    more = {"name": "gpu4", "address": "10.1.2.6", "jump_port": 2222, "jump_user": "me"}
    straight = {**NODE, "name": "gpu5", "address": "10.1.2.7", "jump_host": ""}
    jump = {"sshJumpHost": "gate", "sshJumpHostKey": NODE["host_key"], "sshJumpPort": 2022}
    nodes = (NODE, {**OTHER, **JUMP, "user": "admin"}, {**NODE, **JUMP, **more}, straight)
    found = [node.ssh.jump for node in platform(with_nodes(*nodes, **jump)).nodes]
    assert found == [
        JumpSettings("gate", 2022, "root", NODE["host_key"]),
        JumpSettings("door", 22, "admin", JUMP["jump_host_key"]),
        JumpSettings("door", 2222, "me", JUMP["jump_host_key"]),
        None,
    ]


def test_same_address_behind_another_jump_host_is_another_machine() -> None:
    """Two items with one address are refused only if they have the same jump host, because sites
    often number their machines alike.
    """
    behind = {**NODE, "name": "gpu3", **JUMP}
    other = {**NODE, "name": "gpu4", **JUMP, "jump_host": "gate"}
    first = {**NODE, "name": "gpu5", "address": "node", **JUMP}  # the first one's
    found = platform(with_nodes(NODE, behind, other, first)).nodes
    assert [node.ssh.host for node in found] == ["10.1.2.4"] * 3 + ["node"]
    assert "nodes[1].address: '10.1.2.4' cannot be used: nodes[0] has it too" in refusal(
        with_nodes(behind, {**behind, "name": "gpu6"})
    )


PROXY = {"httpProxy": "http://proxy:3128"}
BASE = "node,10.42.0.0/16,10.43.0.0/16,.svc,.cluster.local,127.0.0.1,localhost"


@pytest.mark.parametrize(
    ("changes", "machines"),
    [
        ({}, ()),  # without a proxy
        (PROXY, ("10.1.2.4", "10.1.2.5")),
        ({**PROXY, "noProxy": "10.1.2.4"}, ("10.1.2.5",)),
        ({**PROXY, "noProxy": "10.1.2.0/24"}, ()),
        ({**PROXY, "noProxyOverride": f"{BASE},10.1.0.0/16"}, ()),
    ],
)
def test_machines_that_no_proxy_lacks_are_known(
    changes: dict[str, object], machines: tuple[str, ...]
) -> None:
    """With a proxy, the machines that the exceptions do not contain yet are known, each once."""
    twice = {**NODE, "name": "gpu4", **JUMP}
    assert platform(with_nodes(NODE, OTHER, twice, **changes)).proxy.machines == machines


def test_own_list_of_exceptions_names_every_machine() -> None:
    """`noProxyOverride` is refused if a machine is missing in it."""
    said = refusal(with_nodes(NODE, OTHER, **PROXY, noProxyOverride=f"{BASE},10.1.2.4"))
    assert "noProxyOverride: " in said
    assert "is missing: 10.1.2.5." in said


@pytest.mark.parametrize(
    ("changes", "address"),
    [
        ({"nodeInterface": "eth1", "nodeAddress": "10.9.9.9"}, "10.9.9.9"),
        ({"nodeInterface": "eth1", "nodeAddress": "FD00::0:1"}, "fd00::1"),
        ({"nodeInterface": "eth1", "nodeAddress": "gpu1.example"}, ""),
        ({"nodeInterface": "eth1", "sshHost": "10.9.9.9"}, ""),  # the address for SSH
        ({"nodeAddress": "10.9.9.9"}, ""),
    ],
)
def test_interface_has_to_have_the_address_that_is_named_beside_it(
    changes: dict[str, object], address: str
) -> None:
    """If the settings name an interface and an IP address, the interface must have this address. A
    name, or the address for SSH, is not checked.
    """
    assert platform({**SSH, **changes}).cluster.interface_address == address


def test_machines_may_join_this_one() -> None:
    """Further machines may join this machine (`host: local`). The user, the port and the key of the
    settings are then theirs.
    """
    here = {"host": "local", "sshHost": "", "nodeAddress": "10.1.2.3"}
    changes = with_nodes(NODE, **here, sshUser="admin")
    (node,) = platform(changes).nodes
    assert node.ssh.user == "admin"
    assert platform(changes).host.ssh is None


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([NODE, {**OTHER, "name": "gpu2"}], "nodes[1].name: 'gpu2' cannot be used: nodes[0]"),
        ([NODE, {**OTHER, "address": NODE["address"]}], "nodes[1].address: '10.1.2.4' cannot"),
        ([{**NODE, "address": "node"}], "nodes[0].address: 'node' cannot be used: the first"),
        ([{**NODE, "name": "GPU_2"}], "nodes[0].name: 'GPU_2' cannot be used: it is not the"),
        ([{**NODE, "name": "a" * 64}], "it is not the name of a node"),
        ([{**NODE, "address": "10.1.2.4; reboot"}], "it is not the name or address of a host"),
        ([{"name": "a", "host_key": NODE["host_key"]}], "nodes[0].address: '' cannot be used"),
        ([{**NODE, "host_key": ""}], "another machine could take the node's place. Set the"),
        ([{**NODE, "host_key": "ssh-rsa AAAA"}], "asks for SHA-1 signatures"),
        (
            [{**NODE, "host_key": "gpu2 ssh-ed25519 AAAA"}],
            "it is not a host's public key. Write it like ssh-ed25519 AAAA..., without the host's "
            "name that ssh-keyscan prints before it",
        ),
        ([{**NODE, "user": "Me & you"}], "nodes[0].user: 'Me & you' cannot be used"),
        ([{**NODE, "interface": "eth1; ls"}], "it is not the name of a network interface"),
        ([{**NODE, "port": 70000}], "nodes[0].port: 70000 cannot be used: it is no port"),
        ([{**NODE, "port": "22"}], "nodes[0].port: '22' cannot be used: it is not a whole number"),
        ([{**NODE, "gone": "yes"}], "nodes[0].gone: 'yes' cannot be used: it is not true or"),
        ([{**NODE, "role": "master"}], "nodes[0].role: 'master' cannot be used: it is no role."),
        ([{**NODE, "role": True}], "nodes[0].role: true cannot be used: it is not a text"),
        ([{**NODE, "rack": "a"}], "nodes[0].rack: 'a' cannot be used: a machine has no such key"),
        ([{**NODE, "labels": {"a b": "c"}}], "Kubernetes takes no key 'a b'"),
        ([{**NODE, "labels": {"a": "c d"}}], "Kubernetes takes no such value of a label"),
        ([{**NODE, "labels": {"disttrain.dev/agent": ""}}], "Use a label of another prefix"),
        ([{**NODE, "labels": {"a": None}}], "nodes[0].labels.a: null cannot be used: it is not a"),
        ([{**NODE, "taints": ["a=b"]}], "nodes[0].taints: 'a=b' cannot be used: it is not a taint"),
        (
            [{**NODE, "taints": ["a=b:NoSchedule", "a:NoExecute", "a=c:NoSchedule"]}],
            "nodes[0].taints: 'a=c:NoSchedule' cannot be used: 'a=b:NoSchedule' has the same key",
        ),
        ([{**NODE, "taints": ["a b:NoExecute"]}], "Write it like dedicated=training:NoSchedule"),
        ([{**NODE, "jump_host": "door"}], "another machine could take the jump host's place"),
        ([{**NODE, **JUMP, "jump_host_key": "AAAA"}], "nodes[0].jump_host_key: 'AAAA' cannot"),
        ([{**NODE, **JUMP, "jump_host": "a b"}], "nodes[0].jump_host: 'a b' cannot be used"),
        ([{**NODE, **JUMP, "jump_port": 0}], "nodes[0].jump_port: 0 cannot be used: it is no port"),
        (
            [{**NODE, "jump_user": "me"}],
            "nodes[0].jump_user: 'me' cannot be used: there is no jump",
        ),
        (["gpu2"], "nodes[0]: 'gpu2' cannot be used: it is not an object. Write it like"),
    ],
)
def test_wrong_item_is_named_with_its_place(nodes: list[object], said: str) -> None:
    """A wrong item is refused with its place in the list, its key and its value."""
    assert said in refusal(with_nodes(*nodes))


@pytest.mark.parametrize(
    ("address", "said"),
    [
        ("10.1.2.4:2222", "a port stands with it. Set port: 2222 beside the address 10.1.2.4"),
        ("gpu2.lan:22", "a port stands with it. Set port: 22 beside the address gpu2.lan"),
        ("fd00::4:zz", "it is neither an IPv6 address nor a name"),
        ("10.1.2", "it is neither an IPv4 address nor a name. Write it like 10.1.2.4"),
        ("10.1.2.400", "it is neither an IPv4 address nor a name"),
    ],
)
def test_address_that_leads_nowhere_is_refused(address: str, said: str) -> None:
    """An address that cannot be one is refused with the reason. SSH would take all of it for a
    name, and only say that there is no such name.
    """
    found = refusal(with_nodes({**NODE, "address": address}))
    assert f"nodes[0].address: {address!r} cannot be used: {said}" in found
    found = refusal(with_nodes({**NODE, **JUMP, "jump_host": address}))
    keyed = said.replace("port: ", "jump_port: ")
    assert f"nodes[0].jump_host: {address!r} cannot be used: {keyed}" in found
    for key, port in (("sshHost", "sshPort: "), ("sshJumpHost", "sshJumpPort: ")):
        jump = {"sshJumpHostKey": NODE["host_key"], key: address}
        keyed = said.replace("port: ", port)
        assert f"{key}: {address!r} cannot be used: {keyed}" in refusal({**SSH, **jump})


@pytest.mark.parametrize("address", ["fd00::4", "10.1.2.4", "gpu-2.lan", "4gpu", "1password.com"])
def test_address_of_either_family_and_a_name_are_taken(address: str) -> None:
    """An address may be IPv4, IPv6 or a name."""
    (node,) = platform(with_nodes({**NODE, "address": address})).nodes
    assert node.ssh.host == address


@pytest.mark.parametrize(
    ("one", "two"), [("gpu.lan", "GPU.lan"), ("fd00::4", "FD00:0::4"), ("gpu.lan", "gpu.lan.")]
)
def test_same_address_in_another_spelling_is_the_same(one: str, two: str) -> None:
    """Two items are refused if their addresses differ only in spelling."""
    nodes = ({**NODE, "address": one}, {**NODE, "name": "gpu3", "address": two})
    said = refusal(with_nodes(*nodes))
    assert f"nodes[1].address: {two!r} cannot be used: nodes[0] has it too" in said
    assert "the first machine (sshHost) has it too" in refusal(
        with_nodes({**NODE, "address": two}, sshHost=one)
    )


def test_first_machine_is_not_reached_at_the_address_of_another() -> None:
    """The address of the first machine may not be that of a further one, which would then wait for
    itself. A machine with the same address behind a jump host is another one.
    """
    changes = {"nodeAddress": "10.1.2.4"}
    said = refusal(with_nodes(OTHER, NODE, **changes))
    assert "nodeAddress: '10.1.2.4' cannot be used: it is the address of nodes[1] (gpu2)" in said
    assert platform(with_nodes({**NODE, **JUMP}, **changes)).nodes  # at another site
    said = refusal({"nodes": [NODE], "host": "local", **changes})
    assert "it is the address of nodes[0] (gpu2)" in said


@pytest.mark.parametrize(
    ("network", "nodes", "longest"),
    [
        ("10.42.0.0/24", [NODE], 23),
        ("10.42.0.0/23", [NODE, OTHER], 22),
        ("fd00:42::/64", [NODE], 63),
    ],
)
def test_network_of_pods_has_a_part_for_each_machine(
    network: str, nodes: list[dict[str, Any]], longest: int
) -> None:
    """Each machine gets a part of `podCidr`. If there are fewer parts than machines, it is refused,
    because a machine without one would never become Ready. A lost machine needs none.
    """
    services = "fd00:43::/112" if ":" in network else "10.43.0.0/16"
    changes = {"podCidr": network, "serviceCidr": services}
    said = refusal(with_nodes(*nodes, **changes))
    assert f"podCidr: {network!r} cannot be used: it is too small for {len(nodes) + 1} mach" in said
    assert f"Set a network with a prefix of at most /{longest}." in said
    fewer = [*nodes[:-1], {**nodes[-1], "gone": True}]
    assert platform(with_nodes(*fewer, **changes)).cluster.pod_cidr == network


def test_label_is_the_text_that_a_selector_has() -> None:
    """A label of a machine becomes the text that `nodeSelector` has. `pulumi config set --path`
    makes a boolean of `true`, which both settings read in the same way.
    """
    labels = {"gpu": True, "old": False, "rack": 7}
    (node,) = platform(with_nodes({**NODE, "labels": labels})).nodes
    assert node.labels == {"gpu": "true", "old": "false", "rack": "7"}


def test_all_wrong_items_are_named_at_once() -> None:
    said = refusal(with_nodes({**NODE, "name": "A"}, {**OTHER, "port": 0}))
    assert "nodes[0].name: " in said
    assert "nodes[1].port: " in said


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"k3sExisting": "adopt"}, "nodes: '...' cannot be used: machines can only join a k3s"),
        ({"nodeAddress": "127.0.0.1"}, "nodeAddress: '127.0.0.1' cannot be used: the further"),
        (
            {"k3sExisting": "adopt", "nodeInterface": "eth1"},
            "nodeInterface: 'eth1' cannot be used: it is chosen where this stack installs",
        ),
        ({"host": "local"}, "nodeAddress: '' cannot be used: the further machines (nodes) must"),
    ],
)
def test_server_that_no_machine_can_join_is_refused(changes: dict[str, object], said: str) -> None:
    """Further machines are refused if the first one cannot be joined, with the setting that is in
    the way.
    """
    assert said in refusal(with_nodes(NODE, **changes))


def test_secret_of_a_machine_must_be_encrypted_and_is_not_shown() -> None:
    """A private key in plain text is refused with the command to encrypt it. No value of an
    encrypted list is shown.
    """
    said = refusal(with_nodes({**NODE, "private_key": "hunter2", "port": 0}))
    assert "nodes[0].private_key: [secret] cannot be used: it holds a secret in plain text" in said
    assert "pulumi config set --secret --path 'nodes[0].private_key'" in said
    encrypted = refusal(
        with_nodes({**NODE, "private_key": "hunter2", "name": "hunter3"}, 7), ["nodes"]
    )
    assert "hunter" not in said + encrypted


def as_servers(*gone: bool) -> list[dict[str, Any]]:
    """Return an item for each server beside the first machine; `gone` says which of them are
    lost.
    """
    return [
        {**NODE, "name": f"s{n}", "address": f"10.1.3.{n}", "role": "server", "gone": is_gone}
        for n, is_gone in enumerate(gone)
    ]


@pytest.mark.parametrize(
    "gone", [(), (False,) * 2, (False,) * 4, (False, True), (False, False, True)]
)
def test_number_of_servers_that_bears_a_loss_is_taken(gone: tuple[bool, ...]) -> None:
    """An odd number of servers is accepted, with the first machine. An agent does not count, and a
    lost server may stay until another one takes its place.
    """
    found = platform(with_nodes(*as_servers(*gone), NODE)).nodes
    assert [node.is_server for node in found] == [*[True] * len(gone), False]


@pytest.mark.parametrize(
    ("gone", "there", "fewer"),
    [((False,), 2, 1), ((False,) * 3, 4, 3), ((False,) * 3 + (True,) * 2, 4, 3)],
)
def test_even_number_of_servers_is_refused(gone: tuple[bool, ...], there: int, fewer: int) -> None:
    """An even number of servers is refused, because it survives the loss of no more machines than
    one server less.
    """
    said = refusal(with_nodes(*as_servers(*gone)))
    assert (
        f"it makes {there} servers, which survive the loss of no more machines than {fewer}" in said
    )
    assert f"make {fewer} or {fewer + 2} with the first machine; a lost server stays" in said


def test_wrong_server_is_not_counted_as_none() -> None:
    """If the item of a server is wrong, that is said, and not that servers are missing."""
    one, two = as_servers(False, False)
    said = refusal(with_nodes(one, {**two, "port": 0}))
    assert "port: 0" in said
    assert "it makes" not in said


@pytest.mark.parametrize("old", ["1.22.2", "1.25.16", "1.26.10", "1.27.7", "1.28.3"])
def test_k3s_that_tells_no_voters_is_refused(old: str) -> None:
    """Several servers are refused with an old k3s that never says of a server that it votes. `up`
    would wait for that in vain.
    """
    said = refusal(with_nodes(*as_servers(False, False), k3sVersion=f"v{old}+k3s1"))
    assert f"k3sVersion: 'v{old}+k3s1' cannot be used: several servers need k3s v1.26.11" in said


def test_version_that_is_none_is_only_said_to_be_none() -> None:
    """A text that is no release of k3s is refused once, and not also as too old."""
    said = refusal(with_nodes(*as_servers(False, False), k3sVersion="latest"))
    assert "k3sVersion: 'latest' cannot be used: it is not a release of k3s" in said
    assert "several servers need" not in said


@pytest.mark.parametrize("fine", ["1.26.11", "1.27.8", "1.28.4", "1.29.0", "1.34.2"])
def test_k3s_that_tells_voters_is_taken(fine: str) -> None:
    # Other things may be wrong with such an old release, so a wrong mirror makes sure of an error.
    """Several servers are accepted with each k3s that says which servers vote."""
    servers = with_nodes(*as_servers(False, False), k3sVersion=f"v{fine}+k3s1")
    assert "several servers" not in refusal({**servers, "k3sMirror": "nowhere"})


def test_one_server_needs_no_voters() -> None:
    """An old k3s is accepted if there is one server."""
    given = with_nodes(NODE, k3sVersion="v1.25.16+k3s1")
    assert "several servers" not in refusal({**given, "k3sMirror": "nowhere"})


@pytest.mark.parametrize("user", ["ann@corp.example.com", "Administrator", "4nn"])
def test_user_of_a_directory_is_taken(user: str) -> None:
    """The name of a user may have the form that `realmd` gives users of a domain."""
    first, node = {"sshUser": user}, {**NODE, "user": user}
    assert [each.ssh.user for each in platform(with_nodes(NODE, **first)).nodes] == [user]
    assert [each.ssh.user for each in platform(with_nodes(node)).nodes] == [user]


@pytest.mark.parametrize("user", ["@corp", "-oProxyCommand=x", "ann b", 'ann"', ""])
def test_what_is_no_user_is_refused(user: str) -> None:
    """A text that cannot be the name of a user is refused, such as one that SSH would take for an
    option.
    """
    assert "it is not the name of a user" in refusal(with_nodes({**NODE, "user": user}))
