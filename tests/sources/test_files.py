"""Folders and files as datasets: what is found, in which order, what a sample is, and what is said of bad ones."""

from __future__ import annotations

import os
import pickle
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import MapContract, as_list
from hypothesis import given
from hypothesis import strategies as st
from kinds import FORK, INLINE, THREADS
from made_files import Drawer, encoded, natural, saved, sound, write, zipped
from warm_host import host

import feedline
from feedline import DataLoader, MissingPackage, OptionError, OptionTypeError, SourceError, StratifiedBatchSampler
from feedline.diagnose.doctor.patient import column_of
from feedline.sources import FilesDataset, FolderDataset
from feedline.sources.names import Names

PICTURE = natural(40, 30)
TREE = {
    "cat/10.png": encoded(PICTURE, "png"),
    "cat/9.png": encoded(PICTURE[::-1], "png"),
    "cat/.hidden.png": b"x",
    "cat/deeper/1.PNG": encoded(PICTURE[:, ::-1], "png"),
    "cat/notes.txt": b"not wanted",
    ".git/1.png": b"x",
    "dog/1.png": encoded(PICTURE[::-1, ::-1], "png"),
    "ant/1.bmp": encoded(255 - PICTURE, "bmp"),
    "readme.png": b"in no class",
}
FOUND = [
    ("ant/1.bmp", 255 - PICTURE, 0),
    ("cat/10.png", PICTURE, 1),
    ("cat/9.png", PICTURE[::-1], 1),
    ("cat/deeper/1.PNG", PICTURE[:, ::-1], 1),
    ("dog/1.png", PICTURE[::-1, ::-1], 2),
]
MIXED: dict[str, tuple[bytes, Any]] = {
    "a.txt": ("grün".encode(), "grün"),
    "empty.txt": (b"", ""),
    "b.json": (b'{"boxes": [[0, 1.5]]}', {"boxes": [[0, 1.5]]}),
    "c.npy": (saved(np.arange(6.0).reshape(2, 3).T), np.arange(6.0).reshape(2, 3).T.copy()),
    "d.npz": (zipped(x=np.arange(3), y=np.ones(2, np.float32)), {"x": np.arange(3), "y": np.ones(2, np.float32)}),
    "e.wav": (sound(b"\1\0\2\0"), (np.array([[1], [2]], np.int16), 8000)),
    "f.webp": (encoded(PICTURE, "webp", lossless=True), PICTURE),
}


