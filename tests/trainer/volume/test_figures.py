"""The line that tells how fast the shared volume is."""

from trainer.volume.figures import Figures, figures_line


def test_figures_name_the_slowest_node() -> None:
    """One line has each figure's largest value with its node, and each file system once."""
    line = figures_line(
        {
            0: Figures(0.001, 0.02, 0.0001, "nfs4 from s:/x"),
            1: Figures(0.0125, 0.003, 0.0004, "nfs4 from s:/x"),
        }
    )
    assert line == (
        "volume: 2 nodes see each other's new files: write and fsync at most 12.5 ms (node 1), "
        "rename at most 20 ms (node 0), seen by the others after at most 0.4 ms (node 1); "
        "nfs4 from s:/x"
    )
