"""Hugging Face's datasets: the samples are those of their numpy format, whatever the features, indices and chunks."""

from __future__ import annotations

import io
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import soundfile
from contract import MapContract, StreamContract
from hf_without_torch import datasets
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import FORK, THREADS, few
from made_media import recorded, tones
from PIL import Image
from shared_streams import as_rank

from feedline import DataLoader, OptionError, OptionTypeError, SourceError, default_collate
from feedline.sources import Decoders, SoundWindow, from_hf

COUNT = 23


def table(count: int = COUNT) -> Any:
    numbers = range(count)
    return datasets.Dataset.from_dict(
        {
            "x": [[number, number + 0.5] for number in numbers],
            "label": [number % 3 for number in numbers],
            "text": [f"t{number}" for number in numbers],
        },
        features=datasets.Features(
            {
                "x": datasets.List(datasets.Value("float32"), length=2),
                "label": datasets.ClassLabel(names=["a", "b", "c"]),
                "text": datasets.Value("string"),
            }
        ),
    )


class TestTable(MapContract):
    @pytest.fixture
    def source(self) -> Any:
        return from_hf(table())

    @pytest.fixture
    def expected(self) -> list[Any]:
        return [dict(row) for row in table().with_format("numpy")]


class TestShuffledTable(TestTable):
    """With an indices mapping, in several chunks, with a column that only `datasets` can read."""

    @pytest.fixture
    def made(self) -> Any:
        whole = datasets.concatenate_datasets([table(9), table(14)])
        ragged = [[number] * (number % 4) for number in range(COUNT)]
        return whole.add_column("ragged", ragged).shuffle(seed=1)

    @pytest.fixture
    def source(self, made: Any) -> Any:
        return from_hf(made)

    @pytest.fixture
    def expected(self, made: Any) -> list[Any]:
        return [dict(row) for row in made.with_format("numpy")]


class TestStream(StreamContract):
    @pytest.fixture
    def source(self) -> Any:
        return from_hf(table().to_iterable_dataset(num_shards=3))

    @pytest.fixture
    def expected(self) -> list[Any]:
        return list(table())


class TestShuffledStream(StreamContract):
    """Its buffer is not in its state."""

    @pytest.fixture
    def source(self) -> Any:
        return from_hf(table().to_iterable_dataset(num_shards=2).shuffle(seed=3, buffer_size=5))

    ordered = False

    @pytest.fixture
    def expected(self) -> list[Any]:
        return list(table())


NUMBER = ("int8", "int32", "int64", "uint8", "float32", "float64")
FEATURES: dict[str, tuple[Any, Any]] = {
    **{kind: (datasets.Value(kind), st.integers(0, 100)) for kind in NUMBER},
    "bool": (datasets.Value("bool"), st.booleans()),
    "text": (datasets.Value("string"), st.text(max_size=4)),
    "class": (datasets.ClassLabel(names=["a", "b"]), st.integers(0, 1)),
    "fixed": (datasets.List(datasets.Value("int32"), length=2), st.lists(st.integers(0, 9), min_size=2, max_size=2)),
    "fixed8": (datasets.List(datasets.Value("float64"), length=1), st.lists(st.just(0.1), min_size=1, max_size=1)),
    "ragged": (datasets.List(datasets.Value("int16")), st.lists(st.integers(0, 9), max_size=3)),
    "nested": (
        datasets.List(datasets.List(datasets.Value("float32"))),
        st.lists(st.lists(st.just(0.5), max_size=2), max_size=2),
    ),
    "struct": ({"p": datasets.Value("int32"), "q": datasets.Value("string")}, st.just({"p": 1, "q": "u"})),
    "array": (datasets.Array2D((2, 2), "int16"), st.just([[1, 2], [3, 4]])),
    "float array": (datasets.Array2D((1, 2), "float64"), st.just([[0.1, 2.0]])),
}


@st.composite
def tables(draw: Any) -> Any:
    names = draw(st.lists(st.sampled_from(sorted(FEATURES)), min_size=1, max_size=4, unique=True))
    parts = []
    for count in draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)):
        columns = {}
        for name in names:
            values = FEATURES[name][1]
            missing = name not in ("array", "float array") and draw(st.integers(0, 4)) == 0
            columns[name] = draw(st.lists(values | st.none() if missing else values, min_size=count, max_size=count))
        features = datasets.Features({name: FEATURES[name][0] for name in names})
        parts.append(datasets.Dataset.from_dict(columns, features=features))
    data = datasets.concatenate_datasets(parts)
    change = draw(st.sampled_from(["", "select", "shuffle", "columns", "slice"]))
    if change == "select":
        data = data.select(draw(st.lists(st.integers(0, len(data) - 1), min_size=1, max_size=5)))
    elif change == "slice":
        data = data.select(range(draw(st.integers(0, len(data) - 1)), len(data)))
    elif change == "shuffle":
        data = data.shuffle(seed=1)
    elif change == "columns":
        data = data.with_format("numpy", columns=names[:1])
    return data