class TestFolder(MapContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> FolderDataset:
        return FolderDataset(write(tmp_path, TREE))

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [(pixels, label) for _, pixels, label in FOUND]


class TestFiles(MapContract):
    @pytest.fixture
    def source(self, tmp_path: Path) -> FilesDataset:
        write(tmp_path, {name: data for name, (data, _) in MIXED.items()})
        return FilesDataset([tmp_path / name for name in MIXED], labels=np.arange(len(MIXED)) / 2)

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [(value, place / 2) for place, (_, value) in enumerate(MIXED.values())]


class TestStoredFolder(MapContract):
    """The same class where files are objects under names."""

    @pytest.fixture
    def source(self) -> FolderDataset:
        return FolderDataset(Drawer(TREE))

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [(pixels, label) for _, pixels, label in FOUND]

    def test_a_batch_is_one_request(self, source: FolderDataset) -> None:
        with DataLoader(source, batch_size=3) as loader:
            list(loader)
        assert source._place.asked == [3, 2]


def test_a_folder_knows_its_classes(tmp_path: Path) -> None:
    data = FolderDataset(write(tmp_path, TREE))
    assert data.classes == ["ant", "cat", "dog"]
    assert data.class_to_idx == {"ant": 0, "cat": 1, "dog": 2}
    assert data.labels.tolist() == [label for *_, label in FOUND]
    assert list(data.paths) == [name for name, *_ in FOUND]
    assert [data.describe(index) for index in range(5)] == [f"{tmp_path}/{name}" for name, *_ in FOUND]


def test_samplers_and_the_doctor_find_its_labels() -> None:
    data = FolderDataset(Drawer({f"{name}/{n}.npy": b"" for name in "abc" for n in range(4)}), suffixes=[".npy"])
    column = column_of(data, len(data))
    assert column is not None
    assert column.counts == {0: 4, 1: 4, 2: 4}
    for batch in StratifiedBatchSampler(data.labels, batch_size=3):
        assert sorted(data.labels[batch]) == [0, 1, 2]


def by_class(name: str) -> list[bytes]:
    """Sorted so: by the class, then by the rest, as bytes."""
    return [os.fsencode(part) for part in name.split("/", 1)]


names = st.text(st.characters(codec="utf-8", exclude_characters="\0/"), min_size=1, max_size=8)


@given(st.sets(names.filter(lambda name: not name.startswith(".")), min_size=1, max_size=6), st.randoms())
def test_the_order_is_that_of_the_names(found: set[str], random: Any) -> None:
    files = {f"{folder}/{name}.npy": b"" for folder in ("a b", "a") for name in found}
    drawer = Drawer({name: files[name] for name in random.sample(sorted(files), len(files))})
    assert list(FolderDataset(drawer, suffixes=[".npy"]).paths) == sorted(files, key=by_class)


def test_the_order_on_disk(tmp_path: Path) -> None:
    parts = ("z", "Z", "é", "10", "9", "d/x", "d-e/x")
    made = [f"{folder}/{name}.npy" for folder in ("b", "ä", "a b", "a", "B") for name in parts]
    write(tmp_path, dict.fromkeys(made, b""))
    assert list(FolderDataset(tmp_path, suffixes=[".NPY"]).paths) == sorted(made, key=by_class)


def test_links_are_followed_but_not_in_circles(tmp_path: Path) -> None:
    write(tmp_path, {"data/a/1.npy": saved(1), "elsewhere/2.npy": saved(2)})
    (tmp_path / "data" / "a" / "round").symlink_to(tmp_path / "data" / "a")
    (tmp_path / "data" / "a" / "there").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "b").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "data" / "a" / "broken.npy").symlink_to(tmp_path / "nowhere")
    data = FolderDataset(tmp_path / "data", suffixes=[".npy"])
    assert list(data.paths) == ["a/1.npy", "a/broken.npy", "a/there/2.npy", "b/2.npy"]
    with pytest.raises(FileNotFoundError, match=r"a/broken\.npy"):
        data[1]
    (tmp_path / "data" / "c").symlink_to(tmp_path / "nowhere")
    with pytest.raises(SourceError, match=r"data/c: this folder cannot be read"):
        FolderDataset(tmp_path / "data", suffixes=[".npy"])


@pytest.mark.parametrize("stored", [False, True])
def test_empty_classes_are_named(tmp_path: Path, stored: bool) -> None:
    files = {"a/1.npy": saved(1), "b/1.xyz": b"", "c/.hidden.npy": b"", "c/": b"", "c/d/": b""}
    for name in files:
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
    (tmp_path / "c").mkdir(exist_ok=True)
    root: Any = (
        Drawer(files) if stored else write(tmp_path, {name: each for name, each in files.items() if name[-1] != "/"})
    )
    with pytest.raises(SourceError, match=r"b \(has 1\.xyz\)") as told:
        FolderDataset(root, suffixes=[".npy"])
    assert "allow_empty=True" in str(told.value)
    assert "c (nothing at all)" in str(told.value)
    data = FolderDataset(root, suffixes=[".npy"], allow_empty=True)
    assert data.classes == ["a", "b", "c"]
    assert data.labels.tolist() == [0]
    with pytest.raises(SourceError, match=r"suffixes \.bmp .*\.webp is in a \(has 1\.npy\)") as told:
        FolderDataset(root, allow_empty=True)
    assert "allow_empty" not in str(told.value)  # it would not help


def test_what_is_no_folder_of_classes(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="root must be a folder"):
        FolderDataset(None)  # type: ignore[arg-type]
    with pytest.raises(SourceError, match=r"nowhere.*No such file"):
        FolderDataset(tmp_path / "nowhere")
    with pytest.raises(SourceError, match=r"has no folders in it.*FilesDataset"):
        FolderDataset(write(tmp_path, {"1.png": b""}))
    with pytest.raises(SourceError, match=r"1\.png.*Not a directory"):
        FolderDataset(tmp_path / "1.png")


