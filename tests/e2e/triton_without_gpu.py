"""Checks, without a GPU, that the image has what torch.compile needs on a GPU machine.

The file runs with the image's own Python, and ends with status 1 and a reason if something is
missing. Triton compiles each kernel with its own ptxas. With the C compiler it builds a small
module that passes the kernel's arguments to the driver (libcuda). Only the driver is not in the
image. A stand-in for it notes what it is asked to launch. This shows that the compiler is found,
that all headers are there, and that the module passes arguments as the driver expects them. It does
not show that a GPU computes.
"""

import ctypes
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.backends.nvidia import driver
from triton.compiler import ASTSource

RECORDING = """
#include <string.h>
#define KERNEL_ARGUMENTS 6
unsigned int noted[8];
unsigned long long noted_stream, noted_function, noted_values[KERNEL_ARGUMENTS];
static void note_values(void **values) {
  for (int i = 0; i < KERNEL_ARGUMENTS; i++) memcpy(&noted_values[i], values[i], i < 3 ? 8 : 4);
}
int cuLaunchKernel(void *function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                   unsigned bz, unsigned shared, void *stream, void **values, void **extra) {
  unsigned given[8] = {gx, gy, gz, bx, by, bz, shared, 0};
  memcpy(noted, given, sizeof(given));
  noted_stream = (unsigned long long)stream;
  noted_function = (unsigned long long)function;
  note_values(values);
  return 0;
}
struct Config { unsigned given[7]; void *stream; void *attributes; unsigned count; };
int cuLaunchKernelEx(struct Config *config, void *function, void **values, void **extra) {
  memcpy(noted, config->given, sizeof(config->given));
  noted[7] = config->count;
  noted_stream = (unsigned long long)config->stream;
  noted_function = (unsigned long long)function;
  note_values(values);
  return 0;
}
int cuCtxGetCurrent(void **context) { *context = (void *)1; return 0; }
int cuPointerGetAttribute(void *data, int attribute, unsigned long long pointer) {
  memcpy(data, &pointer, 8);
  return 0;
}
"""
# A pointer, a 64-bit number and a pointer, and then the arguments that are passed in 32 bits.
SIGNATURE = {"x": "*fp32", "n": "i64", "y": "*bf16", "a": "i32", "s": "fp32", "b": "i32"}


class Tensor:
    """A stand-in for a tensor with the one method that the launcher calls."""

    def __init__(self, address: int):
        self._address = address

    def data_ptr(self) -> int:
        return self._address


@triton.jit
def double(x, y, n, block: tl.constexpr):
    offsets = tl.program_id(0) * block + tl.arange(0, block)
    tl.store(y + offsets, tl.load(x + offsets, mask=offsets < n) * 2.0, mask=offsets < n)


def make_libcuda(folder: Path, sources: str) -> ctypes.CDLL:
    """Build and load the stand-in for libcuda, which has all functions that the sources call.

    Only the functions in RECORDING do anything.
    """
    called = set(re.findall(r"\bcu[A-Z]\w+(?=\()", sources)) - set(
        re.findall(r"\bcu[A-Z]\w+(?=\()", RECORDING)
    )
    source = folder / "libcuda.c"
    source.write_text(RECORDING + "".join(f"int {name}(void) {{ return 0; }}\n" for name in called))
    library = folder / "libcuda.so.1"
    compiler = os.environ.get("CC", "gcc")
    name = "-Wl,-soname,libcuda.so.1"
    subprocess.run([compiler, source, "-shared", "-fPIC", name, "-o", library], check=True)
    (folder / "libcuda.so").symlink_to(library)
    return ctypes.CDLL(str(library), ctypes.RTLD_GLOBAL)


def launch(module, libcuda: ctypes.CDLL, cooperative: bool) -> list[object]:
    """Launch with arguments that are all different, and return what has reached the driver."""
    metadata = (4, 1, 48, 1, 1, 1)  # warps, CTAs, shared memory, cluster
    values = (Tensor(0x7F0000000010), -5_000_000_000, Tensor(0x7F0000000020), -7, 1.5, 9)
    module.launch(
        *(2, 3, 5, 0x1234, 0x5678, cooperative, None, metadata, None, None, None), *values
    )
    numbers = (ctypes.c_uint * 8).in_dll(libcuda, "noted")
    passed = (ctypes.c_uint64 * 6).in_dll(libcuda, "noted_values")
    low = [ctypes.string_at(ctypes.addressof(passed) + 8 * i, 8) for i in range(6)]
    return [
        list(numbers),
        ctypes.c_uint64.in_dll(libcuda, "noted_stream").value,
        ctypes.c_uint64.in_dll(libcuda, "noted_function").value,
        int.from_bytes(low[0], sys.byteorder),
        int.from_bytes(low[1], sys.byteorder, signed=True),
        int.from_bytes(low[2], sys.byteorder),
        int.from_bytes(low[3][:4], sys.byteorder, signed=True),
        ctypes.c_float.from_buffer_copy(low[4]).value,
        int.from_bytes(low[5][:4], sys.byteorder, signed=True),
    ]


def main() -> None:
    """Build, load and call the modules, and compile a kernel for two generations of GPUs."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        os.environ["TRITON_LIBCUDA_PATH"] = scratch
        os.environ["TRITON_CACHE_DIR"] = str(folder / "cache")
        launcher = driver.make_launcher({}, SIGNATURE)
        utilities = (Path(driver.dirname) / "driver.c").read_text()
        libcuda = make_libcuda(folder, launcher + utilities)
        begin = time.perf_counter()
        assert hasattr(driver.compile_module_from_src(utilities, "cuda_utils"), "load_binary")
        module = driver.compile_module_from_src(launcher, "__triton_launcher")
        seconds = time.perf_counter() - begin
        for cooperative in (False, True):
            arrived = launch(module, libcuda, cooperative)
            values = [0x1234, 0x5678, 0x7F0000000010, -5_000_000_000, 0x7F0000000020, -7, 1.5, 9]
            given = [[2, 3, 5, 128, 1, 1, 48, int(cooperative)], *values]
            assert arrived == given, f"the driver got {arrived} for {given}"
        for capability in (80, 90):
            types = {"x": "*fp32", "y": "*fp32", "n": "i32", "block": "constexpr"}
            kernel = ASTSource(double, types, constexprs={(3,): 128})
            compiled = triton.compile(kernel, target=GPUTarget("cuda", capability, 32))
            assert compiled.asm["cubin"].startswith(b"\x7fELF")
    print(f"compiler {os.environ.get('CC')}: two modules in {seconds:.2f} s")


if __name__ == "__main__":
    main()
