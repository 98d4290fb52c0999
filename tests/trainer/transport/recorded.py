"""Lines that NCCL and its plugins have printed on real machines, and the transport they mean.

They come from public problem reports and documents about NCCL 2.4 to 2.31, with A100, H100, H200,
L4 and L40S GPUs. Some host names and addresses are shortened. Each row has the lines of one log
that matter.
"""

from __future__ import annotations

from trainer.transport.lines import Transport

NO_EFA = "NET/OFI No eligible providers were found"
NO_PROTOCOL = "NET/OFI Unable to find a protocol that worked.  Failing initialization."
NO_IB = "NET/IB : No device found."
EFA_PLUGIN = "NET/Plugin: Loaded net plugin Libfabric (v11)"
EFA_CHOSEN = "NET/OFI Selected provider is efa, fabric is efa (found 1 nics)"
INFO = "pod-0:152:386 [0] NCCL INFO "


def info(*texts: str) -> tuple[str, ...]:
    """Return these texts as log lines of a process, with the beginning that NCCL gives them."""
    return tuple(f"{INFO}{text}" for text in texts)


RECORDED: dict[str, tuple[tuple[str, ...], Transport]] = {
    "EFA is not in the pod, so sockets": (
        (
            *info("NET/Plugin: Plugin name set by env to libnccl-net.so", EFA_PLUGIN, NO_EFA),
            f"[2025-12-28 16:04:25] pod-0:152:386 [0] int create_plugin(t**):259 NCCL WARN "
            f"{NO_PROTOCOL}",
            *info(
                NO_IB,
                "NET/IB : Using [RO]; OOB eth0:10.0.4.51<0>",
                "NET/Socket : Using [0]eth0:10.0.4.51<0>",
                "Initialized NET plugin Socket",
                "Using network Socket",
                "comm 0x562b2c1973d0 rank 0 nRanks 4 nNodes 4 localRanks 1 localRank 0 MNNVL 0",
                "Channel 00/0 : 3[0] -> 0[0] [receive] via NET/Socket/0",
                "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Socket/0",
            ),
        ),
        Transport(
            ("socket",),
            ("eth0",),
            False,
            is_used=True,
            rank=0,
            ranks=4,
            machines=4,
            reasons=(
                "NET/Plugin: Plugin name set by env to libnccl-net.so",
                NO_EFA,
                NO_PROTOCOL,
                NO_IB,
            ),
        ),
    ),
    "no InfiniBand device, two interfaces": (
        info(
            NO_IB,
            "NET/Socket : Using [0]eno1:172.22.116.89<0> [1]ztyou3pbk2:192.168.193.155<0>",
            "Using network Socket",
        ),
        Transport(("socket",), ("eno1", "ztyou3pbk2"), reasons=(NO_IB,)),
    ),
    "a plugin without its device": (
        info(
            "NET/Plugin: Loaded net plugin SPCX (v12)",
            NO_IB,
            "Failed to initialize NET plugin SPCX",
            "Failed to initialize NET plugin IB",
            "NET/Socket : Using [0]eth0:10.56.0.6<0>",
            "Using network Socket",
            "comm 0x59e6b47a3b40 rank 0 nRanks 1 nNodes 1 localRanks 1 localRank 0 MNNVL 0",
        ),
        Transport(
            ("socket",),
            ("eth0",),
            rank=0,
            ranks=1,
            machines=1,
            reasons=(
                NO_IB,
                "Failed to initialize NET plugin SPCX",
                "Failed to initialize NET plugin IB",
            ),
        ),
    ),
    "sockets of an old version": (
        (
            "10.0.2.12: 94f182:82261:83141 [0] NCCL INFO Channel 00 : 8[1a000] -> 0[1a000] "
            "[receive] via NET/Socket/0",
        ),
        Transport(("socket",), (), False, is_used=True),
    ),
    "the second interface": (
        info(
            "NET/Socket : Using [0]eth0:10.0.0.2<0> [1]net1:10.1.0.2<0>",
            "Channel 00/0 : 0[0] -> 1[0] [receive] via NET/Socket/1",
        ),
        Transport(("socket",), ("net1",), False, is_used=True),
    ),
    "InfiniBand with GPUDirect": (
        info(
            "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [2]mlx5_2:1/IB [3]mlx5_3:1/IB [RO]; "
            "OOB eth0:10.0.0.1<0>",
            "Using network IB",
            "Channel 00/0 : 0[0] -> 8[0] [send] via NET/IB/0/GDRDMA",
            "Channel 00/0 : 8[0] -> 0[0] [receive] via NET/IB/0/GDRDMA",
        ),
        Transport(("ib",), ("mlx5_0",), True, is_used=True),
    ),
    "one device of InfiniBand and one of RoCE": (
        info(
            "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
            "NET/IB : Using [0]mlx5_0:1/RoCE [1]mlx5_2:1/IB [RO]; OOB ibp209s0f0:10.128.3.13<0>",
            "Using network IB",
            "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_0'",
            "NET/IB : GPU Direct RDMA Enabled for HCA 1 'mlx5_2'",
            "Channel 00/0 : 1[81000] -> 0[81000] [receive] via NET/IB/1/GDRDMA",
            "Channel 01/1 : 1[81000] -> 0[81000] [receive] via NET/IB/1/GDRDMA/Shared",
            "comm 0x72a6b00 rank 0 nranks 2 cudaDev 0 busId 81000 commId 0xb2f7 - Init COMPLETE",
        ),
        Transport(
            ("ib",),
            ("mlx5_2",),
            True,
            is_used=True,
            rank=0,
            ranks=2,
            reasons=(
                "NET/Plugin : No plugin found (libnccl-net.so), using internal implementation",
            ),
        ),
    ),
    "both kinds, and no connection yet": (
        info(
            "NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/RoCE [2]mlx5_2:1/IB [RO]; "
            "OOB eth0:1.2.3.4<0>",
            "Using network IB",
        ),
        Transport(("ib-or-roce",), ("mlx5_0", "mlx5_1", "mlx5_2")),
    ),
    "InfiniBand with SHARP by a plugin": (
        info(
            "NET/IB : Using [0]mlx5_2:1/IB/SHARP [1]mlx5_0:1/IB/SHARP [RO]; OOB ib0:10.159.0.40<0>",
            "PROFILER/Plugin: Could not find: libnccl-profiler.so.",
            "Using network IBext_v8",
        ),
        Transport(("ib",), ("mlx5_2", "mlx5_0")),
    ),
    "RoCE": (
        info(
            "NET/IB : Using [0]mlx5_10:1/RoCE [1]mlx5_11:1/RoCE [RO]; "
            "OOB enp220s0np0:11.1.128.136<0>",
            "Using non-device net plugin version 0",
            "Using network IB",
        ),
        Transport(("roce",), ("mlx5_10", "mlx5_11")),
    ),
    "RoCE in a pod by a plugin": (
        info(
            "NCCL_SOCKET_IFNAME set by environment to eth0",
            "NET/IB : Using [0]mlx5_2:1/RoCE [RO]; OOB eth0:10.244.2.21<0>",
            "Using network IBext_v8",
        ),
        Transport(("roce",), ("mlx5_2",)),
    ),
    "RoCE without GPUDirect": (
        info(
            "NET/IB : Using [0]rocep1s0f0:1/RoCE",
            "Using network IB",
            "Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0",
        ),
        Transport(("roce",), ("rocep1s0f0",), False, is_used=True),
    ),
    "a device by its number alone": (
        info(
            "NET/IB : GPU Direct RDMA Enabled for HCA 0 'mlx5_1'",
            "Channel 00/0 : 2[0] -> 1[1] [receive] via NET/IB/0/GDRDMA",
        ),
        Transport(("ib-or-roce",), ("mlx5_1",), True, is_used=True),
    ),
    "by another rank's device": (
        info("Channel 03/1 : 17[1] -> 3[3] [send] via NET/IB/3(19)/GDRDMA/Shared"),
        Transport(("ib-or-roce",), (), True, is_used=True),
    ),
    "GPUDirect by PCIe": (
        info("Channel 00/0 : 0[0] -> 1[0] [send] via NET/IB/0/GDRDMA(PCI)"),
        Transport(("ib-or-roce",), (), True, is_used=True),
    ),
    "a plugin with blanks in its name": (
        (
            "vm-host38:33958:34017 [1] NCCL INFO Channel 01/1 : 3[0] -> 0[1] [send] via NET/NCCL "
            "RDMA Plugin v6/0(2)/GDRDMA/Shared",
        ),
        Transport(("ib-or-roce",), (), True, is_used=True),
    ),
    "EFA of 2022": (
        (
            "[1,0]<stdout>:worker-0:21:21 [0] NCCL INFO NET/OFI Selected Provider is efa "
            "(found 1 nics)",
            "[1,0]<stdout>:worker-0:21:21 [0] NCCL INFO Using network AWS Libfabric",
        ),
        Transport(("efa",)),
    ),
    "EFA of 2019, and no line of its provider": (
        (
            "[1,7]<stdout>:ip-172-32-38-1:21471:22316 [7] NCCL INFO Ring 00 : 7 -> 8 [send] via "
            "NET/AWS Libfabric/0",
        ),
        Transport(("libfabric",), (), False, is_used=True),
    ),
    "EFA, whose provider is said last": (
        info(EFA_PLUGIN, "Using network Libfabric", EFA_CHOSEN),
        Transport(("efa",)),
    ),
    "EFA with GPUDirect": (
        info(
            EFA_PLUGIN,
            "NET/OFI Initializing aws-ofi-nccl 1.16.2",
            EFA_CHOSEN,
            "Using network Libfabric",
            "Channel 00/0 : 3[0] -> 0[0] [receive] via NET/Libfabric/0/GDRDMA/flush=None",
            "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0/GDRDMA",
        ),
        Transport(("efa",), (), True, is_used=True),
    ),
    "EFA without GPUDirect": (
        info(
            "NET/OFI Selected Provider is efa (found 1 nics)",
            "NET/Libfabric : GPU Direct RDMA Disabled for HCA 0 'rdmap0s29'",
            "Channel 00/0 : 0[0] -> 1[0] [send] via NET/Libfabric/0",
        ),
        Transport(("efa",), ("rdmap0s29",), False, is_used=True),
    ),
    "EFA between machines, P2P inside": (
        (
            "[2026-01-15 02:30:52] NCCL INFO Channel 01/0 : 1[1] -> 0[0] via P2P/IPC",
            "[2026-01-15 02:30:52] NCCL INFO Channel 02/0 : 8[0] -> 0[0] [receive] via "
            "NET/Libfabric/0/GDRDMA",
            f"[2026-01-15 02:30:50] NCCL INFO {EFA_CHOSEN}",
        ),
        Transport(("efa",), (), True, ("P2P/IPC",), is_used=True),
    ),
    "shared memory inside, EFA between": (
        info(
            EFA_CHOSEN,
            "Channel 00 : 3[3] -> 2[2] via SHM/direct/direct",
            "Channel 00/0 : 3[3] -> 4[0] [send] via NET/Libfabric/0",
        ),
        Transport(("efa",), (), False, ("SHM/direct",), is_used=True),
    ),
    "Google's plugin": (
        ("a3ultra-vm-0:606:642 [ 6 ] NCCL INFO Using network gIB",),
        Transport(("gIB",)),
    ),
    "Google's plugin for TCPXO": (info("Using network FasTrak"), Transport(("FasTrak",))),
    "a plugin for Thunderbolt": (
        info("NET/Plugin: Loaded net plugin ODL_TB5 (v7)", "Using network ODL_TB5"),
        Transport(("ODL_TB5",)),
    ),
    "one machine with NVLink": (
        info(
            "Using network Socket",
            "comm 0x7f00 rank 6 nRanks 8 nNodes 1 localRanks 8 localRank 6 MNNVL 0",
            "Channel 21/0 : 6[6] -> 7[7] via P2P/CUMEM",
        ),
        Transport(("socket",), (), None, ("P2P/CUMEM",), rank=6, ranks=8, machines=1),
    ),
    "one machine, P2P for some and shared memory for others": (
        info(
            "Channel 02 : 3[3] -> 0[0] via SHM/direct/direct",
            "Channel 00/0 : 2[2] -> 3[3] via P2P/CUMEM/read",
        ),
        Transport(inside=("SHM/direct", "P2P/CUMEM")),
    ),
    "one process": (
        info("Channel 01/0 : 1[1] -> 0[0] via P2P/direct pointer"),
        Transport(inside=("P2P/direct",)),
    ),
    "a line with more behind it": (
        info("Channel 32 : 1[c3000] -> 0[3000] via SHM/direct/direct comm 0x557519a97630"),
        Transport(inside=("SHM/direct",)),
    ),
    "a smaller group after that of all ranks": (
        info(
            "ncclCommInitRankConfig comm 0x562b rank 2 nranks 4 cudaDev 0 nvmlDev 0 busId 36000 "
            "commId 0xbc42 - Init COMPLETE",
            "ncclCommSplit comm 0x562c rank 0 nranks 2 cudaDev 0 nvmlDev 0 busId 36000 parent "
            "0x562b splitCount 1 color 2003953581 key 0 - Init COMPLETE",
        ),
        Transport(rank=2, ranks=4),
    ),
    "switched off by a variable": (
        info(
            "NCCL_IB_DISABLE set by environment to 1.",
            "NET/Socket : Using [0]eth0:172.17.16.64<0>",
            "Using network Socket",
        ),
        Transport(("socket",), ("eth0",), reasons=("NCCL_IB_DISABLE set by environment to 1.",)),
    ),
    "not switched off by a variable": (
        info(
            "NCCL_IB_DISABLE set by environment to 0.",
            "NET/IB : Using [0]mlx5_0:1/IB ; OOB ib0:192.168.11.1<0>",
        ),
        Transport(),
    ),
    "no library for InfiniBand": (
        info("Failed to open libibverbs.so[.1]", "Using network Socket"),
        Transport(("socket",), (), reasons=("Failed to open libibverbs.so[.1]",)),
    ),
    "lines of others, and torn ones": (
        (
            "step 20 loss 4.1",
            "MA 14.96 GB",
            "via NET/IB/0",
            "NCCL INFO Channel 00/0 : 0[0] -> 1[0]",
        ),
        Transport(),
    ),
}
