"""Whether the cluster's node is this machine, asked of a real node."""

import pytest

from infra.kube.pods.same_machine import BOOT_ID
from tests.kube.lab import Lab, Run

# The task runs in a mount namespace of its own, so only the task sees these changes of files.
ANOTHER_MACHINE = f'echo {"0" * 8} >"$0" && mount --bind "$0" {BOOT_ID}'
NO_BOOT_ID = f"mount -t tmpfs none {BOOT_ID.parent}"


@pytest.mark.parametrize(
    ("change", "status", "words"),
    [
        ("true", 0, ""),
        (ANOTHER_MACHINE, 1, "are other machines than this one"),
        (NO_BOOT_ID, 0, "it was not checked that this machine is the cluster's node"),
    ],
    ids=["this machine", "another machine", "not shown"],
)
def test_node_is_told_from_another_machine(
    lab: Lab, tmp_path_factory: pytest.TempPathFactory, change: str, status: int, words: str
) -> None:
    """With `host: local`, a kubeconfig that leads to another machine is refused.

    Otherwise the pods would find neither the data folder nor the image. If this machine does not
    show its boot id, the output says that this was not checked.
    """
    file = tmp_path_factory.mktemp("machine") / "boot_id"
    wrapper = ["unshare", "--mount", "sh", "-c", f'{change} && exec "$@"', str(file)]
    ended, output = lab.run("same-machine", "create", Run(lab, "any", "dev").job(), wrapper)
    assert ended == status, output
    assert words in output
    assert (output == "") == (words == "")
    if status:
        assert f"kubeconfig: '{lab.cluster.kubeconfig}' cannot be used with host: local" in output
        assert "run pulumi on a node of that cluster" in output.replace("Run", "run")
