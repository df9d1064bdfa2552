"""Samples kept after first use: the same samples, never aliased, never those of other data, whoever is killed."""

from __future__ import annotations

import datetime
import errno
import os
import pickle
import random
import re
import subprocess
import sys
import tempfile
import warnings
from collections import namedtuple
from collections.abc import Callable
from fcntl import LOCK_EX, LOCK_NB, flock
from functools import partial
from pathlib import Path
from typing import Any, cast

import numpy as np
import packs_killed_at_every_line
import pytest
from contract import MapContract, plain
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from kinds import FORK, INLINE, SPAWN, THREADS, few

from feedline import DataLoader, MemoryShortage, OptionError, OptionTypeError, cached, default_collate, materialize, rng
from feedline.arena import segment
from feedline.arena.limits import Room
from feedline.sources import FilesDataset, ParquetDataset, SoundDataset
from feedline.sources.cache_folder import CacheFolder
from feedline.sources.samples import pack_memory, sample_cache
from feedline.sources.samples.identity import identity_of
from feedline.sources.samples.pack_folder import PackFolder
from feedline.sources.samples.pack_memory import PackMemory
from feedline.sources.samples.packs import ENTRY
from feedline.sources.samples.records import gather, pack, unpack

COUNT = 30


class Decoding:
    """Samples that are made anew each time; a file says which, also in other processes."""

    def __init__(self, read: Path, count: int = COUNT, add: int = 0) -> None:
        self.read, self.count, self.add = str(read), count, add

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> dict[str, Any]:
        with open(self.read, "a") as file:
            file.write(f"{index}\n")
        return sample(index, self.add)

    def describe(self, index: int) -> str:
        return f"number {range(self.count)[index]}"

    def reads(self) -> list[int]:
        return sorted(map(int, Path(self.read).read_text().split())) if os.path.exists(self.read) else []


def sample(index: int, add: int = 0) -> dict[str, Any]:
    return {"x": np.full((3, 5), index + add, np.float32), "label": index, "pair": (index / 2, np.int16(index))}


@pytest.fixture(params=["folder", "memory"])
def where(request: Any, tmp_path: Path) -> Any:
    return "memory" if request.param == "memory" else tmp_path / "cache"


@pytest.fixture
def data(tmp_path: Path) -> Decoding:
    return Decoding(tmp_path / "read")


class TestCached(MapContract):
    @pytest.fixture
    def source(self, data: Decoding, tmp_path: Path) -> Any:
        return cached(data, tmp_path / "cache", max_bytes=1_000_000)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [sample(number) for number in range(COUNT)]


@pytest.mark.parametrize("kind", [INLINE, THREADS, FORK, SPAWN])
def test_a_second_epoch_reads_nothing_whoever_made_the_first(where: Any, data: Decoding, kind: dict[str, Any]) -> None:
    kept = cached(data, where, max_bytes=8 << 20)
    expected = default_collate([sample(number) for number in range(COUNT)])
    for _ in range(2):
        with DataLoader(kept, batch_size=7, **kind) as loader:
            batches = list(loader)
        assert plain(np.concatenate([batch["x"] for batch in batches])) == plain(expected["x"])
        assert plain(np.concatenate([batch["pair"][1] for batch in batches])) == plain(expected["pair"][1])
    assert data.reads() == list(range(COUNT))
    again = cached(data, where, max_bytes=8 << 20)  # as another rank, or another run if it is a folder
    assert plain(list(again)) == plain([sample(number) for number in range(COUNT)])
    assert data.reads() == list(range(COUNT))
    assert again.stored() == COUNT


