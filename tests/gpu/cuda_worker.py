"""A process that computes on GPU 0 for ``SECONDS`` (argument), with nothing but the driver.

Prints ``working`` once its first kernel has ended.
"""

from __future__ import annotations

import ctypes
import sys
import time

PTX = b"""
.version 7.0
.target sm_70
.address_size 64
.visible .entry spin(.param .u32 rounds)
{
    .reg .pred %p;
    .reg .u32 %left;
    ld.param.u32 %left, [rounds];
again:
    nanosleep.u32 1000;
    sub.u32 %left, %left, 1;
    setp.ne.u32 %p, %left, 0;
    @%p bra again;
    ret;
}
"""
ROUNDS = 20_000
"""Of a microsecond at least: tens of milliseconds a kernel."""

cuda = ctypes.CDLL("libcuda.so.1")


def check(status: int) -> None:
    if status:
        raise RuntimeError(f"CUDA error {status}")


def main(seconds: float) -> None:
    device, context = ctypes.c_int(), ctypes.c_void_p()
    module, kernel = ctypes.c_void_p(), ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDeviceGet(ctypes.byref(device), 0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), device))
    check(cuda.cuCtxSetCurrent(context))
    check(cuda.cuModuleLoadData(ctypes.byref(module), PTX))
    check(cuda.cuModuleGetFunction(ctypes.byref(kernel), module, b"spin"))
    rounds = ctypes.c_uint32(ROUNDS)
    arguments = (ctypes.c_void_p * 1)(ctypes.cast(ctypes.byref(rounds), ctypes.c_void_p))
    end = time.monotonic() + seconds
    told = False
    while time.monotonic() < end:
        check(cuda.cuLaunchKernel(kernel, 1, 1, 1, 1, 1, 1, 0, None, arguments, None))
        check(cuda.cuCtxSynchronize())
        if not told:
            print("working", flush=True)
            told = True


if __name__ == "__main__":
    main(float(sys.argv[1]))
