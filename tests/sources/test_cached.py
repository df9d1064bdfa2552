"""A cache on disk: the place's own bytes, within its bound, whoever shares it and however they end."""

from __future__ import annotations

import errno
import fcntl
import multiprocessing
import os
import pickle
import resource
import select
import subprocess
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import killed_at_every_line
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from killed_at_every_line import SIZE, content, counted, entries, in_child, taken
from kinds import few
from warm_host import host

from feedline import OptionError, OptionTypeError
from feedline.sources import CachedPlace, cache_folder
from feedline.sources.cache_folder import HEAD, CacheFolder
from feedline.sources.places import Folder, StoredFile


class Counted(Folder):
    """Notes what is asked for."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.asked: list[str] = []

    def read_many(self, names: Sequence[str]) -> list[bytes]:
        self.asked += names
        return super().read_many(names)


@pytest.fixture
def far(tmp_path: Path) -> Counted:
    folder = tmp_path / "far"
    folder.mkdir()
    for number in range(10):
        (folder / str(number)).write_bytes(content(number))
    return Counted(folder)


class TestAsAPlace:
    def test_each_object_is_asked_for_once(self, far: Counted, tmp_path: Path) -> None:
        place = CachedPlace(far, tmp_path / "near", max_bytes=100_000)
        assert place.read_many(["1", "2", "1"]) == [content(1), content(2), content(1)]
        assert place.read_many(["3", "2", "1"]) == [content(3), content(2), content(1)]
        assert pickle.loads(pickle.dumps(place)).read("3") == content(3)
        assert far.asked == ["1", "2", "3"]

    def test_the_rest_is_the_places_own(self, far: Counted, tmp_path: Path) -> None:
        place = CachedPlace(far, tmp_path / "near", max_bytes=100_000)
        assert place.read_range("1", 2, 5) == content(1)[2:5]
        assert place.size("1") == SIZE
        assert place.list("1") == [StoredFile("1", SIZE)]
        assert place.url_of("1") == str(far.path / "1")
        with pytest.raises(FileNotFoundError, match="none"):
            place.read("none")

    def test_places_do_not_mix(self, far: Counted, tmp_path: Path) -> None:
        other = tmp_path / "other"
        other.mkdir()
        (other / "1").write_bytes(b"another")
        assert CachedPlace(far, tmp_path / "near", max_bytes=100_000).read("1") == content(1)
        assert CachedPlace(other, tmp_path / "near", max_bytes=100_000).read("1") == b"another"

    def test_a_folder_means_another_one_elsewhere(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        for name in ("here", "there"):
            (tmp_path / name / "data").mkdir(parents=True)
            (tmp_path / name / "data" / "1").write_text(name)
            monkeypatch.chdir(tmp_path / name)
            assert CachedPlace("data", tmp_path / "near", max_bytes=100_000).read("1") == name.encode()

    def test_a_place_must_say_which_it_is(self, far: Counted, tmp_path: Path) -> None:
        class Nameless:
            read_many = far.read_many

        with pytest.raises(OptionTypeError, match=r"place must have a __repr__ that names it.* of Nameless"):
            CachedPlace(Nameless(), tmp_path / "near", max_bytes=100_000)  # type: ignore[arg-type]

    def test_options(self, far: Counted, tmp_path: Path) -> None:
        with pytest.raises(OptionError, match="max_bytes must be at least 1"):
            CachedPlace(far, tmp_path, max_bytes=0)
        with pytest.raises(OptionError, match="folder must be the path of a folder; got 7"):
            CachedPlace(far, 7, max_bytes=1)  # type: ignore[arg-type]
        with pytest.raises(OptionError, match="folder is an empty text"):
            CachedPlace(far, "", max_bytes=1)


class TestWithinItsBound:
    def test_least_recently_used_goes_first(self, tmp_path: Path) -> None:
        folder = CacheFolder(tmp_path, 5000)
        for number in range(4):
            folder.put(b"%d" % number, content(number))
        assert folder.get(b"0") == content(0)
        folder.put(b"4", content(4))
        folder.put(b"5", content(5))  # does not fit: a tenth and what it takes itself must be free
        assert [folder.get(b"%d" % number) is not None for number in range(6)] == [True, False, False, True, True, True]

    def test_times_of_use_are_exact(self, tmp_path: Path) -> None:
        """A file system's own clock goes in steps of some milliseconds, in which many entries come and go."""
        folder, earlier = CacheFolder(tmp_path, 100_000), time.time_ns()
        for number in range(5):
            folder.put(b"%d" % number, content(number))
            found = folder._path_of(b"%d" % number).stat().st_mtime_ns
            assert earlier <= found <= (earlier := time.time_ns())

    def test_what_is_not_its_own_is_left_alone(self, tmp_path: Path) -> None:
        """A folder that was in use before: none of this is counted, and none of it goes."""
        kept = ["writing/novel.txt", "thesis/final.tex", "ab/notes.txt", f"ab/{'0' * 38}.entry.bak", "ab/cd/x.entry"]
        for name in kept:
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_bytes(bytes(5000))
        cache = CacheFolder(tmp_path, 2500)
        for number in range(5):
            assert cache.put(b"%d" % number, content(number)) is None
        assert [(tmp_path / name).stat().st_size for name in kept] == [5000] * len(kept)
        assert cache.get(b"4") == content(4)

    def test_what_is_too_large_is_not_kept(self, tmp_path: Path) -> None:
        folder = CacheFolder(tmp_path, 1000)
        folder.put(b"1", content(1))
        folder.put(b"2", content(2, SIZE + 1))
        assert folder.get(b"1") == content(1)
        assert folder.get(b"2") is None
        assert taken(tmp_path) == 1000

    @settings(max_examples=few(60))
    @given(
        bound=st.integers(100, 3000),
        steps=st.lists(st.tuples(st.integers(0, 7), st.integers(0, 900), st.booleans()), max_size=30),
    )
    def test_never_above(self, tmp_path_factory: pytest.TempPathFactory, bound: int, steps: Any) -> None:
        path = tmp_path_factory.mktemp("near")
        folder, kept = CacheFolder(path, bound), dict[bytes, bytes]()
        for number, size, again in steps:
            key = b"%d" % number
            assert folder.get(key) in (None, kept.get(key))
            if folder.get(key) is None:
                kept[key] = content(number, size)
                folder.put(key, kept[key])
            if again:
                folder = CacheFolder(path, bound)
            assert taken(path) <= bound
            assert not entries(path) or taken(path) <= counted(path) <= bound

    @pytest.mark.parametrize("damage", [b"", b"1234567"])
    def test_a_lost_count_is_made_again(self, tmp_path: Path, damage: bytes) -> None:
        CacheFolder(tmp_path, 2000).put(b"1", content(1))
        (tmp_path / "total").write_bytes(damage)
        CacheFolder(tmp_path, 2000).put(b"2", content(2))
        CacheFolder(tmp_path, 2000).put(b"3", content(3))
        assert taken(tmp_path) == counted(tmp_path) == 1000

    def test_what_others_deleted_is_noticed(self, tmp_path: Path) -> None:
        folder = CacheFolder(tmp_path, 3000)
        for number in range(3):
            folder.put(b"%d" % number, content(number))
        for path in entries(tmp_path):
            path.unlink()
        folder.put(b"3", content(3))
        assert counted(tmp_path) == taken(tmp_path) == 1000