@pytest.fixture
def lists(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of the lists that say who has which memory: its own, since another run of the tests has lists too."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return tmp_path


def in_memory(lists: Path) -> list[Path]:
    return [*lists.glob(f"feedline-{os.getuid()}-*-{'?' * 32}")]


def test_memory_is_free_when_the_last_has_gone(data: Decoding, lists: Path) -> None:
    one, two = cached(data, "memory"), cached(data, "memory")
    one[0]
    two[0]
    assert data.reads() == [0]
    assert in_memory(lists)
    del one
    assert two.stored() == 1
    del two
    assert not in_memory(lists)
    assert cached(data, "memory").stored() == 0


ELSEWHERE = """
import os, signal, sys
from feedline import cached
data = cached([10, 20, 30], "memory", key=sys.argv[1])
print(data.stored(), data[1], data.stored(), flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def elsewhere(key: str) -> str:
    return subprocess.run([sys.executable, "-c", ELSEWHERE, key], capture_output=True, text=True).stdout


def test_processes_that_are_no_relatives_share_memory(tmp_path: Path) -> None:
    """As the ranks of a machine do; and after the first of them was killed, nothing of it is left."""
    assert elsewhere(str(tmp_path)) == "0 20 1\n"
    own = cached([10, 20, 30], "memory", key=str(tmp_path))
    assert own.stored() == 0
    own[0]
    assert elsewhere(str(tmp_path)) == "1 20 2\n"
    assert [own.stored(), *own] == [2, 10, 20, 30]
    copy = pickle.loads(pickle.dumps(own))
    del own
    assert copy.stored() == 3


def test_another_container_does_not_forget_where_ours_is(tmp_path: Path) -> None:
    """With a folder for temporary files in common: the numbers of processes say something else there."""
    own = cached([10, 20, 30], "memory", key=str(tmp_path))
    own[0]
    apart = ["unshare", "--pid", "--fork", "--mount-proc", "--kill-child"]
    program = ELSEWHERE.replace("os.kill(", "del data #")
    run = subprocess.run([*apart, sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True)
    if run.returncode and "unshare" in run.stderr:
        pytest.skip("this machine lets nobody make a namespace of processes")
    assert run.stdout == "0 20 1\n", run
    assert elsewhere(str(tmp_path)) == "1 20 2\n"
    assert own.stored() == 2


def test_more_memory_than_there_is_is_refused(data: Decoding, lists: Path) -> None:
    with pytest.raises(OptionError, match=r"are free for a cache in memory\. Give a smaller max_bytes, more memory"):
        cached(data, "memory", max_bytes=1 << 60)
    assert not in_memory(lists)
    kept = cached(data, "memory", max_bytes=1 << 20)
    with pytest.raises(OptionError, match="are free for a cache in memory"):
        cached(data, "memory", max_bytes=1 << 60)
    again = cached(data, "memory", max_bytes=1 << 21)
    assert kept._store._board[pack_memory.BOUND] == 1 << 21  # type: ignore[attr-defined]
    del again


@pytest.fixture
def little_memory(monkeypatch: pytest.MonkeyPatch) -> Callable[[int], None]:
    """The container has this much left."""

    def left(free: int) -> None:
        for module in (segment, pack_memory):
            monkeypatch.setattr(module, "room", lambda: Room(free, 1 << 30, "container"))

    return left


def test_without_memory_reading_goes_on_without_the_cache(little_memory: Callable[[int], None]) -> None:
    data = [np.full(1 << 20, number, np.uint8) for number in range(12)]
    kept = cached(data, "memory", key="little")
    kept[0]
    little_memory(0)
    with pytest.warns(
        RuntimeWarning, match=r"the cache in memory cannot be written \(no memory for .* container may use"
    ):
        assert plain(list(kept)) == plain(data)
    assert kept.stored() < 12


def test_memory_that_cannot_be_mapped_is_not_read_and_not_written(
    data: Decoding, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As under ulimit -v."""
    one, two = cached(data, "memory"), cached(data, "memory")
    one[0]

    def refused(*_: Any, **__: Any) -> Any:
        raise MemoryShortage("could not be mapped")

    monkeypatch.setattr(segment.Segment, "map", refused)
    with pytest.warns(RuntimeWarning, match=r"cannot be written \(could not be mapped"):
        assert plain([two[0], two[1]]) == plain([sample(0), sample(1)])
    monkeypatch.undo()
    assert one.stored() == 1
    assert plain(list(one)) == plain([sample(number) for number in range(COUNT)])


def test_what_is_kept_in_memory_is_given_back_if_batches_need_it() -> None:
    data = [np.full(1 << 19, number, np.uint8) for number in range(16)]
    kept = cached(data, "memory", max_bytes=32 << 20)
    list(kept)
    before = kept._store._segment.used()  # type: ignore[attr-defined]
    assert any(give() for give in segment.givers)
    assert kept.stored() == 16 - pack_memory.GIVEN
    assert kept._store._segment.used() < before - (pack_memory.GIVEN << 18)  # type: ignore[attr-defined]
    assert all(int(kept[number][0]) == number for number in range(16))
    assert kept.stored() == 16


def test_what_is_removed_while_it_is_read_is_read_again(data: Decoding, monkeypatch: pytest.MonkeyPatch) -> None:
    """The memory is zero then."""
    kept = cached(data, "memory", max_bytes=8 << 20)

    def emptied(*given: Any) -> Any:
        while any(give() for give in segment.givers):
            pass
        return given

    list(kept)
    monkeypatch.setattr(sample_cache, "gather", lambda *given: gather(*emptied(*given)))
    assert kept.__getbatch__(np.arange(3), np.empty) is NotImplemented
    monkeypatch.undo()
    list(kept)
    assert kept.__getbatch__(np.arange(3), lambda *given: np.empty(*emptied(*given))) is NotImplemented
    list(kept)
    monkeypatch.setattr(pack_memory, "bytes", lambda record: bytes(*emptied(record)), raising=False)
    assert plain(kept[4]) == plain(sample(4))
    monkeypatch.undo()
    with DataLoader(kept, batch_size=COUNT) as loader:
        (batch,) = loader
    assert plain(batch["x"]) == plain(default_collate([sample(number) for number in range(COUNT)])["x"])


def test_who_sees_a_removal_no_longer_finds_the_pack(data: Decoding) -> None:
    """Otherwise it would find nothing removed between its two looks, and take zeros for a sample."""
    kept = cached(data, "memory", max_bytes=8 << 20)
    list(kept)
    opened, seen = cast(Any, kept._store._opened()), []

    class Watched:
        def __init__(self, board: Any) -> None:
            self.board = board

        def __getitem__(self, at: int) -> int:
            return int(self.board[at])

        def __setitem__(self, at: int, value: int) -> None:
            self.board[at] = value
            if at == pack_memory.REMOVALS:
                seen.append(opened.view(number))

    number = opened.entry(0)[0]
    row = next(row for row in pack_memory.ROWS if opened.board[row] == number)
    opened.board = Watched(opened.board)
    opened._free(row)
    assert seen == [None]


@pytest.mark.parametrize("later", ["view", "sweep"])
def test_who_reads_what_is_removed_takes_no_memory_for_it(later: str) -> None:
    """Reading a hole of a shared mapping fills it with a page."""
    memory = PackMemory("holes", 3, 8 << 20)
    memory.write(0, bytes(90_000))
    opened = cast(Any, memory._opened())
    number = opened.entry(0)[0]
    view = opened.view(number)
    assert opened._give()
    before = memory._segment.used()
    bytes(view)  # it is in the middle of that
    assert memory._segment.used() >= before + 90_000
    opened.swept = float("-inf")
    opened.view(number) if later == "view" else opened.sweep()
    assert memory._segment.used() == before


@pytest.mark.parametrize("kind", ["folder", "memory"])
def test_packs_that_others_removed_are_let_go(tmp_path: Path, kind: str) -> None:
    """Also if no entry leads to them any more: the disk would stay full."""

    def opened() -> Any:
        return PackFolder(tmp_path, "a", 300, 64_000) if kind == "folder" else PackMemory("let go", 300, 64 * 8192)

    one, other = opened(), opened()
    before = len(segment.mappings)
    for number in range(300):
        other.write(number % 100, bytes([number % 256]) * 5_000)
        one.read(number % 100)
        one._opened().swept = other._opened().swept = float("-inf")  # a second has passed
    there = len(list(tmp_path.glob("a/*.pack"))) if kind == "folder" else 64
    assert len(one._opened()._mapped) <= there + 1
    assert len(segment.mappings) - before <= 2 * 65


# --- what is delivered ---


@pytest.mark.parametrize("many", [False, True])
def test_what_is_delivered_is_the_readers_own(data: Decoding, tmp_path: Path, many: bool) -> None:
    kept = cached(data, tmp_path / "cache")
    for _ in range(3):
        got = kept.__getitems__([4])[0] if many else kept[4]
        assert plain(got) == plain(sample(4))
        got["x"] += 1
    one, two = kept.__getitems__([5, 5])
    one["x"] += 1
    assert plain(two) == plain(sample(5))
    with DataLoader(kept, batch_size=COUNT) as loader:
        for _ in range(3):
            (batch,) = loader
            assert plain(batch["x"][4]) == plain(sample(4)["x"])
            batch["x"] += 1


Pair = namedtuple("Pair", "x y")
VALUES = st.one_of(
    st.integers(),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(max_size=5),
    st.binary(max_size=5),
    st.none(),
    hnp.arrays(hnp.scalar_dtypes() | hnp.unicode_string_dtypes(), hnp.array_shapes(min_dims=0, min_side=0, max_side=4)),
    hnp.scalar_dtypes().flatmap(lambda dtype: hnp.arrays(dtype, ()).map(lambda array: array[()])),
    st.sampled_from([Pair(1, np.ones(2)), datetime.date(2026, 1, 1), np.ma.masked_array([1, 2], [0, 1]), 1 << 70]),
)
SAMPLES = st.recursive(
    VALUES,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(inner, max_size=3).map(tuple),
        st.dictionaries(st.text(max_size=3), inner, max_size=3),
    ),
    max_leaves=5,
)


