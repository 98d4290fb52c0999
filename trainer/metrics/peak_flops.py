"""The peak FLOP/s of GPUs, from which the share that a run uses (MFU) is computed.

The numbers are dense FP16/BF16 tensor TFLOP/s with FP32 accumulation. They are half of NVIDIA's
figures that count sparsity. All sources are NVIDIA's: the data sheets of A10, A30, A100, L4, L40,
L40S, T4, H100 and H200; the A10G's figures for AWS (70, 140 sparse); the white papers GA102 v2
(A40, RTX A6000, RTX 3090), Ada (RTX 3090 Ti, 4080, 4090) and RTX Blackwell (RTX 5090), each in the
row "with FP32 Accumulate". GeForce cards accumulate in FP32 at half the advertised rate.

Some GPUs are not in the table, because their number would be uncertain: RTX 3080 (there are two
cards of that name, 59.5 and 61.3), RTX A4000, A5000 and 6000 Ada (the data sheets do not name the
kind of accumulation), H200 NVL.
"""

from __future__ import annotations

import re

import torch

# A pattern must match the whole name, because laptop GPUs, MIG slices, vGPUs and GPUs for single
# markets have longer names and other peaks.
_PEAK_TFLOPS = {
    r"A10": 125.0,
    r"A10G": 70.0,
    r"A30": 165.0,
    r"A40": 149.7,
    r"A100-(SXM4?|PCI[Ee])-[48]0GB|A100 80GB PCIe": 312.0,
    r"L4": 121.0,
    r"L40": 181.0,
    r"L40S": 362.0,
    r"T4": 65.0,
    r"H100 PCIe": 756.0,
    r"H100 NVL": 835.0,
    r"H100 80GB HBM3": 989.0,
    r"H200": 989.0,
    r"RTX A6000": 154.8,
    r"RTX 3090": 71.0,
    r"RTX 3090 Ti": 80.0,
    r"RTX 4080": 97.5,
    r"RTX 4090": 165.2,
    r"RTX 5090": 209.5,
}
_BRAND = r"(NVIDIA |Tesla |GeForce )*"


def peak_flops(device_name: str, dtype: torch.dtype) -> float | None:
    """Return the peak FLOP/s of a GPU by the name that CUDA gives it, or None if it is not known.

    It is known only for float16 and bfloat16.
    """
    if dtype == torch.float32:
        return None
    for name, tflops in _PEAK_TFLOPS.items():
        if re.fullmatch(f"{_BRAND}({name})", device_name):
            return tflops * 1e12
    return None