DAMAGES: dict[str, Callable[[bytes], bytes]] = {
    "emptied": lambda whole: b"",
    "cut in its head": lambda whole: whole[:5],
    "cut in its body": lambda whole: whole[:-1],
    "longer": lambda whole: whole + b"x",
    "a bit turned": lambda whole: whole[:500] + bytes([whole[500] ^ 1]) + whole[501:],
    "zeroed, as after a power cut": lambda whole: bytes(len(whole)),
    "another's head": lambda whole: HEAD.pack(b"feedline", SIZE, 0) + whole[HEAD.size :],
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_entry_is_read_again(far: Counted, tmp_path: Path, damage: str) -> None:
    place = CachedPlace(far, tmp_path / "near", max_bytes=100_000)
    place.read("1")
    (path,) = entries(tmp_path / "near")
    path.write_bytes(DAMAGES[damage](path.read_bytes()))
    assert place.read("1") == content(1)
    assert far.asked == ["1", "1"]
    assert place.read("1") == content(1)
    assert far.asked == ["1", "1"]


class TestKilled:
    @pytest.mark.parametrize("bound", [3000, 10_000])
    def test_at_every_line(self, tmp_path: Path, bound: int) -> None:
        """Storing an entry, for which others may have to go, a process is killed at each line of the code in turn."""
        program = [killed_at_every_line.__file__, str(tmp_path), str(bound)]
        done = host("feedline").run(program, 600, check=True)
        assert int(done.stdout) > 30  # all of them

    def test_while_writing(self, tmp_path: Path) -> None:
        """Large entries, so that most of the time is spent in writing them."""
        ready, tell = os.pipe2(os.O_CLOEXEC)

        def store_for_ever() -> None:
            folder, number = CacheFolder(tmp_path, 20_000_000), 0
            while True:
                number += 1
                os.write(tell, b".")
                folder.put(b"%d" % (number % 8), content(number % 8, 4_000_000))
                os.unlink(folder._path_of(b"%d" % (number % 8)))

        for _ in range(12):
            process = multiprocessing.get_context("fork").Process(target=store_for_ever)
            process.start()
            os.read(ready, 1)  # it is about to write
            process.kill()
            process.join()
            process.close()
            while select.select([ready], [], [], 0)[0]:  # what it told before it died
                os.read(ready, 100)
            for number in range(8):
                assert CacheFolder(tmp_path, 20_000_000).get(b"%d" % number) in (None, content(number, 4_000_000))
        os.close(ready)
        os.close(tell)
        CacheFolder(tmp_path, 20_000_000).put(b"last", b"")
        assert list((tmp_path / "writing").iterdir()) == []

    def test_what_the_dead_left_goes_when_room_is_made(self, tmp_path: Path) -> None:
        folder = CacheFolder(tmp_path, 3000)
        folder.put(b"0", content(0))
        (tmp_path / "writing" / ("ab" * 8)).write_bytes(b"unfinis")
        folder.put(b"1", content(1))
        assert len(list((tmp_path / "writing").iterdir())) == 1  # not looked at each time
        folder.put(b"2", content(2))
        folder.put(b"3", content(3))
        assert list((tmp_path / "writing").iterdir()) == []

    def test_what_is_being_written_is_left_alone(self, tmp_path: Path) -> None:
        """…by those who clean up after the dead."""
        path = tmp_path / "near"
        in_the_middle: list[int] = []

        class Slow(CacheFolder):
            def _let_in(self, written: Path, to: Path, size: int) -> None:
                other = CacheFolder(path, 3000)
                for number in range(5):
                    other.put(b"%d" % number, content(number))
                in_the_middle.append(len(list(written.parent.iterdir())))
                super()._let_in(written, to, size)

        assert Slow(path, 3000).put(b"mine", content(9)) is None
        assert in_the_middle == [1]
        assert CacheFolder(path, 3000).get(b"mine") == content(9)

    def test_a_cleaner_that_comes_before_it_is_locked_does_not_lose_it(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Two workers that begin at once: one's file was taken for a dead one's, and its object was not kept."""
        lock, came = fcntl.flock, []

        def lock_late(descriptor: int, how: int) -> None:
            if how == fcntl.LOCK_EX and len(came) < 2:  # it has been made, and nobody has locked it
                came.append(how)
                CacheFolder(tmp_path, 3000)._remove_unfinished()
            lock(descriptor, how)

        monkeypatch.setattr(cache_folder.fcntl, "flock", lock_late)
        assert CacheFolder(tmp_path, 3000).put(b"mine", content(9)) is None
        assert len(came) == 2
        assert CacheFolder(tmp_path, 3000).get(b"mine") == content(9)
        assert list((tmp_path / "writing").iterdir()) == []


def test_shared_by_processes_that_store_the_same_and_throw_it_away(tmp_path: Path) -> None:
    def work(seed: int) -> None:
        folder = CacheFolder(tmp_path, 8000)
        for step in range(300):
            number = (step * 7 + seed * 3 + step // 11) % 20
            data = folder.get(b"%d" % number)
            assert data in (None, content(number))
            if data is None:
                assert folder.put(b"%d" % number, content(number)) is None
            assert step % 20 or taken_now(tmp_path) <= 8000

    context = multiprocessing.get_context("fork")
    processes = [context.Process(target=work, args=(seed,)) for seed in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
        assert process.exitcode == 0
        process.close()
    assert taken(tmp_path) == counted(tmp_path) <= 8000
    assert list((tmp_path / "writing").iterdir()) == []


def taken_now(folder: Path) -> int:
    """While others are at work: with the lock, since a look at the files takes time in which they come and go."""
    with CacheFolder(folder, 1)._locked():
        return taken(folder)


class TestUnusable:
    def test_no_folder_can_be_made(self, far: Counted, tmp_path: Path) -> None:
        (tmp_path / "file").write_bytes(b"")
        place = CachedPlace(far, tmp_path / "file" / "near", max_bytes=100_000)
        with pytest.warns(
            RuntimeWarning, match=r"file/near cannot be written .*Not a directory.*another folder"
        ) as said:
            assert place.read_many(["1", "2"]) == [content(1), content(2)]
        assert len(said) == 1
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert place.read("1") == content(1)

    def test_a_file_cannot_be_written(self, far: Counted, tmp_path: Path) -> None:
        def child() -> None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (500, 500))
            place = CachedPlace(far, tmp_path / "near", max_bytes=100_000)
            with pytest.warns(RuntimeWarning, match="File too large"):
                assert place.read_many(["1", "2"]) == [content(1), content(2)]
            assert place.read("1") == content(1)

        assert in_child(child) == 0
        assert entries(tmp_path / "near") == []
        assert list((tmp_path / "near" / "writing").iterdir()) == []

    def test_a_full_disk(self, far: Counted, small_disk: Path) -> None:
        names = [f"large {number}" for number in range(100)]
        for number, name in enumerate(names):
            (far.path / name).write_bytes(content(number, 8000))
        place = CachedPlace(far, small_disk, max_bytes=10_000_000)
        for _ in range(2):
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                assert place.read_many(names) == [content(number, 8000) for number in range(100)]
            if not far.asked[100:]:
                assert len(said) == 1
                assert "No space left on device" in str(said[0].message)
                assert "smaller max_bytes" in str(said[0].message)
        assert said == []
        assert 0 < len(entries(small_disk)) < 100
        assert len(far.asked) == 200 - len(entries(small_disk))  # what is there is still read from there


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(disk)]
    if os.getuid() or subprocess.run(mount, capture_output=True).returncode:
        pytest.skip("only root can mount a small disk")
    yield disk
    subprocess.run(["umount", str(disk)], check=True)


def test_errors_are_the_systems_own(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    refused = CacheFolder(tmp_path / "file", 10_000).put(b"1", b"x")
    assert refused is not None
    assert refused.errno == errno.ENOTDIR