@settings(max_examples=few(400), deadline=None)
@given(sample=SAMPLES)
def test_a_record_is_the_sample(sample: Any) -> None:
    got = unpack(memoryview(pack(sample)))
    assert pickle.dumps(got, 2) == pickle.dumps(pickle.loads(pickle.dumps(sample, 5)), 2) or _same(got, sample)


@pytest.mark.parametrize("dtype", ["bfloat16", "float8_e4m3fn", "int4"])
def test_a_record_keeps_numbers_of_other_libraries(dtype: str) -> None:
    """Their types have names that NumPy reads as plain bytes."""
    given = np.arange(6).reshape(2, 3).astype(getattr(pytest.importorskip("ml_dtypes"), dtype))
    assert _same(unpack(memoryview(pack((given, 1)))), (given, 1))


def _same(one: Any, other: Any) -> bool:
    assert type(one) is type(other)
    if isinstance(one, np.ndarray | np.generic):
        array, like = np.asarray(one), np.asarray(other)
        return array.dtype == like.dtype and array.shape == like.shape and array.tobytes() == like.tobytes()
    if isinstance(one, tuple | list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(_same(one[name], other[name]) for name in one)
    return bool(one == other)


@settings(max_examples=few(300), deadline=None)
@given(samples=SAMPLES.flatmap(lambda sample: st.lists(st.just(sample) | SAMPLES, min_size=1, max_size=3)))
def test_what_is_gathered_is_what_default_collation_makes(samples: list[Any]) -> None:
    got = gather([memoryview(pack(sample)) for sample in samples], np.empty)
    if got is not NotImplemented:
        assert _same(got, default_collate(samples))


def test_plain_samples_are_gathered() -> None:
    records = [memoryview(pack(sample(number))) for number in range(3)]
    assert _same(gather(records, np.empty), default_collate([sample(number) for number in range(3)]))


def test_augmentation_outside_is_drawn_anew_and_inside_is_warned_of(tmp_path: Path, data: Decoding) -> None:
    class Noisy(Decoding):
        def __getitem__(self, index: int) -> Any:
            return index + rng().random()

    outside = cached(data, tmp_path / "out").map(lambda sample: sample["label"] + rng().random())
    inside = cached(Noisy(tmp_path / "noisy"), tmp_path / "in")
    with DataLoader(outside, batch_size=COUNT) as loader:
        (one,), (two,) = loader, loader
    assert not np.allclose(one, two)
    with DataLoader(inside, batch_size=COUNT) as loader, warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        (one,), (two,) = loader, loader
    assert (one == two).all()
    assert [str(each.message)[:45] for each in told] == ["sample 0 draws from feedline.rng() while it is"] or len(
        told
    ) == 1


class Drawing(Decoding):
    def __init__(self, read: Path, name: str) -> None:
        super().__init__(read)
        self.name = name

    def __getitem__(self, index: int) -> Any:
        drawn = {"random": random.random, "numpy.random": np.random.rand, "feedline.rng()": lambda: rng().random()}
        return {"x": drawn[self.name]()}


@pytest.mark.parametrize("name", ["random", "numpy.random", "feedline.rng()"])
def test_a_draw_from_a_global_generator_is_warned_of(tmp_path: Path, name: str) -> None:
    said = rf"^sample 0 .*draws from {re.escape(name)} while it is kept"
    data = cached(Drawing(tmp_path / "read", name), tmp_path / "one")
    with pytest.warns(UserWarning, match=said) as told:
        data[0], data[1]
    assert len(told) == 1
    with pytest.warns(UserWarning, match=said):
        cached(data.dataset, tmp_path / "two").__getitems__([0, 1])
    for format in ("cache", "tar", "parquet"):
        with pytest.warns(UserWarning, match=said) as told:
            materialize(data.dataset, tmp_path / format, format=format, progress=False)
        assert len(told) == 1
    with pytest.warns(UserWarning, match=said), DataLoader(cached(data.dataset, tmp_path / "four"), 2) as loader:
        next(iter(loader))


def test_a_window_that_is_drawn_is_warned_of(tmp_path: Path) -> None:
    """All epochs would have this one of each recording."""
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(tmp_path / "a.flac", np.zeros(8000), 8000)
    with pytest.warns(UserWarning, match=r"^sample 0 draws from feedline.rng\(\) while it is kept"):
        materialize(SoundDataset([tmp_path / "a.flac"], seconds=0.1), tmp_path / "out", progress=False)


def test_who_draws_before_it_reads_what_is_kept_is_not_warned_of(tmp_path: Path, data: Decoding) -> None:
    kept = cached(data, tmp_path / "out")

    class Choosing(Decoding):
        def __getitem__(self, index: int) -> Any:
            return kept[int(rng().integers(COUNT))]

    with DataLoader(Choosing(tmp_path / "read"), 5) as loader:
        assert len(list(loader)) == 6


def test_a_draw_outside_is_not_warned_of(tmp_path: Path, data: Decoding) -> None:
    outside = cached(data, tmp_path / "out").map(lambda sample: sample["label"] + random.random() + np.random.rand())
    with DataLoader(outside, 5, num_workers=2, workers="thread") as loader:
        assert len(list(loader)) == 6


# --- whose samples ---


def augment(sample: Any) -> Any:
    return sample


class Shaped:
    def __init__(self, transform: Any, options: Any = None) -> None:
        self.transform, self.options = transform, options

    def __len__(self) -> int:
        return 3

    def __getitem__(self, index: int) -> Any:
        return self.transform(index)


def made(code: str) -> Any:
    names: dict[str, Any] = {"__name__": "__main__"}
    exec(f"OFFSET = 1\ndef helper(x): return x\ndef transform(x, by=2):\n    {code}\n", names)
    return names["transform"]


def test_identity_is_the_same_in_another_process() -> None:
    code = (
        "import numpy as np; from feedline import ArrayDataset, StackDataset, Subset; "
        "from feedline.sources.samples.identity import identity_of; "
        "data = StackDataset(x=ArrayDataset(np.arange(3)), y=[{'a', 'b', 'c'}, lambda: {'d', 'e', 'f'}, 0.5]); "
        "print(identity_of(Subset(data, [1, 2])))"
    )
    runs = [
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, env={**os.environ, "PYTHONHASHSEED": seed}
        )
        for seed in "12"
    ]
    assert runs[0].stdout == runs[1].stdout
    assert len(runs[0].stdout) == 33


