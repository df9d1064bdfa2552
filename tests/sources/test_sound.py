"""Recordings: windows are those of the whole recording, wherever they are; what is wrong with one is told."""

from __future__ import annotations

import io
import re
import struct
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from contract import MapContract, plain
from hypothesis import given
from hypothesis import strategies as st
from made_media import recorded, tones

import feedline
from feedline import DataLoader, MissingPackage, OptionError, OptionTypeError, SourceError
from feedline.sources import FilesDataset, SoundDataset, SoundWindow, TarDataset
from feedline.sources.decoding import mp3
from feedline.sources.media import seekable
from feedline.sources.places import Folder

KINDS = {
    "flac": ("FLAC", "PCM_16"),
    "wav": ("WAV", "PCM_16"),
    "ogg": ("OGG", "VORBIS"),
    "opus": ("OGG", "OPUS"),
    "mp3": ("MP3", "MPEG_LAYER_III"),
}
RATE = 48_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("sound")
    for number, (suffix, kind) in enumerate(KINDS.items()):
        (folder / f"a.{suffix}").write_bytes(recorded(tones(2.5, RATE, seed=number), RATE, *kind))
    (folder / "short.flac").write_bytes(recorded(tones(0.3, RATE), RATE, "FLAC"))
    whole = (folder / "a.flac").read_bytes()
    (folder / "cut.flac").write_bytes(whole[: len(whole) // 2])
    (folder / "other.flac").write_bytes(b"not sound at all" * 10)
    (folder / "empty.flac").write_bytes(b"")
    return folder


def whole(path: Path, rate: int | None = None) -> np.ndarray:
    import soundfile
    import soxr

    samples, own = soundfile.read(path, dtype="float32", always_2d=True)
    return samples if rate is None else soxr.resample(samples, own, rate, quality="HQ")


class TestWindows(MapContract):
    @pytest.fixture
    def source(self, folder: Path) -> SoundDataset:
        return SoundDataset([folder / "a.flac", folder / "a.mp3"], [3, 4], seconds=0.5, every=0.75)

    @pytest.fixture
    def expected(self, folder: Path) -> list[Any]:
        return [
            ((whole(folder / name)[first : first + RATE // 2], RATE), label)
            for name, label in (("a.flac", 3), ("a.mp3", 4))
            for first in (0, 36_000, 72_000)
        ]


@pytest.mark.parametrize("suffix", KINDS)
@pytest.mark.parametrize("rate", [None, 16_000, 44_100, 96_000])
def test_a_window_is_a_part_of_the_whole(folder: Path, suffix: str, rate: int | None) -> None:
    path = folder / f"a.{suffix}"
    expected = whole(path, rate)
    window, out = SoundWindow(0.4, rate=rate), rate or RATE
    assert len(SoundWindow(rate=rate).read(str(path), start=0).samples) == len(expected)
    for start in (0.0, 0.013, 1.234, 2.1):
        samples, found = window.read(str(path), start=start)
        first = round(start * out)
        assert found == out
        assert samples.dtype == np.float32
        np.testing.assert_allclose(samples, expected[first : first + round(0.4 * out)], atol=1e-6)


@pytest.mark.parametrize(
    ("suffix", "rate", "level"),
    [
        ("ogg", 8000, None),  # libsndfile's own seek is off by what is cut from the last page's end
        ("mp3", 48_000, 0.99),  # few bits a second: a frame's bits are in many frames before it
        ("mp3", 22_050, 0.99),
    ],
)
def test_seeking_where_libsndfile_is_wrong(tmp_path: Path, suffix: str, rate: int, level: float | None) -> None:
    import soundfile

    path = tmp_path / f"a.{suffix}"
    samples = np.random.default_rng(0).normal(0, 0.2, (3 * rate + 777, 1)).clip(-0.9, 0.9)
    kind, subtype = KINDS[suffix]
    bits = {} if level is None else {"compression_level": level, "bitrate_mode": "CONSTANT"}
    soundfile.write(path, samples, rate, format=kind, subtype=subtype, **bits)
    expected = whole(path)
    for first in range(0, len(expected) - rate // 10, rate // 13):
        found = SoundWindow(0.1).read(str(path), start=first / rate).samples
        np.testing.assert_allclose(found, expected[first : first + rate // 10], atol=1e-6)


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_several_recordings_in_one_file(tmp_path: Path, subtype: str) -> None:
    data = recorded(tones(0.2, RATE), RATE, "OGG", subtype)
    (tmp_path / "two.ogg").write_bytes(data + recorded(tones(0.2, RATE), RATE, "OGG", subtype))
    for dataset in (SoundDataset([tmp_path / "two.ogg"]), FilesDataset([tmp_path / "two.ogg"])):
        with pytest.raises(SourceError, match=r"two\.ogg.*several recordings"):
            dataset[0]


@pytest.mark.parametrize("subtype", ["VORBIS", "OPUS"])
def test_a_damaged_page_is_an_error_where_it_is_needed(tmp_path: Path, subtype: str) -> None:
    """libsndfile skips it, and gives other sound."""
    whole = recorded(tones(16, 8000, 1), 8000, "OGG", subtype)
    pages = [found.start() for found in re.finditer(b"OggS\0", whole)]
    (tmp_path / "whole.ogg").write_bytes(whole)
    expected = SoundDataset([tmp_path / "whole.ogg"], seconds=0.5, every=1.0)
    middle, after = pages[len(pages) // 2], pages[len(pages) // 2 + 1]
    for number, damaged in enumerate(
        (
            whole[: middle + 99] + bytes([whole[middle + 99] ^ 1]) + whole[middle + 100 :],
            whole[: middle + 1] + b"?" + whole[middle + 2 :],
            whole[:middle] + whole[after:],
            whole[: pages[2] + 99] + bytes([whole[pages[2] + 99] ^ 1]) + whole[pages[2] + 100 :],
            whole[:-1],
        )
    ):
        path = tmp_path / f"{number}.ogg"
        path.write_bytes(damaged)
        data, same = SoundDataset([path], seconds=0.5), 0
        for start in range(15):
            try:
                found = data.at(0, float(start)).samples
            except SourceError:
                pass
            else:
                assert np.allclose(found, expected[start].samples, atol=1e-6)
                same += 1
        assert 2 < same < 15 if number < 3 else same == 0
        for dataset in (SoundDataset([path]), FilesDataset([path])):
            with pytest.raises(SourceError, match=rf"{number}\.ogg: is damaged or cut short: its pages"):
                dataset[0]


def without_header(level: float, mode: str, suffix: bytes = b"") -> bytes:
    """An MP3 that does not say how long it is."""
    import soundfile

    soundfile.write(
        out := io.BytesIO(), tones(4, 44_100, 1), 44_100, format="MP3", compression_level=level, bitrate_mode=mode
    )
    return out.getvalue()[mp3._size(out.getvalue(), 0) :] + suffix


@pytest.mark.parametrize("suffix", [b"", b"TAG" + bytes(125), bytes(999), b"\xff\xfb"])
def test_mp3_whose_header_does_not_say_how_long_it_is(tmp_path: Path, suffix: bytes) -> None:
    path = tmp_path / "a.mp3"
    path.write_bytes(without_header(0.7, "CONSTANT", suffix))
    expected = whole(path)
    assert len(expected) > 4 * 44_100
    for dataset in (SoundDataset([path]), FilesDataset([path])):
        assert np.array_equal(dataset[0].samples, expected)
    data = SoundDataset([path], seconds=0.5, every=0.5)
    assert len(data) == len(expected) // 22_050
    for number, (samples, _) in enumerate(data):
        assert np.allclose(samples, expected[number * 22_050 :][:22_050], atol=1e-6)


def test_mp3_whose_length_cannot_be_had(tmp_path: Path) -> None:
    path, other = without_header(0.1, "CONSTANT"), without_header(0.9, "CONSTANT")
    (tmp_path / "a.mp3").write_bytes(path + other)
    (tmp_path / "b.mp3").write_bytes(path[:9000] + bytes(2000) + path[11_000:])
    for name, told in (
        ("a", "does not say how long it is, and its bit rates differ"),
        ("b", "is damaged: there is no frame at byte"),
    ):
        for dataset in (
            SoundDataset([tmp_path / f"{name}.mp3"], seconds=1.0),
            FilesDataset([tmp_path / f"{name}.mp3"]),
        ):
            with pytest.raises(SourceError, match=rf"{name}\.mp3: {told}"):
                dataset[0]


@given(
    st.sampled_from([8000, 11_025, 16_000, 22_050, 44_100, 48_000]),
    st.sampled_from([8000, 16_000, 22_050, 44_100, 48_000]),
    st.floats(0, 0.9),
)
def test_resampling_knows_what_is_around(own: int, rate: int, start: float) -> None:
    import soxr

    data = recorded(tones(1.0, own, 1), own, "WAV", "FLOAT")
    samples, _ = SoundWindow(0.1, rate=rate, pad=True).read(data, start=start)
    expected = soxr.resample(tones(1.0, own, 1), own, rate, quality="HQ")[round(start * rate) :][: round(0.1 * rate)]
    np.testing.assert_allclose(samples[: len(expected)], expected, atol=1e-6)
    assert len(samples) == round(0.1 * rate)


def test_only_what_a_window_needs_is_read(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seekable, "BLOCK", 4096)
    read = []

    class Counting(Folder):
        def read_range(self, name: str, start: int, end: int) -> bytes:
            read.append(end - start)
            return super().read_range(name, start, end)

    long = folder / "long.flac"
    long.write_bytes(recorded(tones(30, 16_000, 1), 16_000, "FLAC"))
    data = SoundDataset(["long.flac"], seconds=0.1, root=Counting(folder))
    found = SoundDataset([long], seconds=0.1).at(0, 20.0)
    data._place = Counting(folder)  # a folder is read by path otherwise
    assert plain(data.at(0, 20.0)) == plain(found)
    assert 0 < sum(read) < long.stat().st_size / 5


def test_a_drawn_window_belongs_to_the_sample(folder: Path) -> None:
    data = SoundDataset([folder / "a.flac"] * 8, seconds=0.01, rate=8000, mono=True)

    def epochs(**options: Any) -> list[Any]:
        with DataLoader(data, seed=3, collate_fn=lambda batch: batch, **options) as loader:
            return [plain(sample) for _ in range(2) for batch in loader for sample in batch]

    found = epochs(batch_size=3)
    assert found == epochs(batch_size=2, num_workers=2)
    assert len({repr(each) for each in found}) == 16


def test_channels_and_batches(folder: Path) -> None:
    data = SoundDataset([folder / "a.flac", folder / "a.ogg"], seconds=0.1, every=1.0, mono=True, channels_first=True)
    assert len(data) == 6
    batch, rates = next(iter(DataLoader(data, batch_size=6)))
    assert batch.shape == (6, 1, 4800)
    assert rates.tolist() == [RATE] * 6
    stereo = whole(folder / "a.flac")[: RATE // 10]
    np.testing.assert_allclose(batch[0, 0], stereo.mean(1), atol=1e-6)


def test_short_recordings_are_errors_or_filled_up(folder: Path) -> None:
    short = folder / "short.flac"
    for every in (None, 0.5):
        data = SoundDataset([short], seconds=0.5, every=every)
        assert len(data) == 1
        with pytest.raises(SourceError, match=r"short\.flac: has 0\.3 seconds, and a window 0\.5; pad=True"):
            data[0]
        samples, _ = SoundDataset([short], seconds=0.5, every=every, pad=True)[0]
        assert np.array_equal(samples[: round(0.3 * RATE)], whole(short))
        assert samples.shape == (RATE // 2, 2)
        assert not samples[round(0.3 * RATE) :].any()
    padded = SoundDataset([folder / "a.flac"], seconds=1.0, every=1.0, pad=True)
    assert len(padded) == 3
    assert np.array_equal(padded[2].samples[: RATE // 2], whole(folder / "a.flac")[2 * RATE :])
    with pytest.raises(SourceError, match="no window of 1 begins at 9"):
        padded.at(0, 9.0)


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("cut.flac", "cut short|cannot be read"),
        ("other.flac", "cannot be read"),
        ("empty.flac", "the file is empty"),
        ("none.flac", "No such file"),
        ("", "is not a regular file"),
    ],
)
@pytest.mark.parametrize("every", [None, 0.5])
def test_damaged_files_are_named_and_left_out(folder: Path, name: str, told: str, every: float | None) -> None:
    path = folder / name if name else folder / "folder.flac"
    if not name:
        path.mkdir(exist_ok=True)
    data = SoundDataset([folder / "a.flac", path], seconds=2.2, every=every)
    with pytest.raises((SourceError, FileNotFoundError), match=told) as error:
        data.at(1, 0.3)
    assert path.name in str(error.value)
    with DataLoader(data, 2, on_error="skip", collate_fn=len, num_workers=1) as loader:
        assert list(loader) == [1]
        assert [Path(bad.what.partition(" from")[0]).name for bad in loader.errors()] == [path.name]


def test_sound_among_other_files_and_in_shards(folder: Path, tmp_path: Path) -> None:
    files = FilesDataset([folder / f"a.{suffix}" for suffix in KINDS if suffix != "wav"])
    for sample, path in zip(files, files.paths, strict=True):
        assert np.array_equal(sample.samples, whole(Path(path)))
    with pytest.raises(SourceError, match=r"other\.flac: this sound cannot be read"):
        FilesDataset([folder / "other.flac"])[0]
    with tarfile.open(tmp_path / "0.tar", "w") as shard:
        for number in range(3):
            shard.add(folder / "a.ogg", f"{number}.ogg")
    window = SoundWindow(0.25, rate=16_000, mono=True)
    shards = TarDataset(tmp_path / "0.tar", decode=lambda data, name: window(data))
    with DataLoader(shards, 3, collate_fn=lambda batch: [list(each.values())[-1] for each in batch]) as loader:
        batch = next(iter(loader))
    assert [samples.shape for samples, _ in batch] == [(4000, 1)] * 3


@pytest.mark.parametrize("kind", [("WAV", "PCM_16"), ("WAV", "FLOAT"), ("RF64", "PCM_16"), ("AIFF", "PCM_24")])
def test_what_is_cut_short_is_no_shorter_recording(tmp_path: Path, kind: tuple[str, str]) -> None:
    """libsndfile reads what is there, and says nothing."""
    whole = recorded(tones(0.1, 8_000), 8_000, *kind)
    (tmp_path / "cut.aiff").write_bytes(whole[:-1000])
    for read in (
        lambda: SoundWindow()(whole[:-1000]),
        lambda: SoundDataset([tmp_path / "cut.aiff"], seconds=0.01)[0],
        lambda: SoundDataset([tmp_path / "cut.aiff"], seconds=0.01, every=0.01)[0],
        lambda: FilesDataset([tmp_path / "cut.aiff"])[0],
    ):
        with pytest.raises(SourceError, match=r"is cut short: its header says \d,\d\d\d bytes of sound"):
            read()
    assert len(SoundWindow()(whole).samples) == 800
    assert len(SoundWindow()(whole + b"LIST\4\0\0\0....").samples) == 800
    piped = whole.replace(b"data" + struct.pack("<I", 3_200), b"data" + b"\xff" * 4)
    assert len(SoundWindow()(piped).samples) == 800  # its writer could not know


def test_a_wav_from_a_pipe_whose_header_says_that_there_is_no_sound(tmp_path: Path) -> None:
    whole = recorded(tones(0.1, 8_000), 8_000, "WAV", "PCM_16")
    path = tmp_path / "piped.wav"
    path.write_bytes(whole.replace(b"data" + struct.pack("<I", 3_200), b"data" + bytes(4)))
    for dataset in (SoundDataset([path]), FilesDataset([path])):
        with pytest.raises(
            SourceError, match=r"piped\.wav: its header says that there is no sound, and 3,200 bytes follow"
        ):
            dataset[0]
    empty = recorded(np.zeros((0, 2), np.float32), 8_000, "WAV", "PCM_16")
    assert SoundWindow()(empty).samples.shape == (0, 2)


def test_a_flac_from_a_pipe_does_not_say_how_long_it_is(folder: Path, tmp_path: Path) -> None:
    data = bytearray((folder / "a.flac").read_bytes())
    data[21:26] = bytes([data[21] & 0xF0, 0, 0, 0, 0])
    path = tmp_path / "piped.flac"
    path.write_bytes(data)
    windows = SoundDataset([path], labels=[1], seconds=0.1, every=0.5)
    assert len(windows) == 1
    for dataset in (windows, SoundDataset([path], seconds=0.1), SoundDataset([path]), FilesDataset([path])):
        with pytest.raises(SourceError, match=r"piped\.flac: its header does not say how long it is.*ffmpeg"):
            dataset[0]


def test_a_header_that_promises_too_much(folder: Path) -> None:
    data = bytearray((folder / "a.flac").read_bytes())
    data[21] |= 0x0F  # the upper bits of the number of frames
    data[22:26] = b"\xff" * 4
    with pytest.raises(SourceError, match="its header says"):
        SoundWindow()(bytes(data))
    with pytest.raises(SourceError, match="its header says"):
        FilesDataset([folder / "a.flac"])._decoders.decode("a.flac", bytes(data))


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"seconds": 0}, OptionError, "seconds must be more than 0"),
        ({"seconds": "1"}, OptionTypeError, "seconds must be a number"),
        ({"every": 1.0}, OptionError, "every is the distance between windows: it needs seconds="),
        ({"seconds": 1.0, "every": -1}, OptionError, "every must be more than 0"),
        ({"rate": 0}, OptionError, "rate must be at least 1"),
        ({"pad": True}, OptionError, "pad fills up windows: it needs seconds="),
        ({"labels": [1]}, OptionError, "labels must have one label for each path"),
        ({"paths": "a.flac"}, OptionTypeError, "paths must be a sequence"),
        ({"paths": ["a.jpg"]}, OptionError, r"no decoder is known for 'a\.jpg'.*\.flac"),
    ],
)
def test_wrong_options(wrong: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        SoundDataset(**{"paths": ["a.flac", "b.flac"], **wrong})


def test_without_the_packages(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(MissingPackage, match=r"pip install 'feedline\[audio\]'"):
        SoundDataset(["a.flac"])
    with pytest.raises(MissingPackage, match=r"pip install 'feedline\[audio\]'"):
        FilesDataset(["a.flac"])


def test_drawing_alone_and_many_files(folder: Path) -> None:
    assert feedline.rng() is not None
    data = SoundDataset([folder / "a.flac"], seconds=1)
    assert data[0].samples.shape == (RATE, 2)
    assert repr(SoundDataset([folder / "a.flac"], seconds=1, every=1)) == "SoundDataset(1 file, 2 pieces)"
    assert SoundWindow(0.1)(io.BytesIO((folder / "a.flac").read_bytes()).getvalue()).rate == RATE
