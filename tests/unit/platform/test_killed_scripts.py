"""What `pulumi destroy` finds if an `up` was killed while a script was changing a machine.

The engine notes a command when its `create` has ended. So a command of which it has noted nothing
needs another one, noted before, that cleans up.
"""

import json
import subprocess

import pytest

from tests.unit.airgap.stocked import stock
from tests.unit.certificates import AUTHORITY
from tests.unit.platform.machines import FITTING, TWO, before, deployed
from tests.unit.stacks import Deployment, Registered

FIRST = ("trust-bundle", "bundle-on-host-stage", "nfs-server")
SECOND = ("node-gpu2-trust-bundle", "node-gpu2-bundle-stage", "node-gpu2-nfs-client-10.1.2.4")
FOLDER = "data-root-folder"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Deployment:
    """A platform of two machines with authorities, a bundle and an NFS server, which purges its
    data at its end.
    """
    folder = tmp_path_factory.mktemp("authority")
    authority = folder / "ca.pem"
    authority.write_text(AUTHORITY)
    changes: dict[str, object] = {"caBundle": str(authority), "bundle": str(stock(folder))}
    changes |= {"storage": "nfs-first-node", "storageOptions": {}}
    changes |= {"dataOnDestroy": "purge", "purgeConfirmed": "/var/lib/disttrain"}
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
    assert nothing_is_done(begun)


def test_folder_of_a_killed_create_is_released_and_not_purged(made: Deployment) -> None:
    """After an `up` that was killed, `pulumi destroy` takes the stack's mark off the data folder,
    so that the next stack gets it. The folder is not purged then: `up` may have been killed before
    it looked at the folder, in which a former stack has left its data.
    """
    begun, command = made.one(f"{FOLDER}-begun"), made.one(FOLDER)
    assert begun.name in before(made, FOLDER)
    assert begun.inputs["delete"] == command.inputs["delete"]
    purging, keeping = (json.loads(each.program)["program"] for each in (command, begun))
    assert "export PURGE=/var/lib/disttrain\n" in purging
    assert keeping == purging.replace("PURGE=/var/lib/disttrain\n", "PURGE=''\n")
    assert nothing_is_done(begun)


def nothing_is_done(begun: Registered) -> bool:
    """Run what the engine runs when it creates this command; return whether it did nothing."""
    done = subprocess.run(
        ["/bin/sh", "-c", begun.inputs["create"]],
        input=begun.program,
        text=True,
        capture_output=True,
        check=False,
    )
    return (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.mark.parametrize("name", [*FIRST, FOLDER, *SECOND])
def test_another_address_of_a_machine_removes_nothing_from_it(made: Deployment, name: str) -> None:
    """If the settings name another host, the command changes and is not replaced. A replaced one
    would be deleted last of all, and remove what the script has just made, if both addresses lead
    to one machine. The engine also takes it for no command of an older version.
    """
    begun = made.one(f"{name}-begun")
    assert not begun.inputs.get("triggers")
    assert "aliases" not in begun.wire
    assert not begun.request.aliases