@settings(max_examples=few(200), deadline=None)
@given(data=tables())
def test_samples_and_batches_are_those_of_the_numpy_format(data: Any) -> None:
    got = from_hf(data)
    like = data.with_format("numpy", columns=data.format["columns"])
    expected = [like[index] for index in range(len(like))]
    samples = [got[index] for index in range(len(got))]
    assert [*map(same, samples)] == [*map(same, expected)]
    batch = got.__getbatch__(np.arange(len(got))[::-1], np.empty)
    if batch is not NotImplemented:
        assert same(batch) == same(default_collate(expected[::-1]))


def same(value: Any) -> Any:
    """Comparable, types and not-a-number included."""
    if isinstance(value, dict):
        return {name: same(each) for name, each in value.items()}
    if isinstance(value, np.ndarray) and value.dtype == object:
        return (value.shape, [same(each) for each in value.ravel().tolist()])
    if isinstance(value, np.ndarray | np.generic):
        return (type(value).__name__, str(value.dtype), value.shape, value.tobytes())
    return [same(each) for each in value] if isinstance(value, list) else (type(value).__name__, value)


def test_what_is_delivered_is_the_readers_own() -> None:
    data = from_hf(table())
    data[3]["x"][:] = 7
    assert data[3]["x"].tolist() == [3, 3.5]


def picture(value: int, format: str) -> bytes:
    file = io.BytesIO()
    Image.fromarray(np.full((4, 5, 3), value, np.uint8)).save(file, format)
    return file.getvalue()


def test_pictures_are_decoded_by_our_decoders_from_bytes_and_files(tmp_path: Path) -> None:
    (tmp_path / "a.png").write_bytes(picture(9, "PNG"))
    values = [
        {"bytes": picture(7, "PNG"), "path": None},
        {"bytes": picture(8, "JPEG"), "path": None},
        {"bytes": None, "path": str(tmp_path / "a.png")},
        {"bytes": b"\x89PNG nothing", "path": "broken.png"},
    ]
    features = datasets.Features({"image": datasets.Image(), "label": datasets.Value("int64")})
    data = datasets.Dataset.from_dict({"image": values, "label": range(4)}, features=features)
    got = from_hf(data)
    assert [int(got[row]["image"].mean()) for row in range(3)] == [7, 8, 9]
    assert same(got[0]["image"]) == same(data.with_format("numpy")[0]["image"])
    with pytest.raises(SourceError, match=r"row 3, column 'image' 'broken.png'"):
        got[3]


@pytest.mark.parametrize("mode", [None, "L", "RGBA"])
def test_pictures_are_upright_and_as_their_feature_asks(mode: str | None) -> None:
    """As `datasets` gives them, unless there are decoders that say something else."""
    file, turned = io.BytesIO(), Image.Exif()
    turned[0x0112] = 6
    pixels = np.random.default_rng(0).integers(0, 255, (4, 5, 3), np.uint8)
    Image.fromarray(pixels).save(file, "PNG", exif=turned)
    table = datasets.Dataset.from_dict({"image": [{"bytes": file.getvalue(), "path": None}]})
    table = table.cast_column("image", datasets.Image(mode=mode))
    expected = table.with_format("numpy")[0]["image"]
    got = pickle.loads(pickle.dumps(from_hf(table)))[0]["image"]
    assert same(got.reshape(expected.shape)) == same(expected)
    assert same(from_hf(table, decoders=Decoders())[0]["image"]) == same(pixels)


FORMATS = [("FLAC", None), ("WAV", "PCM_16"), ("WAV", "PCM_24"), ("OGG", "VORBIS"), ("MP3", None), ("AIFF", None)]


def recordings(kinds: list[tuple[str, Any]] = FORMATS, folder: Path | None = None, **options: Any) -> Any:
    """Each is a table's row; the last, if there is a folder, is a file."""
    values = [{"bytes": recorded(tones(0.5, 8_000, seed=9), 8_000, *kind), "path": None} for kind in kinds]
    if folder is not None:
        (folder / "a").write_bytes(values[-1]["bytes"])
        values[-1] = {"bytes": None, "path": str(folder / "a")}
    # Without torchcodec, `datasets` makes no table of recordings; it reads one, as from the Hub.
    return datasets.Dataset.from_dict({"audio": values}).cast_column("audio", datasets.Audio(**options))


def test_recordings_are_decoded_by_our_decoders(tmp_path: Path) -> None:
    """To the samples that soundfile reads, which feedline's own files have as well (test_sound)."""
    got = from_hf(recordings(folder=tmp_path).select([5, 0, 1, 2, 3, 4]))
    for row, kind in enumerate(FORMATS[-1:] + FORMATS[:-1]):
        file = io.BytesIO(recorded(tones(0.5, 8_000, seed=9), 8_000, *kind))
        expected, _ = soundfile.read(file, dtype="float32", always_2d=True)
        samples, rate = got[row]["audio"]
        assert same(samples) == same(expected)
        assert rate == 8_000
    with DataLoader(from_hf(recordings(FORMATS[:3])), batch_size=3, **FORK) as loader:
        (batch,) = loader
    assert batch["audio"].samples.shape == (3, 4_000, 2)


