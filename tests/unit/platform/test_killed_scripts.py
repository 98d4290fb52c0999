"""What `pulumi destroy` finds if an `up` was killed while a script was changing a machine.

The engine notes a command when its `create` has ended. So a command of which it has noted nothing
needs another one, noted before, that cleans up.
"""

import subprocess

import pytest

from tests.unit.certificates import AUTHORITY
from tests.unit.platform.machines import FITTING, TWO, before, deployed
from tests.unit.stacks import Deployment

FIRST = ("trust-bundle", "nfs-server")
SECOND = ("node-gpu2-trust-bundle", "node-gpu2-nfs-client-10.1.2.4")


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """A platform of two machines with authorities and an NFS server."""
    folder = tmp_path_factory.mktemp("authority")
    authority = folder / "ca.pem"
    authority.write_text(AUTHORITY)
    changes = {"caBundle": str(authority), "storage": "nfs-first-node", "storageOptions": {}}
    return deployed(folder, TWO, **{**FITTING, **changes})


@pytest.mark.parametrize("name", [*FIRST, *SECOND])
def test_command_that_cleans_up_is_there_before_the_script(made: Deployment, name: str) -> None:
    """Before a script changes a machine, the engine knows a command that does nothing yet, and
    whose `delete` is that of the script. Otherwise `pulumi destroy` after a killed `up` would leave
    an NFS server, packages or authorities on the machine.
    """
    begun, command = made.one(f"{name}-begun"), made.one(name)
    assert begun.name in before(made, name)
    assert begun.inputs["delete"] == command.inputs["delete"]
    assert begun.program == command.program
    done = subprocess.run(
        ["/bin/sh", "-c", begun.inputs["create"]],
        input=begun.program,
        text=True,
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", [*FIRST, *SECOND])
def test_another_address_of_a_machine_removes_nothing_from_it(made: Deployment, name: str) -> None:
    """If the settings name another host, the command changes and is not replaced. A replaced one
    would be deleted last of all, and remove what the script has just made, if both addresses lead
    to one machine. The engine also takes it for no command of an older version.
    """
    begun = made.one(f"{name}-begun")
    assert not begun.inputs.get("triggers")
    assert "aliases" not in begun.wire
    assert not begun.request.aliases
