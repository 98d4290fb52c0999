"""The pages for people name what there is."""

from pathlib import Path

from cli.doctor import CHECKS, CONNECTION

PROJECT = Path(__file__).parents[2]
OPERATIONS = (PROJECT / "docs/operations.md").read_text()
# What people of the original set-ups ran into, in their words.
ORIGINAL = (
    *("GPU not visible in pods", "Image not found", "rendezvous fails in multi-pod"),
    *("NCCL timeout", "rank mismatch", "out of memory in the first backward pass"),
    *("EFA", "rendezvous timeout", "`CUDA out of memory` at the start", "batch size error"),
    *("all ranks hang in the first forward pass", "no socket interface found", "slow steps"),
    *("/dev/shm", "hostIPC", "errno 13", "progress is lost", "Terminating", "does not answer"),
    *("pending-install", "407"),
)


def test_operations_page_has_a_row_for_every_check() -> None:
    for check in CHECKS:
        assert f"| `{check.id}` |" in OPERATIONS
    assert f"`{CONNECTION}`" in OPERATIONS


def test_operations_page_answers_every_row_of_the_original_lists() -> None:
    assert [words for words in ORIGINAL if words not in OPERATIONS] == []


def test_links_between_pages_lead_somewhere() -> None:
    import re

    for page in (*(PROJECT / "docs").glob("*.md"), PROJECT / "README.md"):
        for target in re.findall(r"\]\(([\w./-]+\.md)\)", page.read_text()):
            assert (page.parent / target).is_file(), (page.name, target)