def test_own_decoders(tmp_path: Path) -> None:
    write(tmp_path, {"a/1.dcm": b"12", "a/2.seg.png": b"34", "a/3.png": TREE["cat/9.png"], "a/4.nii.gz": b"5"})
    own = {".DCM": len, ".seg.png": bytes.decode, ".nii.gz": bytes}
    data = FolderDataset(tmp_path, decoders=own)
    assert [data[index][0] for index in (0, 1, 3)] == [2, "34", b"5"]
    assert data[2][0].shape == (30, 40, 3)
    with pytest.raises(OptionError, match=r"x\.gz.*decoders={'\.gz': "):
        FilesDataset(["x.gz", "a.nii.gz"], decoders=own)
    assert FilesDataset(["a/1.dcm"], root=tmp_path, decoders={".dcm": len, ".txt": len})[0] == 2
    assert FilesDataset(["a/3.png"], root=tmp_path, decoders={".png": type})[0] is bytes  # before ours
    failing = FilesDataset([tmp_path / "a" / "1.dcm"], decoders={".dcm": int_of_word})
    with pytest.raises(KeyError, match="12"):  # the user's own errors keep their type
        failing[0]


def int_of_word(data: bytes) -> int:
    return {b"one": 1}[data]


def test_names_within_a_root_and_urls(tmp_path: Path) -> None:
    write(tmp_path, {"a.txt": b"one", "b/c.txt": b"two"})
    assert list(FilesDataset(["a.txt", "b/c.txt"], root=tmp_path)) == ["one", "two"]
    assert list(FilesDataset([f"file://{tmp_path}/a.txt"])) == ["one"]
    assert len(FilesDataset(["a..b.txt", "b/c..txt"], root=tmp_path)) == 2  # dots that lead nowhere
    assert list(FilesDataset(["b/c.txt"], root=f"file://{tmp_path}")) == ["two"]
    assert FilesDataset(["a.txt"], root=tmp_path).describe(0) == f"{tmp_path}/a.txt"
    for name in ("/etc/hosts.txt", "../x.txt", "b/../../x.txt"):
        with pytest.raises(OptionError, match="leads out of"):
            FilesDataset([name], root=tmp_path)
    with pytest.raises(OptionError, match="ftp://"):
        FilesDataset(["ftp://host/a.txt"])
    with pytest.raises(OptionError, match=r"/b\.txt'.*file://"):
        FilesDataset(["file:///a.txt", "/b.txt"])


@pytest.mark.parametrize("rooted", [False, True])
def test_relative_paths_are_those_of_the_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rooted: bool) -> None:
    monkeypatch.chdir(write(tmp_path, {"b/c.txt": b"two"}))
    data = FilesDataset(["c.txt"], root="b") if rooted else FilesDataset(["b/c.txt", tmp_path / "b/c.txt"])
    monkeypatch.chdir("/")
    assert set(data) == {"two"}
    assert data.describe(0) == f"{tmp_path}/b/c.txt"


@pytest.mark.parametrize(
    "kind", [list, tuple, np.array, lambda p: np.array(p, object), lambda p: [each.encode() for each in p], iter]
)
def test_any_sequence_of_paths(tmp_path: Path, kind: Any) -> None:
    paths = [f"{tmp_path}/{name}.txt" for name in ("ü", "b")]
    for path in paths:
        Path(path).write_text(path)
    assert list(FilesDataset(kind(paths))) == paths


class Column:
    """What Arrow's columns offer."""

    def __init__(self, *chunks: list[str]) -> None:
        self.chunks = [Chunk(chunk) for chunk in chunks]

    def __iter__(self) -> Any:
        raise AssertionError("one by one is slow")

    def to_pylist(self) -> list[str]:
        raise AssertionError("all at once takes too much memory")


class Chunk(list[str]):
    def __getitem__(self, part: Any) -> Any:
        return Chunk(super().__getitem__(part))

    def to_pylist(self) -> list[str]:
        return list(self)


def test_a_column_of_a_table_is_taken_by_the_chunk() -> None:
    assert list(Names(Column(["a", "b"], [], ["c"]))) == ["a", "b", "c"]


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\0"))))
def test_names_come_back(given_names: list[str]) -> None:
    packed = Names(given_names)
    buffers: list[Any] = []
    again = pickle.loads(pickle.dumps(packed, 5, buffer_callback=buffers.append), buffers=buffers)
    assert list(packed) == list(again) == given_names
    assert packed[::-2] == given_names[::-2]
    assert packed.nbytes == sum(len(name.encode()) for name in given_names) + 8 * (len(given_names) + 1)
    assert len(buffers) == 2  # and so one copy serves all workers