def test_recordings_are_as_their_feature_and_the_decoders_ask() -> None:
    data = recordings(FORMATS[:1], sampling_rate=16_000, num_channels=1)
    expected = SoundWindow(rate=16_000, mono=True)(data.data.column("audio")[0].as_py()["bytes"])
    assert same(from_hf(data)[0]["audio"].samples) == same(expected.samples)
    assert from_hf(data)[0]["audio"].rate == 16_000
    first = from_hf(recordings(FORMATS[:1]), decoders=Decoders(channels_first=True))[0]["audio"]
    assert first.samples.shape == (2, 4_000)
    windows = Decoders(decoders={".flac": SoundWindow(0.25)})
    assert from_hf(recordings(FORMATS[:1]), decoders=windows)[0]["audio"].samples.shape == (2_000, 2)
    other = datasets.Dataset.from_dict({"audio": [{"bytes": b"????", "path": "a.M4A"}]})
    own = Decoders(decoders={".m4a": len})
    assert from_hf(other.cast_column("audio", datasets.Audio()), decoders=own)[0] == {"audio": 4}
    mono = recorded(tones(0.5, 8_000, channels=1), 8_000, "FLAC")
    table = datasets.Dataset.from_dict({"audio": [{"bytes": mono, "path": None}]})
    twice = from_hf(table.cast_column("audio", datasets.Audio(num_channels=2)))[0]["audio"].samples
    assert twice.shape == (4_000, 2)
    assert (twice[:, 0] == twice[:, 1]).all()


def test_a_damaged_recording_is_named() -> None:
    values = [{"bytes": b"fLaC nothing", "path": "a.flac"}, {"bytes": None, "path": "/nowhere"}, None]
    table = datasets.Dataset.from_dict({"audio": values}).cast_column("audio", datasets.Audio())
    data = from_hf(table)
    with pytest.raises(SourceError, match=r"row 0, column 'audio' 'a.flac': this sound cannot be read"):
        data[0]
    with pytest.raises(SourceError, match=r"row 1, column 'audio' '/nowhere': .*No such file"):
        data[1]
    assert data[2] == {"audio": None}


@pytest.mark.parametrize("kind", ["numpy", None])
def test_columns_beside_the_format_are_as_they_are(kind: str | None) -> None:
    """With output_all_columns=True, `datasets` gives them unformatted."""
    made = table().with_format(kind, columns=["x"], output_all_columns=True)
    data = pickle.loads(pickle.dumps(from_hf(made)))
    assert same(data[5]) == same((made if kind else table().with_format("numpy"))[5])
    assert data.__getbatch__(np.arange(2), np.empty) is NotImplemented or kind is None


def test_a_picture_has_the_type_that_the_format_asks_for() -> None:
    values = {"image": [{"bytes": picture(7, "PNG"), "path": None}]}
    made = datasets.Dataset.from_dict(values).cast_column("image", datasets.Image())
    made = made.with_format("numpy", dtype=np.float32)
    assert same(from_hf(made)[0]) == same(made[0])
    assert from_hf(made, decoders=Decoders())[0]["image"].dtype == np.uint8


@pytest.mark.parametrize("shards", [1, 2, 3])
def test_a_stream_is_shared_out_over_ranks_and_workers(shards: int) -> None:
    found: list[str] = []
    for rank in range(2):
        with as_rank(rank, 2):
            stream = from_hf(table().to_iterable_dataset(num_shards=shards))
            with DataLoader(stream, batch_size=2, collate_fn=list, **THREADS) as loader:
                found += [each["text"] for batch in loader for each in batch]
    assert sorted(found) == sorted(table()["text"])


def test_other_data_is_refused_when_a_state_is_loaded() -> None:
    from feedline import StateError

    state = DataLoader(from_hf(table()), 4).state_dict()
    DataLoader(from_hf(table()), 4).load_state_dict(state)
    with pytest.raises(StateError, match="fingerprint"):
        DataLoader(from_hf(table().shuffle(seed=2)), 4).load_state_dict(state)


def for_torch(**options: Any) -> Any:
    """As with_format makes it, which would import torch."""
    made = table()
    made._format_type, made._format_kwargs = "torch", options
    return made


@pytest.mark.parametrize(
    ("make", "error", "match"),
    [
        (lambda: [1], OptionTypeError, "needs a Dataset or an IterableDataset.*got list"),
        (lambda: datasets.DatasetDict(train=table()), OptionTypeError, r"choose a split: dataset\['train'\]"),
        (lambda: table().with_transform(lambda batch: batch), OptionError, "the format 'custom'.*with_format"),
        (lambda: for_torch(dtype="float16"), OptionError, r"'torch' has options \(dtype='float16'\)"),
        (lambda: table().to_iterable_dataset().with_format("numpy"), OptionError, "without a format"),
    ],
)
def test_what_does_not_fit_is_named(make: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        from_hf(make())
