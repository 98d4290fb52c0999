"""Which faults follow from a line of the kernel's log, an answer of nvidia-smi, a link, a disk and
a clock.
"""

import errno

import pytest

from infra.in_cluster.health_findings import (
    HANGS,
    KERNEL_FAULTS,
    Finding,
    Smi,
    clock_findings,
    disk_findings,
    fault_lines,
    kernel_findings,
    lines_after,
    link_findings,
    smi_findings,
    time_findings,
)
from infra.in_cluster.xids import OF_PROGRAMS, OF_THE_GPU, XIDS
from tests.unit.in_cluster.kernel_lines import CLEAN, LOST

FAULTS = {
    "nvswitch": "<3>[5.1] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20009, Fatal, Link 12",
    "ext4": "<3>[6.1] EXT4-fs (nvme0n1p2): Remounting filesystem read-only",
    "btrfs": "<6>[7.1] BTRFS info (device sda2: state E): forced readonly",
    "xfs": "<1>[8.1] XFS (sdb1): Filesystem has been shut down due to log error (0x2).",
    "disk": "<3>[9.1] I/O error, dev nvme0n1, sector 1953480448 op 0x0:(READ) flags 0x80700",
    "memory": "<3>[9.2] EDAC MC1: 1 UE memory read error on CPU_SrcID#0_MC#1_Chan#0",
    "pcie": "<3>[9.3] pcieport 0000:00:01.1: AER: Uncorrectable (Fatal) error message received",
}
UNUSABLE = {"nvswitch", "ext4", "btrfs", "xfs"}


def test_clean_machine_has_no_finding() -> None:
    """A machine without a fault has no finding, although programs fail on it, and devices that are
    no disk of it have errors.
    """
    assert kernel_findings(CLEAN, ()) == []
    assert smi_findings(Smi(0, "00000000:3B:00.0, 0\n00000000:5E:00.0, [N/A]\n"), ()) == []
    assert link_findings({"mlx5_0/1": "4: ACTIVE", "mlx5_1/1": "1: DOWN"}, {"mlx5_0/1"}) == []
    assert disk_findings("the disk", 0.06, 0) == []
    assert clock_findings(None) == clock_findings(-9.9) == clock_findings(9.9) == []


@pytest.mark.parametrize("number", [*XIDS, 999])
def test_xid_counts_by_what_is_at_fault(number: int) -> None:
    """An Xid that is the GPU's own fault makes the machine unusable. An Xid that a program causes
    is no finding.
    """
    line = f"<4>[12.5] NVRM: Xid (PCI:0000:3b:00): {number}, pid=1, name=python"
    found = kernel_findings([*CLEAN, line], ())
    assert len(found) == (number not in OF_PROGRAMS)
    for finding in found:
        assert finding.text.startswith(f"GPU 0000:3b:00 reported Xid {number}: ")
        assert finding.is_unusable == (number in OF_THE_GPU)
    assert OF_THE_GPU.isdisjoint(OF_PROGRAMS)


@pytest.mark.parametrize("case", FAULTS)
def test_line_of_each_fault_is_found(case: str) -> None:
    """Each fault in the kernel's log is found, and makes the machine unusable only if it is one of
    those.
    """
    (finding,) = kernel_findings([*CLEAN, FAULTS[case]], ())
    assert finding.is_unusable == (case in UNUSABLE)
    assert "{" not in finding.text


def test_every_fault_of_the_table_has_a_line_here() -> None:
    """These tests have a line for each fault that the program looks for."""
    keys = {kernel_findings([line], ())[0].key.split()[0] for line in FAULTS.values()}
    assert keys == {fault.id for fault in KERNEL_FAULTS}


def test_fault_from_before_the_look_out_is_said_and_no_more() -> None:
    """A fault from before the watch began is told, but does not make the machine unusable, because
    it may have been mended since. The same fault again does.
    """
    lines = [*CLEAN, LOST]
    old = fault_lines(lines)
    assert old == [LOST]
    (before,) = kernel_findings(lines, old)
    assert not before.is_unusable
    assert "before disttrain looked" in before.text
    (again,) = kernel_findings([*lines, LOST.replace("99.5", "120.5")], old)
    assert again.is_unusable
    assert again.key != before.key


def test_lines_after_the_last_one_are_new() -> None:
    """The lines after the last one that was seen are new; if that line is gone, all lines are
    new.
    """
    assert lines_after(["a", "b", "c"], "b") == ["c"]
    assert lines_after(["a", "b"], "b") == []
    assert lines_after(["a", "b"], "gone") == ["a", "b"]
    assert lines_after([], "") == []


def test_log_without_times_is_said() -> None:
    """A kernel's log without times is told, because a fault that happens again has the same line
    there and would count as old.
    """
    assert time_findings(CLEAN) == time_findings([]) == []
    (finding,) = time_findings([*CLEAN, "<6>mlx5_core 0000:5e:00.0 ens1np0: Link up"])
    assert "printk.time=1" in finding.text
    assert not finding.is_unusable


@pytest.mark.parametrize(
    ("smi", "text", "is_unusable"),
    [
        (Smi(HANGS, ""), "hangs", True),
        (Smi(14, "00000000:3B:00.0, 0"), "infoROM", False),
        (Smi(9, "NVIDIA-SMI has failed because\nit could not talk"), "says: NVIDIA-SMI has", True),
        (Smi(0, "A, 0\n"), "does not show GPU B", True),
        (Smi(0, "A, 3\nB, 0\n"), "GPU A has had 3 errors", False),
        (Smi(0, "A, 0\nB, 0\n", "A, 0, 0\nB, 1, 0\n"), "GPU B replaces", False),
        (Smi(0, "A, 0\nB, 0\n", "A, Yes, Yes\nB, No, No\n"), "GPU A could not replace", True),
    ],
)
def test_answer_of_nvidia_smi_tells_the_fault(smi: Smi, text: str, is_unusable: bool) -> None:
    """Each fault that nvidia-smi shows is found, with whether it makes the machine unusable."""
    (finding,) = smi_findings(smi, {"A", "B"})
    assert text in finding.text
    assert finding.is_unusable == is_unusable


def test_link_that_was_there_is_missed() -> None:
    """A link that was active and is down or gone is told, but does not make the machine
    unusable.
    """
    (down,) = link_findings({"mlx5_0/1": "1: DOWN"}, {"mlx5_0/1"})
    assert "mlx5_0/1 is not active any more (1: DOWN)" in down.text
    (gone,) = link_findings({}, {"efa_0/1"})
    assert "(gone)" in gone.text
    assert [down.is_unusable, gone.is_unusable] == [False, False]


def test_disk_that_cannot_be_written_makes_the_machine_unusable() -> None:
    """A disk that cannot be written makes the machine unusable. A full one does not, because the
    kubelet itself keeps pods away from it.
    """
    (finding,) = disk_findings("the disk", 0.5, errno.EROFS)
    text = "the disk cannot be written: Read-only file system"
    assert finding == Finding(finding.key, text, is_unusable=True)
    for share, error in ((0.01, 0), (0.0, errno.ENOSPC)):
        (full,) = disk_findings("the disk", share, error)
        assert "is full" in full.text
        assert not full.is_unusable


@pytest.mark.parametrize(("seconds", "words"), [(30.2, "30 s ahead of"), (-12.0, "12 s behind")])
def test_clock_that_is_wrong_is_said(seconds: float, words: str) -> None:
    """A clock that is wrong is told, with by how much, but does not make the machine unusable."""
    (finding,) = clock_findings(seconds)
    assert words in finding.text
    assert not finding.is_unusable
