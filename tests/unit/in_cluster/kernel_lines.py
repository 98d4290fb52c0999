"""Lines of the kernel's log: those of machines without a fault, and the line of a lost GPU."""

# Lines that machines without a fault write. Some of them look like faults.
CLEAN = """\
<6>[    0.000000] Linux version 6.8.0-45-generic (buildd@lcy02) #45-Ubuntu SMP
<6>[    1.204511] EDAC MC: Ver: 3.0.0
<6>[    1.904511] EDAC MC0: Giving out device to module skx_edac controller Skylake Socket#0 IMC#0
<4>[    2.000001] EDAC MC0: 1 CE memory read error on CPU_SrcID#0_MC#0_Chan#0_DIMM#0
<3>[    2.100000] blk_update_request: I/O error, dev fd0, sector 0 op 0x0:(READ) flags 0x0
<3>[    2.200000] I/O error, dev sr0, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1 prio class 2
<3>[    2.300000] I/O error, dev loop3, sector 0 op 0x0:(READ) flags 0x80700 phys_seg 1
<6>[    3.104511] EXT4-fs (nvme0n1p2): mounted filesystem with ordered data mode. Quota mode: none.
<6>[    3.204511] EXT4-fs (nvme0n1p2): re-mounted 1b1. Quota mode: none.
<6>[    3.304511] EXT4-fs (loop7): Remounting filesystem read-only
<6>[    3.404511] XFS (sdb1): Ending clean mount
<6>[    3.504511] BTRFS info (device sdc1): using free space tree
<6>[    4.000000] nvidia-nvlink: Nvlink Core is being initialized, major device number 511
<4>[    4.100000] NVRM: loading NVIDIA UNIX x86_64 Kernel Module  570.86.15
<6>[    4.200000] [drm] [nvidia-drm] [GPU ID 0x00003b00] Loading driver
<6>[    4.300000] pcieport 0000:00:1c.0: AER: Corrected error received: 0000:00:1c.0
<6>[    4.400000] nvidia-nvswitch0: SXid (PCI:0000:c1:00.0): 20034, Non-fatal, Link 30 LTSSM Fault
<4>[ 9012.100000] NVRM: Xid (PCI:0000:3b:00): 31, pid=7177, name=python, Ch 00000008, intr 00000000
<4>[ 9013.100000] NVRM: Xid (PCI:0000:3b:00): 13, pid=7177, Graphics Exception: ESR 0x505730=0x10000
<4>[ 9014.100000] NVRM: Xid (PCI:0000:3b:00): 43, pid=7177, name=python, Ch 00000008
<4>[ 9015.100000] NVRM: Xid (PCI:0000:3b:00 GPU-I:05): 45, pid=7177, name=python, Ch 00000008
<4>[ 9016.100000] python[7177]: segfault at 8 ip 00007f sp 00007ffc error 4 in libcuda.so
<6>[ 9017.100000] Out of memory: Killed process 7177 (python) total-vm:81920kB
<6>[ 9018.100000] mlx5_core 0000:5e:00.0 ens1np0: Link up
""".splitlines()
LOST = "<4>[99.5] NVRM: Xid (PCI:0000:3b:00): 79, pid='<unknown>', GPU has fallen off the bus."
