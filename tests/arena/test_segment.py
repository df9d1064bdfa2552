"""One memfd, many slots: mapped anywhere, grown in place, given back page by page, refused with a word."""

from __future__ import annotations

import errno
import os
import textwrap
from collections.abc import Callable, Iterator

import numpy as np
import pytest
from warm_host import host

from feedline.arena import segment as segment_module
from feedline.arena.segment import PAGE, STRIDE, Mapping, Segment, mappings, to_page
from feedline.errors import FeedlineError, MemoryShortage


@pytest.fixture
def segment() -> Iterator[Segment]:
    made = Segment()
    yield made
    made.close()


def held(segment: Segment) -> int:
    """Bytes the system really spends on the segment."""
    return os.fstat(segment.fd).st_blocks * 512


def room(segment: Segment, slot: int, size: int) -> Mapping:
    segment.allocate(slot, 0, size)
    return segment.map(slot, size)


def bytes_of(mapping: Mapping, start: int = 0, size: int | None = None) -> np.ndarray:
    return np.frombuffer(mapping.view(start, mapping.size - start if size is None else size), np.uint8)


def in_child(work: Callable[[], None]) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            work()
            os._exit(0)
        finally:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def run_script(code: str) -> str:
    done = host("feedline").run(["-W", "error", "-c", textwrap.dedent(code)], timeout=1000)
    assert done.returncode == 0, done.stderr
    assert done.stderr == ""
    return done.stdout


@pytest.mark.parametrize(("size", "pages"), [(0, 0), (1, 1), (PAGE - 1, 1), (PAGE, 1), (PAGE + 1, 2)])
def test_sizes_are_rounded_up_to_pages(size: int, pages: int) -> None:
    assert to_page(size) == pages * PAGE


def test_two_mappings_of_a_slot_are_the_same_memory(segment: Segment) -> None:
    one = bytes_of(room(segment, 3, 2 * PAGE))
    other = bytes_of(segment.map(3, 2 * PAGE))
    one[PAGE + 5] = 77
    assert other[PAGE + 5] == 77


def test_slots_do_not_overlap_however_large(segment: Segment) -> None:
    segment.allocate(1, STRIDE - PAGE, STRIDE)  # the very end of one slot, the very start of the next
    segment.allocate(2, 0, PAGE)
    end = Mapping(segment.fd, 2 * STRIDE - PAGE, PAGE, 1)
    bytes_of(end)[:] = 1
    bytes_of(segment.map(2, PAGE))[:] = 2
    assert (bytes_of(end) == 1).all()


def test_the_last_slots_range_fits_a_file() -> None:
    assert STRIDE * (1 << 25) == 1 << 63


def test_a_slot_grows_in_place_and_older_views_stay_valid(segment: Segment) -> None:
    before = bytes_of(room(segment, 1, PAGE))
    before[:] = 11
    segment.allocate(1, PAGE, 500 * PAGE)
    after = bytes_of(segment.map(1, 500 * PAGE))
    after[PAGE:] = 22
    assert (before == 11).all()
    assert (after[:PAGE] == 11).all()
    after[0] = 33
    assert before[0] == 33  # the same memory, not a copy
    before[1] = 44
    assert after[1] == 44


def test_another_process_lets_a_slot_grow_and_this_one_sees_it(segment: Segment) -> None:
    here = bytes_of(room(segment, 1, PAGE))

    def grow() -> None:
        there = Segment(os.dup(segment.fd))
        there.allocate(1, PAGE, 300 * PAGE)
        bytes_of(there.map(1, 300 * PAGE))[:] = 9

    assert in_child(grow) == 0
    assert (here == 9).all()
    assert (bytes_of(segment.map(1, 300 * PAGE)) == 9).all()


def test_writes_to_a_private_mapping_are_seen_by_nobody(segment: Segment) -> None:
    shared = bytes_of(room(segment, 1, PAGE))
    shared[:] = 5
    mine = bytes_of(segment.map(1, PAGE, private=True))
    assert (mine == 5).all()
    mine[:] = 6
    assert (shared == 5).all()
    assert (bytes_of(segment.map(1, PAGE)) == 5).all()


def test_mappings_need_no_descriptor_and_outlive_the_segments(segment: Segment) -> None:
    assert segment.fd >= 0  # made when first needed
    before = len(os.listdir("/proc/self/fd"))
    views = [bytes_of(room(segment, slot, PAGE)) for slot in range(200)]
    assert len(os.listdir("/proc/self/fd")) == before
    for number, view in enumerate(views):
        view[:] = number
    segment.close()
    segment.close()  # may be called twice
    assert len(os.listdir("/proc/self/fd")) == before - 1
    assert all((view == number).all() for number, view in enumerate(views))


def test_it_is_an_anonymous_file_that_is_not_inherited_by_programs(segment: Segment) -> None:
    mapping = room(segment, 1, PAGE)
    assert os.readlink(f"/proc/self/fd/{segment.fd}") == "/memfd:feedline (deleted)"
    assert not os.get_inheritable(segment.fd)
    del mapping


