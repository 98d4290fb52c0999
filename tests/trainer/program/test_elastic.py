"""What programs ask torch in order to know that their ranks were started for them."""

from tests.trainer.program.desk import Desk

ASK = """
import os, torch.distributed

assert torch.distributed.is_torchelastic_launched()
print("run:", os.environ["TORCHELASTIC_RUN_ID"], "role rank:", os.environ["ROLE_RANK"])
print("roles:", os.environ["ROLE_NAME"], os.environ["ROLE_WORLD_SIZE"])
"""


def test_torch_takes_ranks_as_started_by_torchrun(desk: Desk) -> None:
    """Torch takes the ranks for ones that torchrun has started. Otherwise Lightning and others
    would start ranks of their own.
    """
    assert desk.run(desk.python(ASK), ranks=2) == 0, desk.log()
    for rank in range(2):
        assert f"run: mine role rank: {rank}" in desk.log()
    assert desk.log().count("roles: default 2") == 2


def test_launchers_of_a_node_are_not_ranks_of_torchrun(desk: Desk) -> None:
    """A program that starts the ranks of its node itself does not look like a rank of torchrun. It
    sets the variables for its ranks, and would otherwise take itself for one.
    """
    text = "import torch.distributed; print(torch.distributed.is_torchelastic_launched())"
    assert desk.run(desk.python(text, per="node")) == 0, desk.log()
    assert "False" in desk.log()
