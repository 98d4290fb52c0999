"""The meanings of Xids, the numbered errors that NVIDIA's driver writes into the kernel's log.

The meanings are those of NVIDIA's catalog (docs.nvidia.com/deploy/xid-errors, "Analyzing Xid Errors
with the Xid Catalog"). The file goes into a pod unchanged, so it imports nothing.
"""

XIDS = {
    13: "a program did something invalid on the GPU, such as an access out of bounds; it is mostly "
    "the program's fault: start it again, and look for the kernel if it comes back",
    31: "a program accessed GPU memory that it has not got; it is mostly the program's fault, and "
    "the GPU works on",
    43: "the GPU has stopped the work of a program after a fault of that program; other programs "
    "are not touched",
    45: "the driver has ended the work of a program: it was ended, or an error before this line "
    "is the reason",
    48: "GPU memory has an error that ECC could not correct; the programs on this GPU have to be "
    "ended and the GPU reset",
    63: "a faulty row or page of GPU memory was recorded for replacement; reset the GPU when it is "
    "free, so that this takes effect",
    64: "a faulty row or page of GPU memory could not be recorded for replacement; reset the GPU, "
    "and have it checked if it comes back",
    74: "an NVLink connection between GPUs has an error; reset the GPUs, and have the hardware "
    "checked if it comes back",
    79: "the GPU does not answer on the PCIe bus any more (fallen off the bus: power, heat, seat "
    "or hardware); restart the machine, and have the GPU checked if it comes back",
    94: "GPU memory has an error that ECC could not correct, and only the program that used it is "
    "touched; start that program again, and reset the GPU when it is free",
    95: "GPU memory has an error that ECC could not correct, and every program on this GPU may "
    "be touched; reset the GPU before it is used again",
    119: "the GPU's own processor (GSP) did not answer the driver in time; reset the GPU or "
    "restart the machine",
}

OF_THE_GPU = frozenset({48, 64, 74, 79, 95, 119})
"""The Xids after which the GPU needs a reset, a restart of the machine, or a check."""

OF_PROGRAMS = frozenset({13, 31, 43, 45})
"""The Xids that programs cause. The GPU continues to work."""


def meaning_of(number: int) -> str:
    """The meaning of an Xid as a sentence, without a full stop."""
    return XIDS.get(number, "NVIDIA's catalog of Xids says what it means")