DIFFERENT = {
    "code": lambda: Shaped(made("return x + by")),
    "an operation": lambda: Shaped(made("return x * by")),
    "a constant": lambda: Shaped(made("return x + by + 1")),
    "a name": lambda: Shaped(made("return helper(x)")),
    "another name": lambda: Shaped(made("return OFFSET")),
    "an attribute": lambda: Shaped(made("return x + by"), 1),
    "the type of an attribute": lambda: Shaped(made("return x + by"), 1.0),
    "an array": lambda: Shaped(made("return x + by"), np.arange(3)),
    "another array": lambda: Shaped(made("return x + by"), np.arange(3) + 1),
    "its type": lambda: Shaped(made("return x + by"), np.arange(3).astype("i2")),
    "a set": lambda: Shaped(made("return x + by"), {"a", "b", "c"}),
    "a lambda": lambda: Shaped(lambda x: x),
    "another lambda": lambda: Shaped(lambda x: -x),
    "a closure": lambda: Shaped((lambda by: lambda x: x + by)(1)),
    "another closure": lambda: Shaped((lambda by: lambda x: x + by)(2)),
    "a function of a module": lambda: Shaped(augment),
    "many": lambda: list(range(1000)),
    "many others": lambda: [*range(999), 7],
}


def test_what_differs_has_another_identity_and_what_does_not_has_the_same() -> None:
    found = {name: identity_of(make()) for name, make in DIFFERENT.items()}
    assert len(set(found.values())) == len(found)
    assert {name: identity_of(make()) for name, make in DIFFERENT.items()} == found


