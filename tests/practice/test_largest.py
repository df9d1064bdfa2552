"""largest_batch: right by arithmetic for every limit, and right with memory that is really refused."""

from __future__ import annotations

import errno

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from limited import run_limited

from feedline import MemoryShortage, OptionError, largest_batch
from feedline.practice.largest import is_out_of_memory


def test_numpy_is_refused_memory_and_the_answer_is_what_fits():
    # Two arrays, so that the first is held by the frame in which the second fails. It must be let go, although it also
    # hangs on a cycle, as in autograd's graphs.
    body = (
        "    first = [np.ones((batch_size, MB), np.uint8)]\n    first.append(first)\n"
        "    second = np.ones((batch_size, MB), np.uint8)"
    )
    found, tried = run_limited(body)
    assert 90 <= found <= 100
    assert tried[:9] == [1, 2, 4, 8, 16, 32, 64, 128, 96]
    assert len(tried) <= 8 + 7
    assert max(size for size in tried if size <= found) == found
    assert min(size for size in tried if size > found) == found + 1


def test_an_error_of_another_kind_goes_through():
    with pytest.raises(ZeroDivisionError):
        largest_batch(lambda size: 1 // (size - 4))


def test_when_nothing_fits_the_error_is_the_allocators():
    def step(size: int) -> None:
        raise MemoryError("no")

    with pytest.raises(MemoryError, match="no") as caught:
        largest_batch(step, start=8)
    assert caught.value.__notes__ == ["largest_batch: not even a batch size of 1 fits"]


@given(
    room=st.integers(1, 300),
    start=st.integers(1, 40),
    limit=st.integers(48, 400),
    multiple_of=st.integers(1, 8),
)
def test_the_answer_is_the_largest_allowed_size_that_fits(room, start, limit, multiple_of):
    tried = []

    def step(size: int) -> None:
        tried.append(size)
        if size > room:
            raise MemoryError

    sizes = [size for size in range(multiple_of, limit + 1, multiple_of) if size <= room]
    if not sizes:
        with pytest.raises(MemoryError):
            largest_batch(step, start, limit, multiple_of)
        return
    assert largest_batch(step, start, limit, multiple_of) == sizes[-1]
    assert sizes[-1] in tried
    assert max(tried) <= limit
    assert len(tried) == len(set(tried)) <= 20


class OutOfMemoryError(RuntimeError):
    """Named as torch's is."""


OUT = [
    MemoryError(),
    MemoryShortage("no room for a batch"),
    np._core._exceptions._ArrayMemoryError((1 << 60,), np.dtype("u1")) if hasattr(np, "_core") else MemoryError(),
    OSError(errno.ENOMEM, "Cannot allocate memory"),
    OutOfMemoryError("CUDA: tried to allocate 2 GiB"),
    RuntimeError("CUDA out of memory. Tried to allocate 20.00 MiB"),
    RuntimeError("[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried"),
    RuntimeError("DefaultCPUAllocator: not enough memory: you tried to allocate 1 bytes."),
    RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
    RuntimeError("MPS backend out of memory (MPS allocated: 1 GB)"),
    RuntimeError("RESOURCE_EXHAUSTED: Failed to allocate request for 2.0GiB"),
]


@pytest.mark.parametrize("error", OUT, ids=lambda error: f"{type(error).__name__}-{str(error)[:20]}")
def test_what_allocators_raise_is_known(error):
    assert is_out_of_memory(error)


@pytest.mark.parametrize(
    "error",
    [ValueError("out of memory"), RuntimeError("size mismatch"), OSError(errno.ENOSPC, "no space"), KeyError("memory")],
)
def test_what_others_raise_is_not_taken_for_it(error):
    assert not is_out_of_memory(error)


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"fn": 3}, "fn"),
        ({"start": 0}, "start"),
        ({"limit": 0}, "limit"),
        ({"multiple_of": 0}, "multiple_of"),
        ({"start": 9, "limit": 8}, "limit=8 is below the first size to try, 9"),
        ({"limit": 7, "multiple_of": 8}, "limit=7"),
    ],
)
def test_wrong_arguments_are_named(arguments, named):
    with pytest.raises(OptionError, match=named):
        largest_batch(**{"fn": lambda size: None, **arguments})
