"""What other programs ask torch, to know that somebody has started their ranks for them."""

from tests.trainer.program.desk import Desk

ASK = """
import os, torch.distributed

assert torch.distributed.is_torchelastic_launched()
print("run:", os.environ["TORCHELASTIC_RUN_ID"], "role rank:", os.environ["ROLE_RANK"])
print("roles:", os.environ["ROLE_NAME"], os.environ["ROLE_WORLD_SIZE"])
"""


def test_torch_takes_ranks_as_started_by_torchrun(desk: Desk) -> None:
    """Lightning and others start ranks of their own where torch says that torchrun has not."""
    assert desk.run(desk.python(ASK), ranks=2) == 0, desk.log()
    for rank in range(2):
        assert f"run: mine role rank: {rank}" in desk.log()
    assert desk.log().count("roles: default 2") == 2


def test_launchers_of_a_node_are_not_ranks_of_torchrun(desk: Desk) -> None:
    """They set the variables themselves, and would take themselves for a rank."""
    text = "import torch.distributed; print(torch.distributed.is_torchelastic_launched())"
    assert desk.run(desk.python(text, per="node")) == 0, desk.log()
    assert "False" in desk.log()