FOLLOWED = {
    "a list": "by = [VALUE]\ndef transform(x): return x + by[0]",
    "an array": "import numpy as np\nby = np.array([VALUE])\ndef transform(x): return x + by[0]",
    "an object": "class Add:\n  def __init__(self, by): self.by = by\n"
    "add = Add(VALUE)\ndef transform(x): return add.by",
    "its method": "class Add:\n  by = VALUE\n  def do(self, x): return x\n"
    "add = Add().do\ndef transform(x): return add(x)",
    "a cached function": "import functools\n@functools.cache\ndef add(x): return x + VALUE\n"
    "def transform(x): return add(x)",
    "a module's function": "import helping\ndef transform(x): return helping.add(x)",
    "a module's list": "import helping\ndef transform(x): return helping.by[0]",
    "a local import": "def transform(x):\n  from helping import add\n  return add(x)",
    "an attribute of a class": "class Add:\n  by = [[VALUE]]\ndef transform(x): return x + Add.by[0]",
    "an array of a class": "import numpy as np\nclass Add:\n  by = np.array(VALUE)\n"
    "def transform(x): return x + Add.by",
    "a cached property": "import functools\nclass Add:\n  @functools.cached_property\n  def by(self): return VALUE\n"
    "def transform(x): return Add().by",
    "a cached method": "import functools\nclass Add:\n  @functools.cache\n  def __call__(self, x): return x + VALUE\n"
    "def transform(x): return Add()(x)",
    "a class within": "class Add:\n  class By:\n    by = VALUE\ndef transform(x): return Add.By.by",
    "a partial method": "import functools\nclass Add:\n  def do(self, by): return by\n"
    "  own = functools.partialmethod(do, VALUE)\ndef transform(x): return Add().own()",
    "a function's attribute": "def add(x): return x + add.by\nadd.by = VALUE\ndef transform(x): return add(x)",
}