def test_many_names_and_odd_ones() -> None:
    many = [f"{number}.txt" for number in range(70_000)]  # more than are packed at a time
    packed = Names(many)
    assert packed[65_535:65_538] == many[65_535:65_538]
    assert packed[-1] == many[-1]
    assert os.fsencode(Names([b"\xff.txt"])[0]) == b"\xff.txt"  # no UTF-8, but a file may be called so
    with pytest.raises(IndexError):
        packed[70_000]
    with pytest.raises(OptionTypeError, match=r"paths\[66000\] is None"):
        Names([*many[:66_000], None])
    with pytest.raises(OptionError, match="zero byte"):
        Names(["a\0b"])


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"paths": "a.txt"}, "FolderDataset takes a folder"),
        ({"paths": 3}, "sequence of paths"),
        ({"paths": ["a.xyz"]}, r"'a\.xyz'; the known suffixes are .*\.json.*decoders={'\.xyz'"),
        ({"paths": ["a"]}, "no decoder is known for 'a'"),
        ({"paths": ["a.b/c"]}, "no decoder is known"),
        ({"paths": ["a/.txt"]}, "no decoder is known"),
        ({"paths": ["a.txt", "s3://bucket/a.txt"]}, r"'s3://bucket/a\.txt' is a URL, but the first"),
        ({"paths": ["s3://bucket/a.txt"], "root": "."}, r"URLs are given without root="),
        ({"labels": [1, 2]}, "there are 1 paths, and labels has 2"),
        ({"labels": 3}, "labels has no length"),
        ({"labels": [None]}, r"labels\[0\] is None"),
        ({"size": 224}, r"size must be \(height, width\)"),
        ({"size": (0, 2)}, r"size\[0\]"),
        ({"mode": "CMYK"}, "mode must be one of 'RGB', 'L'"),
        ({"transform": 1}, "transform must be a function"),
        ({"decoders": {"dcm": len}}, "begins with a dot"),
        ({"decoders": [len]}, "decoders must map"),
        ({"decoders": {".dcm": None}}, "function of bytes"),
        ({"max_pixels": 0}, "max_pixels"),
        ({"max_bytes": 1.5}, "max_bytes"),
        ({"upright": "yes"}, "upright"),
        ({"channels_first": 1}, "channels_first"),
        ({"allow_pickle": None}, "allow_pickle"),
    ],
)
def test_wrong_options(wrong: dict[str, Any], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        FilesDataset(**{"paths": ["a.txt"], **wrong})


@pytest.mark.parametrize(
    ("suffixes", "told"), [("npy", "a list"), (["npy"], "with a dot"), ([], "empty"), (3, "a list")]
)
def test_wrong_suffixes(suffixes: Any, told: str) -> None:
    with pytest.raises(OptionError, match=told):
        FolderDataset(Drawer(TREE), suffixes=suffixes)


def test_what_cannot_be_read_is_named(tmp_path: Path) -> None:
    write(tmp_path, {"large.txt": b"x" * 101, "fine.txt": b"x" * 100, "empty.png": b"", "folder.txt/x": b""})
    os.mkfifo(tmp_path / "pipe.txt")
    os.truncate(write(tmp_path, {"huge.txt": b""}) / "huge.txt", 1 << 40)  # a hole: nothing could hold it
    names = ["huge.txt", "large.txt", "fine.txt", "empty.png", "folder.txt", "pipe.txt", "missing.txt"]
    data = FilesDataset([tmp_path / name for name in names], max_bytes=100)
    told = {name: _error(data, index) for index, name in enumerate(names)}
    assert "large.txt: has 101 bytes, more than max_bytes=100" in told["large.txt"]
    assert "huge.txt: has 1,099,511,627,776 bytes" in told["huge.txt"]
    assert "empty.png: the file is empty" in told["empty.png"]
    assert "folder.txt: is not a regular file" in told["folder.txt"]
    assert "pipe.txt: is not a regular file" in told["pipe.txt"]
    assert "missing.txt" in told["missing.txt"]
    assert told["fine.txt"] == ""
    stored = FilesDataset(["large.txt"], root=Drawer({"large.txt": b"x" * 101}), max_bytes=100)
    assert "large.txt: has 101 bytes" in _error(stored, 0)


def _error(data: FilesDataset, index: int) -> str:
    try:
        data[index]
    except (SourceError, OSError) as error:
        return str(error)
    return ""


@pytest.mark.parametrize("kind", [INLINE, FORK], ids=["inline", "fork"])
@pytest.mark.parametrize("stored", [False, True])
def test_damaged_files_are_left_out_and_named(tmp_path: Path, stored: bool, kind: dict[str, Any]) -> None:
    jpeg = encoded(PICTURE, "jpeg")
    files = {"a/1.jpg": jpeg, "a/2.jpg": jpeg[:-200], "a/3.jpg": jpeg, "b/1.jpg": b"<html>not found</html>"}
    data = FolderDataset(Drawer(files) if stored else write(tmp_path, files))
    with DataLoader(data, batch_size=2, on_error="skip", **kind) as loader:
        labels = [label for _, labels in loader for label in labels]
    assert labels == [0, 0]
    assert [error.index for error in loader.errors()] == [1, 3]
    for error, name in zip(loader.errors(), ("a/2.jpg", "b/1.jpg"), strict=True):
        assert error.what.endswith(name)
        assert name in error.error
    assert "begins with b'<html>not fo'" in loader.errors()[1].error


def wobble(pixels: np.ndarray) -> float:
    return float(feedline.rng().random() + pixels.mean() / 1000)


@pytest.mark.parametrize("stored", [False, True])
def test_augmentation_belongs_to_the_sample(tmp_path: Path, stored: bool) -> None:
    data = FolderDataset(Drawer(TREE) if stored else write(tmp_path, TREE), transform=wobble)

    def drawn(batch_size: int, **kind: Any) -> list[float]:
        with DataLoader(data, batch_size, shuffle=True, seed=3, collate_fn=as_list, **kind) as loader:
            return [value for batch in loader for value, _ in batch]

    once = drawn(2)
    assert len(set(once)) == 5
    assert once == drawn(5) == drawn(3, **THREADS) == drawn(1, **FORK)
    assert once == drawn_singly(data)


def drawn_singly(data: FolderDataset) -> list[float]:
    with DataLoader(data, batch_size=None, shuffle=True, seed=3) as loader:
        return [value for value, _ in loader]


def test_labels_of_any_kind(tmp_path: Path) -> None:
    paths = [write(tmp_path, {"a.txt": b"x"}) / "a.txt"] * 2
    assert FilesDataset(paths, labels=["cat", "dog"])[1] == ("x", "dog")
    boxes = np.arange(8.0).reshape(2, 4)
    data = FilesDataset(paths, boxes)
    data[1][1][:] = 0  # a sample is the user's own
    assert data[1][1].tolist() == [4, 5, 6, 7]


def test_long_paths_keep_their_ends() -> None:
    data = FilesDataset([f"/{'deep/' * 80}file.txt"])
    assert len(data.describe(0)) < 300
    assert data.describe(0).endswith("/deep/file.txt")
    assert data.describe(-1) == data.describe(0)
    assert data.describe(5) == ""


def test_no_driver_is_imported_before_it_is_needed() -> None:
    script = (
        "import sys; from feedline.sources import FilesDataset, FolderDataset; FilesDataset(['a.txt']); "
        "drivers = {'PIL', 'simplejpeg', 'cykooz_resizer', 'torch'}; assert not drivers & set(sys.modules)"
    )
    host("feedline").run(["-c", script], check=True)


def test_without_pillow(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("PIL", "PIL.Image"):
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingPackage, match=r"pip install 'feedline\[images\]'"):
        FilesDataset(["a.jpg"])
    assert len(FilesDataset(["a.txt"])) == 1
    assert len(FilesDataset(["a.jpg"], decoders={".jpg": bytes})) == 1


def test_it_says_what_it_is(tmp_path: Path) -> None:
    assert repr(FilesDataset(["a.txt"])) == "FilesDataset(1 file)"
    assert repr(FolderDataset(write(tmp_path, TREE))) == f"FolderDataset('{tmp_path}/', 5 files, 3 classes)"
