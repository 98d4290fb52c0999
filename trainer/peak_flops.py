"""What GPUs can do at most, for the share of it that a run uses (MFU)."""

from __future__ import annotations

import re

import torch

# Dense fp16/bf16 tensor-core peaks in TFLOP/s with fp32 accumulation, from NVIDIA's data sheets
# (half of the figure where those count sparsity). The whole name must match: laptop parts, MIG
# slices, vGPUs and parts for single markets have names of their own and other peaks.
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
    r"H200 NVL": 835.0,
    r"RTX A4000": 76.7,
    r"RTX A5000": 111.1,
    r"RTX A6000": 154.8,
    r"RTX 6000 Ada Generation": 364.2,
    r"RTX 3080": 59.5,
    r"RTX 3090": 71.0,
    r"RTX 3090 Ti": 80.0,
    r"RTX 4080": 97.5,
    r"RTX 4090": 165.2,
    r"RTX 5090": 209.5,
}
_BRAND = r"(NVIDIA |Tesla |GeForce )*"


def peak_flops(device_name: str, dtype: torch.dtype) -> float | None:
    """Peak FLOP/s of a GPU by the name that CUDA gives it; None where it is not known.

    It is known for float16 and bfloat16 only.
    """
    if dtype == torch.float32:
        return None
    for name, tflops in _PEAK_TFLOPS.items():
        if re.fullmatch(f"{_BRAND}({name})", device_name):
            return tflops * 1e12
    return None