@pytest.mark.parametrize("what", FOLLOWED)
def test_what_code_names_counts(what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(tmp_path)

    def identity(value: int) -> str:
        (tmp_path / "helping.py").write_text(f"by = [{value}]\ndef add(x): return x + {value}\n")
        monkeypatch.delitem(sys.modules, "helping", raising=False)
        names: dict[str, Any] = {"__name__": "__main__"}
        monkeypatch.setattr(sys, "dont_write_bytecode", True)
        exec(FOLLOWED[what].replace("VALUE", str(value)), names)
        return identity_of(Shaped(names["transform"]))

    assert identity(1) == identity(1) != identity(2)
    monkeypatch.delitem(sys.modules, "helping", raising=False)


def test_parts_of_a_mapped_file_differ(tmp_path: Path) -> None:
    np.save(tmp_path / "rows.npy", np.arange(40.0))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    parts = [rows[:10], rows[10:20], rows[:20:2], rows[9::-1]]
    assert len({identity_of([part]) for part in parts}) == len(parts)
    assert identity_of([rows[5:]]) == identity_of([np.load(tmp_path / "rows.npy", mmap_mode="r")[5:]])


def test_a_file_that_was_replaced_is_seen(tmp_path: Path) -> None:
    path = tmp_path / "a.txt"
    path.write_text("one")
    before = identity_of([path])
    os.utime(path, (1, 1))
    assert identity_of([path]) != before
    before = identity_of(FilesDataset([path]))
    os.utime(path, (2, 2))
    assert identity_of(FilesDataset([path])) != before
    pyarrow = pytest.importorskip("pyarrow.parquet")
    pyarrow.write_table(pytest.importorskip("pyarrow").table({"x": [1, 2]}), tmp_path / "a.parquet")
    for path, dataset in ((tmp_path / "a.flac", SoundDataset), (tmp_path / "a.parquet", ParquetDataset)):
        path.touch()
        before = identity_of(dataset([str(path)]))
        assert identity_of(dataset([str(path)])) == before
        os.utime(path, (3, 3))
        assert identity_of(dataset([str(path)])) != before
    np.save(tmp_path / "rows.npy", np.arange(4))
    rows = np.load(tmp_path / "rows.npy", mmap_mode="r")
    before = identity_of([rows])
    os.utime(tmp_path / "rows.npy", (1, 1))
    assert identity_of([np.load(tmp_path / "rows.npy", mmap_mode="r")]) != before


def test_another_datasets_samples_are_not_used(tmp_path: Path, data: Decoding) -> None:
    class Table(Decoding):
        fingerprint = "a"

    folder = tmp_path / "cache"
    assert plain(cached(data, folder)[3]) == plain(sample(3))
    other = Decoding(tmp_path / "read", add=1)
    assert plain(cached(other, folder)[3]) == plain(sample(3, 1))
    table = Table(tmp_path / "table")
    cached(table, folder)[3]
    Table.fingerprint = "b"
    cached(table, folder)[3]
    assert table.reads() == [3, 3]
    assert cached(table, folder).fingerprint == "b"


def test_what_cannot_be_told_needs_a_key(tmp_path: Path, data: Decoding) -> None:
    data.told = (each for each in ())  # type: ignore[attr-defined]
    with pytest.raises(OptionTypeError, match=r"because of Decoding\.told: generator cannot be pickled.*Pass key="):
        cached(data, tmp_path)
    cached(data, tmp_path, key="v1")[0]
    cached(data, tmp_path, key="v1")[0]
    cached(data, tmp_path, key="v2")[0]
    assert data.reads() == [0, 0]


# --- the folder ---


def test_memory_is_bounded_and_what_was_used_last_stays() -> None:
    bound = 64 * 8192
    memory = PackMemory("bounded", 300, bound)
    before = memory._segment.used()
    for number in range(300):
        memory.write(number, bytes([number % 256]) * 2_000)
        memory.read(0)
        assert memory._segment.used() - before <= bound
    kept = [number for number in range(300) if memory.read(number) is not None]
    assert {0, 299} < set(kept)
    assert 200 <= len(kept) <= 256
    assert all(bytes(memory.read(number) or b"") == bytes([number % 256]) * 2_000 for number in kept)


@pytest.mark.parametrize("size", [9_000, 20_000, 30_000])
def test_samples_that_are_large_beside_a_pack_leave_no_room_unused(size: int) -> None:
    """Of packs that hold one or three of them, the rest counts as free."""
    memory = PackMemory(f"large {size}", 200, int(1.3 * 200 * size))
    for number in range(200):
        memory.write(number, bytes(size))
    assert sum(memory.has(number) for number in range(200)) == 200
    for number in range(200):
        memory.write(number, bytes(size))
    assert memory._segment.used() <= memory.max_bytes + 200 * ENTRY.size + 4096


def test_it_is_bounded_and_what_was_used_last_stays(tmp_path: Path) -> None:
    folder = PackFolder(tmp_path, "a", 100, 64_000)
    for number in range(100):
        folder.write(number, bytes([number]) * 2_000)
        folder.read(0)
        for path in tmp_path.glob("a/*.pack"):  # a second has passed
            os.utime(path, (1, 1)) if cast(Any, folder._opened())._mapped.get(int(path.stem, 16)) is None else None
    kept = [number for number in range(100) if folder.read(number) is not None]
    assert 0 in kept
    assert 99 in kept
    assert 20 <= len(kept) <= 32
    assert sum(path.stat().st_blocks * 512 for path in tmp_path.glob("a/*.pack")) <= 32 * 4096
    assert all(bytes(folder.read(number) or b"") == bytes([number]) * 2_000 for number in kept)


def test_files_of_others_are_not_removed(tmp_path: Path) -> None:
    """Git's have the same suffix."""
    for name in ("pack/pack-1.pack", f"{'a' * 32}/mine.pack", f"objects/{'a' * 16}.pack"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(bytes(50_000))
    kept = cached([np.full(20_000, number, np.uint8) for number in range(9)], tmp_path, max_bytes=64_000)
    assert [int(each[0]) for each in kept] == list(range(9))
    assert kept.stored() >= 2
    assert [path.stat().st_size for path in tmp_path.glob("*/*.pack")].count(50_000) == 3


def test_what_is_too_large_is_read_each_time(tmp_path: Path, data: Decoding) -> None:
    kept = cached(data, tmp_path / "cache", max_bytes=100)
    assert plain([kept[1], kept[1]]) == plain([sample(1)] * 2)
    assert data.reads() == [1, 1]


@pytest.mark.parametrize("what", ["record", "entry", "pack"])
def test_what_is_damaged_is_read_again(tmp_path: Path, data: Decoding, what: str) -> None:
    folder = tmp_path / "cache"
    cached(data, folder)[2]
    (path,) = folder.rglob("*.pack")
    (index,) = folder.rglob("index")
    if what == "pack":
        path.unlink()
    else:
        with open(path if what == "record" else index, "r+b") as file:
            file.seek(20 if what == "record" else 2 * ENTRY.size + 9)
            before = file.read(1)
            file.seek(-1, 1)
            file.write(bytes([before[0] ^ 255]))
    again = cached(data, folder)
    assert plain([again[2], again[2]]) == plain([sample(2)] * 2)
    assert data.reads() == [2, 2]


def test_an_entry_of_another_sample_is_not_used(tmp_path: Path, data: Decoding) -> None:
    """As a process leaves it that is killed while it writes an entry: some of its bytes are older ones."""
    folder = tmp_path / "cache"
    kept = cached(data, folder)
    kept[2], kept[3]
    (index,) = folder.rglob("index")
    entries = index.read_bytes()
    with open(index, "r+b") as file:
        file.seek(2 * ENTRY.size)
        file.write(entries[3 * ENTRY.size : 4 * ENTRY.size])
    assert plain(kept[2]) == plain(sample(2))


def test_a_folder_that_cannot_be_written_is_warned_of_once(tmp_path: Path, data: Decoding, monkeypatch: Any) -> None:
    def full(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("feedline.sources.samples.pack_folder.write_all", full)
    kept = cached(data, tmp_path / "cache")
    with pytest.warns(RuntimeWarning, match="No space left on device.*so nothing more is kept"):
        kept[0]
    assert plain([kept[0], kept[1]]) == plain([sample(0), sample(1)])


def test_a_full_disk_is_no_bus_error(tmp_path: Path) -> None:
    """The shared memory of a mount of its own is full when the index is made, and when it has been made."""
    code = """
import os, sys, warnings
from feedline import cached
root, first = sys.argv[1], sys.argv[2] == "first"
def fill():
    with open(root + "/fill", "wb", buffering=0) as file:
        try:
            while file.write(bytes(4096)): pass
        except OSError: pass
if first: fill()
with warnings.catch_warnings(record=True) as told:
    warnings.simplefilter("always")
    data = cached(range(5000), root + "/cache")
    assert [data[0], data[1]] == [0, 1]
    if not first: fill()
    assert list(data) == list(range(5000))
assert len(told) == 1 and "No space left" in str(told[0].message), told
print("whole")
"""
    (tmp_path / "disk").mkdir()
    for when in ("first", "later"):
        script = f'mount -t tmpfs -o size=1m none "{tmp_path}/disk" && exec "$0" -c "$1" "{tmp_path}/disk" {when}'
        run = subprocess.run(
            ["unshare", "-rm", "sh", "-c", script, sys.executable, code], capture_output=True, text=True
        )
        if "unshare" in run.stderr or "mount" in run.stderr:
            pytest.skip("this machine lets nobody mount")
        assert run.stdout == "whole\n", run


@pytest.mark.parametrize("kind", ["folder", "memory", "objects"])
def test_a_child_that_is_forked_while_a_lock_is_held_does_not_hold_it_on(tmp_path: Path, kind: str) -> None:
    """It has the same descriptor, and nobody could store anything as long as it lives."""
    if kind == "folder":
        locked = cast(Any, PackFolder(tmp_path, "a", 3, 1_000_000))._opened()._locked
    elif kind == "memory":
        memory = PackMemory("forked", 3, 1_000_000)
        locked = partial(cast(Any, memory._opened())._locked, LOCK_EX | LOCK_NB)
    else:
        locked = CacheFolder(tmp_path, 1_000_000)._locked
    ours, its = os.pipe()
    with locked():
        child = os.fork()
        if not child:
            os.read(ours, 1)
            os._exit(0)
    os.close(ours)
    try:
        if kind == "memory":
            with locked():
                pass
        else:
            with open(tmp_path / {"folder": "lock", "objects": "total"}[kind], "ab") as file:
                flock(file, LOCK_EX | LOCK_NB)  # or an error
    finally:
        os.write(its, b"x")
        os.close(its)
        os.waitpid(child, 0)


@pytest.mark.parametrize("error", [errno.EROFS, errno.EACCES])
def test_a_folder_that_can_only_be_read_is_read(
    tmp_path: Path, data: Decoding, monkeypatch: pytest.MonkeyPatch, error: int
) -> None:
    cached(data, tmp_path / "cache")[3]
    real = os.open

    def refusing(path: Any, flags: int, *mode: int) -> int:
        if flags & os.O_RDWR:
            raise OSError(error, os.strerror(error))
        return real(path, flags, *mode)

    def utime(*arguments: Any, **times: Any) -> None:
        raise OSError(error, os.strerror(error))

    monkeypatch.setattr(os, "open", refusing)
    monkeypatch.setattr(os, "utime", utime)
    again = cached(data, tmp_path / "cache")
    assert plain(again[3]) == plain(sample(3))
    with pytest.warns(RuntimeWarning, match="cannot be written"):
        again[4]
    assert data.reads() == [3, 4]


def test_a_writer_killed_at_any_line_leaves_nothing_damaged(tmp_path: Path) -> None:
    program = [packs_killed_at_every_line.__file__, str(tmp_path)]
    done = subprocess.run([sys.executable, *program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert min(map(int, done.stdout.split())) > 80


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ((range(3), 7), OptionTypeError, 'where must be the path of a folder or "memory"; got 7'),
        ((range(3), ""), OptionError, 'where is an empty text; write "." for the current folder'),
        ((iter([1]), "/tmp/x"), TypeError, "has no length"),
        ((range(3), "/tmp/x", {"max_bytes": 0}), OptionError, "max_bytes"),
        ((range(3), "/tmp/x", {"key": 3}), OptionTypeError, "key must be a text"),
    ],
)
def test_what_does_not_fit_is_named(arguments: Any, error: type[Exception], match: str) -> None:
    *given, options = arguments if isinstance(arguments[-1], dict) else (*arguments, {})
    with pytest.raises(error, match=match):
        cached(*given, **options)


def test_an_async_dataset_is_refused(tmp_path: Path) -> None:
    class Remote(Decoding):
        async def __getitem__(self, index: int) -> Any:  # type: ignore[override]
            return index

    with pytest.raises(OptionError, match="async"):
        cached(Remote(tmp_path), tmp_path)
