"""Writes and reads the memory of the only visible GPU with the CUDA driver; prints the result as JSON.

It does not test the compute units. Needs libcuda.so.1, which comes with the NVIDIA driver, and nothing else.
"""

import ctypes
import json
import sys
import time

_CHUNK = 64 * 2**20
_SECONDS = 60.0
_PATTERNS = (0x55555555, 0xAAAAAAAA)
_PART = 0.9  # of the free memory


class CudaError(Exception):
    """A call failed; the message names the call and its error."""


def main() -> int:
    try:
        cuda = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return _print(None, "libcuda.so.1 is not installed")
    try:
        tested, wrong = check_memory(cuda)
    except CudaError as error:
        return _print(False, str(error))
    if wrong:
        return _print(False, f"{wrong} of {tested} blocks of 64 MiB have other contents than were written")
    if not tested:
        return _print(False, "no memory could be allocated")
    return _print(True, f"{tested * _CHUNK // 2**20} MiB")


def check_memory(cuda: ctypes.CDLL) -> "tuple[int, int]":
    """The number of blocks that were tested, and of those with wrong contents. Raises CudaError."""
    _call(cuda, "cuInit", ctypes.c_uint(0))
    device, context = ctypes.c_int(), ctypes.c_void_p()
    _call(cuda, "cuDeviceGet", ctypes.byref(device), ctypes.c_int(0))
    _call(cuda, "cuCtxCreate_v2", ctypes.byref(context), ctypes.c_uint(0), device)
    free, total = ctypes.c_size_t(), ctypes.c_size_t()
    _call(cuda, "cuMemGetInfo_v2", ctypes.byref(free), ctypes.byref(total))
    blocks = _allocate(cuda, int(free.value * _PART) // _CHUNK)
    deadline, tested, wrong = time.monotonic() + _SECONDS, 0, 0
    buffer = ctypes.create_string_buffer(_CHUNK)
    for block in blocks:
        if time.monotonic() > deadline:
            break
        tested += 1
        wrong += not all(_keeps(cuda, block, pattern, buffer) for pattern in _PATTERNS)
    _call(cuda, "cuCtxDestroy_v2", context)
    return tested, wrong


def _allocate(cuda: ctypes.CDLL, count: int) -> "list[ctypes.c_uint64]":
    """All at once, so that each block is another part of the memory; fewer if the memory is in pieces."""
    blocks = []
    for _ in range(count):
        block = ctypes.c_uint64()
        if cuda.cuMemAlloc_v2(ctypes.byref(block), ctypes.c_size_t(_CHUNK)):
            break
        blocks.append(block)
    return blocks


def _keeps(cuda: ctypes.CDLL, block: ctypes.c_uint64, pattern: int, buffer: "ctypes.Array[ctypes.c_char]") -> bool:
    _call(cuda, "cuMemsetD32_v2", block, ctypes.c_uint(pattern), ctypes.c_size_t(_CHUNK // 4))
    _call(cuda, "cuMemcpyDtoH_v2", buffer, block, ctypes.c_size_t(_CHUNK))
    return buffer.raw == pattern.to_bytes(4, "little") * (_CHUNK // 4)


def _call(cuda: ctypes.CDLL, name: str, *arguments: object) -> None:
    error = getattr(cuda, name)(*arguments)
    if error:
        raise CudaError(f"{name} failed with CUDA error {error}")


def _print(passed: "bool | None", detail: str) -> int:
    print(json.dumps({"passed": passed, "detail": detail}))
    return 0


if __name__ == "__main__":
    sys.exit(main())
