"""How much memory there is: the tightest limit, on made trees of every shape, and what the segment makes of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from made_cgroups import GB, Tree

from feedline.arena import segment as segment_module
from feedline.arena.limits import CONTAINER_V1, CONTAINER_V2, MACHINE, Room, room
from feedline.arena.segment import LOOK, RESERVE, STEP, UNSEEN, Segment
from feedline.errors import MemoryShortage

MB = 1 << 20
V1_UNLIMITED = 9223372036854771712


def v2(folder: Path, limit: int | str, used: int, cache: int = 0, swap: int | str | None = None) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.max").write_text(f"{limit}\n")
    (folder / "memory.current").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(
        f"anon 5\nworkingset_inactive_file 99\ninactive_file {cache // 2}\nactive_file {cache // 4}\n"
        f"slab_reclaimable {cache // 4}\nslab 3\n"
    )
    if swap is not None:
        (folder / "memory.swap.max").write_text(f"{swap}\n")
        (folder / "memory.swap.current").write_text(f"{10 * MB}\n")


def v1(folder: Path, limit: int, used: int, cache: int = 0, with_swap: int | None = None, swapped: int = 0) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "memory.limit_in_bytes").write_text(f"{limit}\n")
    (folder / "memory.usage_in_bytes").write_text(f"{used}\n")
    (folder / "memory.stat").write_text(
        f"inactive_file 1\nactive_file 1\nhierarchical_memory_limit 5\ntotal_inactive_file {cache // 2}\n"
        f"total_active_file {cache // 2}\n"
    )
    if with_swap is not None:
        (folder / "memory.memsw.limit_in_bytes").write_text(f"{with_swap}\n")
        (folder / "memory.memsw.usage_in_bytes").write_text(f"{used + swapped}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Tree:
    made = Tree(tmp_path)
    made.machine(available=32 * GB)
    return made


def test_nothing_known(tmp_path: Path) -> None:
    assert room(str(tmp_path / "nowhere")) is None
    (tmp_path / "meminfo").mkdir()  # not a file
    assert room(str(tmp_path)) is None
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_bytes(b"\xff\n:\n4:memory\n0::\n")
    (tmp_path / "self" / "mountinfo").write_bytes(b"\xff - \n\n1 2 - cgroup2\n1 2 3 4 5 - cgroup2 x rw\n")
    assert room(str(tmp_path)) is None


def test_the_machine_alone(tree: Tree) -> None:
    assert room(str(tree.proc)) == Room(32 * GB, 64 * GB, MACHINE)
    tree.machine(available=32 * GB, swap_free=8 * GB)
    assert room(str(tree.proc)) == Room(40 * GB, 64 * GB, MACHINE)


def test_version_2_cache_counts_as_free(tree: Tree) -> None:
    tree.own("0::/jobs/mine")
    v2(tree.mount("cg two", "cgroup2", "rw,nsdelegate") / "jobs" / "mine", 4 * GB, 3 * GB, cache=2 * GB)
    assert room(str(tree.proc)) == Room(3 * GB, 4 * GB, CONTAINER_V2)


@pytest.mark.parametrize(("mine", "around", "free"), [(4, 8, 3), (8, 4, 2), ("max", 4, 2), (4, "max", 3)])
def test_version_2_the_tightest_of_all_around_counts(tree: Tree, mine: int | str, around: int | str, free: int) -> None:
    tree.own("0::/jobs/mine")
    mount = tree.mount("cg", "cgroup2", "rw")
    v2(mount / "jobs" / "mine", mine * GB if isinstance(mine, int) else mine, 1 * GB)
    v2(mount / "jobs", around * GB if isinstance(around, int) else around, 2 * GB)
    found = room(str(tree.proc))
    assert found is not None
    assert (found.free, found.which) == (free * GB, CONTAINER_V2)


def test_version_2_the_mount_itself_counts(tree: Tree) -> None:
    tree.own("0::/a/b")
    mount = tree.mount("cg", "cgroup2", "rw")
    (mount / "a" / "b").mkdir(parents=True)
    v2(mount, 2 * GB, 1 * GB)
    assert room(str(tree.proc)) == Room(1 * GB, 2 * GB, CONTAINER_V2)


@pytest.mark.parametrize(
    ("allowed", "machine", "more"),
    [(None, 1000, 0), (0, 1000, 0), (110 * MB, 1000, 100), (110 * MB, 30, 30), ("max", 50, 50)],
)
def test_version_2_swap_counts_as_far_as_it_is_allowed_and_there(
    tree: Tree, allowed: int | str | None, machine: int, more: int
) -> None:
    tree.machine(32 * GB, swap_free=machine * MB)
    tree.own("0::/")
    v2(tree.mount("cg", "cgroup2", "rw"), 2 * GB, 1 * GB, swap=allowed)
    assert room(str(tree.proc)) == Room(1 * GB + more * MB, 2 * GB, CONTAINER_V2)


@pytest.mark.parametrize("path", ["/docker/abc", "/../../elsewhere", "/", ""])
def test_inside_a_container_the_mount_is_ours_when_our_path_is_not_there(tree: Tree, path: str) -> None:
    tree.own(f"0::{path}")
    v2(tree.mount("cg", "cgroup2", "rw"), 2 * GB, 1 * GB)
    assert room(str(tree.proc)) == Room(1 * GB, 2 * GB, CONTAINER_V2)


def test_a_mount_that_shows_a_part_of_the_hierarchy(tree: Tree) -> None:
    tree.own("5:memory:/docker/abc/inner", "0::/")
    mount = tree.mount("cg", "cgroup", "rw,memory", root="/docker/abc")
    v1(mount / "inner", 1 * GB, 100 * MB)
    v1(mount, 2 * GB, 1 * GB + 200 * MB)
    assert room(str(tree.proc)) == Room(2 * GB - 1 * GB - 200 * MB, 2 * GB, CONTAINER_V1)


def test_version_1_in_its_hierarchy_beside_version_2_without_memory(tree: Tree) -> None:
    tree.own("9:name=systemd:/x", "4:cpu,memory:/jobs/mine", "0::/")
    tree.mount("cpu", "cgroup", "rw,cpu")
    tree.mount("unified", "cgroup2", "rw")
    mount = tree.mount("memory", "cgroup", "rw,cpu,memory")
    v1(mount, V1_UNLIMITED, 20 * GB)
    v1(mount / "jobs", V1_UNLIMITED, 5 * GB)
    v1(mount / "jobs" / "mine", 4 * GB, 3 * GB, cache=1 * GB)
    assert room(str(tree.proc)) == Room(2 * GB, 4 * GB, CONTAINER_V1)
    v1(mount / "jobs", 6 * GB, 5 * GB)
    assert room(str(tree.proc)) == Room(1 * GB, 6 * GB, CONTAINER_V1)


@pytest.mark.parametrize(("with_swap", "more"), [(None, 0), (2 * GB, 0), (2 * GB + 50 * MB, 40), (V1_UNLIMITED, 1000)])
def test_version_1_swap(tree: Tree, with_swap: int | None, more: int) -> None:
    tree.machine(32 * GB, swap_free=1000 * MB)
    tree.own("4:memory:/")
    v1(tree.mount("memory", "cgroup", "rw,memory"), 2 * GB, 1 * GB, with_swap=with_swap, swapped=10 * MB)
    assert room(str(tree.proc)) == Room(1 * GB + more * MB, 2 * GB, CONTAINER_V1)


def test_the_machine_may_be_tighter_than_the_container(tree: Tree) -> None:
    tree.machine(available=1 * GB)
    tree.own("0::/")
    v2(tree.mount("cg", "cgroup2", "rw"), 8 * GB, 1 * GB)
    assert room(str(tree.proc)) == Room(1 * GB, 64 * GB, MACHINE)


def test_more_used_than_allowed_leaves_nothing(tree: Tree) -> None:
    tree.own("0::/")
    v2(tree.mount("cg", "cgroup2", "rw"), 1 * GB, 2 * GB)
    assert room(str(tree.proc)) == Room(0, 1 * GB, CONTAINER_V2)


def test_a_process_that_is_moved_is_looked_for_anew(tree: Tree) -> None:
    mount = tree.mount("cg", "cgroup2", "rw")
    v2(mount / "one", 2 * GB, 1 * GB)
    v2(mount / "two", 9 * GB, 1 * GB)
    for name, free in (("one", 1), ("two", 8), ("one", 1)):
        tree.own(f"0::/{name}")
        found = room(str(tree.proc))
        assert found is not None
        assert found.free == free * GB


def test_this_machine() -> None:
    found = room()
    assert found is not None
    assert found.free > 0
    assert found.limit > 0


# What the segment makes of it


class Rooms:
    """Says how much there is, each time less, and counts who asks."""

    def __init__(self, *free: int, limit: int = 1 * GB) -> None:
        self.free, self.limit, self.looks = list(free), limit, 0

    def __call__(self) -> Room:
        self.looks += 1
        return Room(self.free[0] if len(self.free) == 1 else self.free.pop(0), self.limit, MACHINE)


@pytest.fixture
def small() -> Iterator[Segment]:
    made = Segment()
    yield made
    made.close()


def held(segment: Segment) -> int:
    return os.fstat(segment.fd).st_blocks * 512


def test_large_growth_is_refused_when_it_would_touch_the_reserve(
    small: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = Rooms(8 * MB + RESERVE - 1)
    monkeypatch.setattr(segment_module, "room", rooms)
    with pytest.raises(MemoryShortage, match="batch_size") as caught:
        small.allocate(1, 4 * MB, 12 * MB)
    for number in (12 * MB, 8 * MB, 8 * MB + RESERVE - 1, 1 * GB, RESERVE):
        assert f"{number:,}" in str(caught.value)
    assert "machine" in str(caught.value)
    assert held(small) == 0
    rooms.free = [8 * MB + RESERVE]
    small.allocate(1, 4 * MB, 12 * MB)
    assert held(small) == 8 * MB


def test_growth_that_runs_out_on_the_way_is_given_back(small: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    small.allocate(1, 0, MB)
    monkeypatch.setattr(segment_module, "room", Rooms(1 * GB, 1 * GB, RESERVE + MB))  # somebody else was quicker
    with pytest.raises(MemoryShortage):
        small.allocate(1, MB, MB + 4 * STEP)
    assert held(small) == MB


def test_small_growth_is_looked_at_now_and_then_and_the_smallest_never(
    small: Segment, monkeypatch: pytest.MonkeyPatch
) -> None:
    rooms = Rooms(1 * GB)
    monkeypatch.setattr(segment_module, "room", rooms)
    for slot in range(1, 33):
        small.allocate(slot, 0, MB // 2)
    assert rooms.looks == 16 * MB // LOOK
    rooms.free = [0]
    for slot in range(100, 300):
        small.allocate(slot, 0, UNSEEN - 1)
    for slot in range(300, 300 + 2 * LOOK // MB - 1):
        small.allocate(slot, 0, MB // 2)
    for slot in (400, 401):  # none now, and still none then
        with pytest.raises(MemoryShortage):
            small.allocate(slot, 0, MB // 2)
    small.allocate(500, 0, UNSEEN - 1)


def test_the_reserve_is_larger_in_large_containers(small: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    for limit, reserve in ((GB, RESERVE), (8 * GB, 128 * MB), (1024 * GB, 8 * RESERVE)):
        monkeypatch.setattr(segment_module, "room", Rooms(reserve + 5 * MB - 1, limit=limit))
        with pytest.raises(MemoryShortage, match=f"and {reserve:,} stay free"):
            small.allocate(1, 0, 5 * MB)


def test_what_is_not_known_refuses_nothing(small: Segment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segment_module, "room", lambda: None)
    small.allocate(1, 0, 40 * MB)
    assert held(small) == 40 * MB