def test_memory_is_there_as_soon_as_it_is_allocated(segment: Segment) -> None:
    segment.allocate(1, 0, 100 * PAGE)
    assert held(segment) == 100 * PAGE


def test_free_gives_back_only_whole_pages_within(segment: Segment) -> None:
    view = bytes_of(room(segment, 1, 10 * PAGE))
    neighbour = bytes_of(room(segment, 2, PAGE))
    view[:], neighbour[:] = 1, 1
    segment.free(1, 2 * PAGE + 1, 5 * PAGE - 1)
    assert held(segment) == 10 * PAGE  # 3…4 have gone: one page, and the neighbour's is one more
    assert (view[: 3 * PAGE] == 1).all()
    assert (view[4 * PAGE :] == 1).all()
    segment.free(1, 5, 5)
    segment.free(1, 7 * PAGE + 1, 8 * PAGE - 1)  # no whole page
    assert held(segment) == 10 * PAGE
    assert (view[3 * PAGE : 4 * PAGE] == 0).all()  # looked at last: to look is to allocate again
    segment.free(1, 0, STRIDE)
    assert held(segment) == PAGE
    assert (neighbour == 1).all()


def test_discard_gives_back_without_the_descriptor(segment: Segment) -> None:
    mapping = room(segment, 1, 10 * PAGE)
    view = bytes_of(mapping)
    view[:] = 1
    watching = Segment(os.dup(segment.fd))
    segment.close()
    mapping.discard(2 * PAGE, 4 * PAGE + 1)  # a leaf that ends one byte into a page has that page to itself
    assert held(watching) == 7 * PAGE
    assert (view[: 2 * PAGE] == 1).all()
    assert (view[5 * PAGE :] == 1).all()
    watching.close()


@pytest.mark.parametrize(
    "derive",
    [
        lambda leaf: leaf,
        memoryview,
        lambda leaf: memoryview(leaf).cast("B")[5:9],
        lambda leaf: np.frombuffer(leaf, np.uint8),
        lambda leaf: np.frombuffer(leaf, np.uint8)[::7][3:].view(),
        lambda leaf: np.frombuffer(leaf, np.int64).reshape(2, -1).T,
        lambda leaf: np.frombuffer(memoryview(np.frombuffer(leaf, np.uint8)[16:]), np.uint16),
    ],
)
def test_a_mapping_lives_exactly_as_long_as_a_view_on_it(segment: Segment, derive: Callable) -> None:
    before = set(mappings)
    mapping = room(segment, 1, PAGE)
    address = mapping.address
    view = derive(mapping.view(0, PAGE))
    del mapping
    assert mappings - before == {address}
    with open("/proc/self/maps") as maps:
        assert f"{address:x}-" in maps.read()
    bytes(view)  # no segmentation fault
    del view
    assert mappings == before
    with open("/proc/self/maps") as maps:
        assert "memfd:feedline" not in maps.read()


@pytest.mark.parametrize(("code", "remedy"), [("ENOSPC", "batch_size"), ("ENOMEM", "batch_size"), ("EFBIG", "ulimit")])
def test_a_refusal_of_memory_is_an_error_that_helps(
    segment: Segment, monkeypatch: pytest.MonkeyPatch, code: str, remedy: str
) -> None:
    number = getattr(errno, code)

    def refuse(fd: int, start: int, size: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(MemoryShortage, match=remedy) as caught:
        segment.allocate(1, PAGE, 40 * PAGE)
    assert isinstance(caught.value, MemoryError)
    assert isinstance(caught.value, FeedlineError)
    assert f"{40 * PAGE:,}" in str(caught.value)
    assert os.strerror(number) in str(caught.value)


def test_a_real_file_size_limit_is_explained() -> None:
    out = run_script("""
        import resource
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))
        from feedline.arena.segment import Segment
        from feedline.errors import MemoryShortage
        try:
            Segment().allocate(1, 0, 4096)
        except MemoryShortage as error:
            print(error)
    """)
    assert "ulimit -f" in out


def test_a_mapping_that_cannot_be_had_is_an_error_and_leaves_nothing(segment: Segment) -> None:
    before = set(mappings)
    with pytest.raises(MemoryShortage, match="could not be mapped"):
        segment.map(1, 1 << 60)
    assert mappings == before


def test_a_closed_segment_refuses_and_touches_no_other_file(segment: Segment) -> None:
    segment.close()
    with pytest.raises(MemoryShortage):
        segment.allocate(1, 0, PAGE)
    with pytest.raises(MemoryShortage):
        segment.map(1, PAGE)
    segment.free(1, 0, PAGE)


def test_linux_has_it() -> None:
    assert segment_module.available


def test_a_segment_that_nobody_closed_is_closed_with_its_object() -> None:
    kept = [Segment()]
    descriptor = kept[0].fd
    child = os.fork()
    if not child:  # a worker uses its parent's descriptor, whatever becomes of the objects it has inherited
        code = 1
        try:
            kept.clear()
            os.fstat(descriptor)
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    kept.clear()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(descriptor)
