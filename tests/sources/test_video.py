"""Films: clips are what decoding the whole film shows at those times; what is wrong with one is told."""

from __future__ import annotations

import errno
import os
import re
from pathlib import Path
from typing import Any

import av
import numpy as np
import pytest
from contract import MapContract, plain
from hypothesis import given
from hypothesis import strategies as st
from kinds import few
from made_media import FILMS, decoded, film, turned

from feedline import DataLoader, MissingPackage, OptionError, OptionTypeError, SourceError
from feedline.sources import VideoClip, VideoDataset
from feedline.sources.media import video_index
from feedline.sources.places import Folder

FRAMES = 60
UNTIMED = ("disc.mpg", "vp9.webm")
"""They have no times, or no second key frame."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("films")
    for name, (codec, options) in FILMS.items():
        film(folder / name, codec, FRAMES, **options)
    film(folder / "uneven.mkv", "libx264", FRAMES, uneven=True, bf="2")
    return folder


@pytest.fixture(scope="module")
def films(folder: Path) -> dict[str, tuple[list[float], np.ndarray]]:
    return {name: decoded(folder / name) for name in (*FILMS, "uneven.mkv")}


def shown(film: tuple[list[float], np.ndarray], times: list[float]) -> np.ndarray:
    """The picture at each time, of the film decoded whole."""
    return film[1][[max(0, int(np.searchsorted(film[0], time + 1e-4, "right")) - 1) for time in times]]


class TestClips(MapContract):
    @pytest.fixture
    def source(self, folder: Path) -> VideoDataset:
        return VideoDataset([folder / "b-frames.mp4", folder / "old.avi"], ["x", "y"], frames=3, fps=5, every=0.8)

    @pytest.fixture
    def expected(self, films: dict[str, Any]) -> list[Any]:
        return [
            (shown(films[name], [start, start + 0.2, start + 0.4]), np.str_(label))
            for name, label in (("b-frames.mp4", "x"), ("old.avi", "y"))
            for start in (0.0, 0.8, 1.6)
        ]


@pytest.mark.parametrize("name", [*FILMS, "uneven.mkv"])
def test_a_clip_is_what_the_whole_film_shows(folder: Path, films: dict[str, Any], name: str) -> None:
    path, reference = str(folder / name), films[name]
    successive = VideoClip(5)
    index = successive.index(path)
    assert np.allclose((index.times - index.times[0]) * index.unit, reference[0], atol=1e-6)
    assert abs(index.seconds - reference[0][-1]) < 0.09
    for number in (0, 1, 11, 12, 13, 30, 47, FRAMES - 5):
        start = reference[0][number] + 1e-4
        assert np.array_equal(successive.read(path, index, start=start), reference[1][number : number + 5])
    for fps in (3, 12.5, 50):
        clip = VideoClip(4, fps)
        for start in (0.0, 0.31, 1.0):
            times = [start + each / fps for each in range(4)]
            assert np.array_equal(clip.read(path, index, start=start), shown(reference, times))


def test_a_clip_by_the_number_of_its_first_frame(folder: Path, films: dict[str, Any]) -> None:
    data = VideoDataset([folder / "old.avi", folder / "uneven.mkv"], frames=2)
    for number in range(0, FRAMES - 2, 5):
        assert np.array_equal(data.at(1, data.second_of(1, number)), films["uneven.mkv"][1][number : number + 2])
    with pytest.raises(IndexError, match="60"):
        data.second_of(1, 60)


@pytest.mark.parametrize(
    ("name", "codec"),
    [
        ("a.avi", "libx264"),
        ("a.avi", "mpeg4"),
        ("a.avi", "mpeg1video"),
        ("a.asf", "libx264"),
        ("a.mpg", "libx264"),
        ("a.m4v", "mpeg4"),  # nothing but pictures, one after another
        ("a.m2v", "mpeg2video"),
        ("forgot.mov", "libx264"),
    ],
)
def test_films_that_do_not_store_when_pictures_are_shown(tmp_path: Path, name: str, codec: str) -> None:
    """FFmpeg guesses it, otherwise for the packets than for the pictures, and otherwise after a seek."""
    path, clip = film(tmp_path / name, codec, 40, bf="2"), VideoClip(1)
    if name == "forgot.mov":  # its writer did not say by how much showing differs from decoding
        path.write_bytes(path.read_bytes().replace(b"ctts", b"free"))
    index = clip.index(str(path))
    with av.open(path) as container:
        pictures = [picture.to_ndarray(format="rgb24") for picture in container.decode(video=0)]
    assert len(index.times) == len(pictures) >= 38
    assert abs(index.seconds - len(pictures) / 25) < 0.09
    for number, picture in enumerate(pictures):
        start = float(index.times[number] - index.times[0]) * index.unit
        assert np.array_equal(clip.read(str(path), index, start=start)[0], picture)


def test_a_film_that_stores_no_times_is_refused(tmp_path: Path) -> None:
    film(tmp_path / "a.h264", "libx264", 5).rename(tmp_path / "a.m4v")
    with pytest.raises(SourceError, match=r"a\.m4v: has no times of its frames; convert it"):
        VideoDataset([tmp_path / "a.m4v"], frames=1)[0]


def test_key_frames_are_still_used_where_times_are_stored_or_need_not_be(folder: Path) -> None:
    assert all(len(VideoClip(1).index(str(folder / name)).keys) > 1 for name in FILMS if name not in UNTIMED)


def test_films_whose_times_do_not_tell_frames_apart(tmp_path: Path) -> None:
    one = film(tmp_path / "one.ts", "mpeg2video", 20).read_bytes()
    (tmp_path / "two.ts").write_bytes(2 * one)
    clip, path = VideoClip(3), str(tmp_path / "two.ts")
    index, (_, pictures) = clip.index(path), decoded(tmp_path / "two.ts")
    assert len(index.times) == len(pictures) > 30
    for number in (0, 9, 19, 20, 21, 30):
        start = float(index.times[number] - index.times[0]) * index.unit
        assert np.array_equal(clip.read(path, index, start=start), pictures[number : number + 3])


def test_a_film_whose_pictures_change_their_size(tmp_path: Path) -> None:
    one = film(tmp_path / "one.ts", "mpeg2video", 20)
    two = film(tmp_path / "two.ts", "mpeg2video", 20, height=80)
    (tmp_path / "both.ts").write_bytes(one.read_bytes() + two.read_bytes())
    with pytest.raises(SourceError, match=r"both.ts.*several sizes"):
        VideoDataset([tmp_path / "both.ts"], frames=30).at(0, 0.0)
    assert VideoDataset([tmp_path / "both.ts"], frames=30, size=(24, 32)).at(0, 0.0).shape == (30, 24, 32, 3)


def test_times_near_the_end_of_what_a_broadcast_counts(tmp_path: Path) -> None:
    path = film(tmp_path / "late.ts", "mpeg2video", FRAMES, first=2**33 // 3600 - 20)
    _, pictures = decoded(path)
    assert np.array_equal(VideoDataset([path], frames=5).at(0, 0.0), pictures[:5])


@given(st.integers(1, 9), st.sampled_from([None, 1.0, 7.0, 24.0, 30.0]), st.floats(0, 1), st.booleans())
def test_any_clip(films: dict[str, Any], frames: int, fps: float | None, at: float, pad: bool) -> None:
    times = np.array([round(time * 12_800) for time in films["b-frames.mp4"][0]])
    index = video_index.Frames(times, times[::12], 1 / 12_800, 512)
    clip = VideoClip(frames, fps, pad=pad)
    room = index.seconds - clip.seconds(index)
    start = at * (index.seconds - 0.01 if pad else max(0.0, room))
    if not clip.fits(index, start) and not pad:
        assert room < 1e-6 or start > room - 1e-6
        with pytest.raises(SourceError, match="no clip of"):
            clip._wanted(index, start)
        return
    wanted = clip._wanted(index, start)
    assert len(wanted) == frames
    assert (np.diff(wanted) >= 0).all()
    first = index.shown_at(start)
    assert wanted[0] == first
    if fps is None:
        assert wanted.tolist() == [min(first + each, FRAMES - 1) for each in range(frames)]


def test_no_more_is_decoded_than_needed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = str(folder / "b-frames.mp4")
    clip = VideoClip(2, 1.0)  # 25 frames apart: two groups of pictures lie between
    index = clip.index(path)
    looked = []
    from feedline.sources.media import video_clip

    real = video_clip.time_of
    monkeypatch.setattr(video_clip, "time_of", lambda picture: looked.append(0) or real(picture))
    clip.read(path, index, start=1.0)
    assert len(looked) < 40  # each picture is asked about twice or three times at most
    wide = film(folder / "wide.mp4", "libx264", 250)
    assert VideoClip(2, 0.2).read(str(wide), clip.index(str(wide)), start=1.0).shape == (2, 48, 64, 3)


def test_a_drawn_clip_belongs_to_the_sample(folder: Path) -> None:
    for fps in (None, 10):
        data = VideoDataset([folder / "b-frames.mp4"] * 6, frames=2, fps=fps, size=(8, 8), channels_first=True)

        def epochs(data: VideoDataset = data, **options: Any) -> list[Any]:
            with DataLoader(data, seed=3, **options) as loader:
                return [plain(clip) for _ in range(2) for batch in loader for clip in batch]

        found = epochs(batch_size=4)
        assert found == epochs(batch_size=3, num_workers=2)
        assert len({repr(each) for each in found}) > 6
        assert found[0][1] == (2, 3, 8, 8)


def test_films_elsewhere_are_read_in_ranges(folder: Path) -> None:
    data = VideoDataset(["b-frames.mp4"], frames=3, root=folder)
    expected = data.at(0, 1.0)
    data._place = Folder(folder)  # a folder is read by path otherwise
    assert np.array_equal(data.at(0, 1.0), expected)
    again = VideoClip(3)((folder / "b-frames.mp4").read_bytes())
    assert again.shape == expected.shape

    class Broken(Folder):
        def read_range(self, name: str, start: int, end: int) -> bytes:
            raise SourceError("the bucket is on fire")

    data._place = Broken(folder)
    with pytest.raises(SourceError, match=r"b-frames\.mp4: the bucket is on fire"):
        data.at(0, 1.0)


def test_the_index_is_kept(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    paths = [tmp_path / "a.mp4", tmp_path / "b.mp4"]
    for path, name in zip(paths, ("b-frames.mp4", "uneven.mkv"), strict=True):
        path.write_bytes((folder / name).read_bytes())
    file, read = tmp_path / "frames.npz", []
    real = VideoClip.index
    monkeypatch.setattr(VideoClip, "index", lambda self, source, place=None: read.append(source) or real(self, source))

    def made() -> list[Any]:
        read.clear()
        data = VideoDataset(paths, frames=2, every=0.5, index=file)
        return [plain(data[each]) for each in range(len(data))]

    first = made()
    assert len(read) == 2
    assert made() == first
    assert not read
    paths[0].write_bytes((folder / "old.avi").read_bytes())
    second = made()
    assert read == [str(paths[0])]
    assert second != first
    assert made() == second
    for damage in (file.read_bytes()[:-200], b"", b"PK\3\4" + b"x" * 100, file.read_bytes().replace(b"<i8", b"|O8")):
        file.write_bytes(damage)
        assert made() == second
        assert len(read) == 2
    assert not [name for name in os.listdir(tmp_path) if name.endswith(".new")]


def test_an_index_for_which_there_is_no_room(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: Any, **arrays: Any) -> None:
        file.write(b"PK")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(np, "savez", full)
    with pytest.warns(
        RuntimeWarning, match=r"index='.*frames\.npz' cannot be written \(No space left on device\)"
    ) as told:
        data = VideoDataset([folder / "b-frames.mp4"], frames=2, index=tmp_path / "frames.npz")
    assert [Path(each.filename).name for each in told] == ["test_video.py"]
    assert data[0].shape == (2, 48, 64, 3)
    assert not os.listdir(tmp_path)


@pytest.mark.parametrize("every", [None, 0.5])
def test_damaged_films_are_named_and_left_out(folder: Path, tmp_path: Path, every: float | None) -> None:
    whole = (folder / "broadcast.ts").read_bytes()
    damaged = {
        "cut.mp4": (folder / "b-frames.mp4").read_bytes()[:2000],  # its index would be at the end
        "other.mp4": b"not a film" * 50,
        "empty.mp4": b"",
        "sound.mp4": None,
    }
    for name, data in damaged.items():
        if data is not None:
            (tmp_path / name).write_bytes(data)
    paths = [folder / "b-frames.mp4", *(tmp_path / name for name in damaged)]
    data = VideoDataset(paths, frames=50, every=every, index=tmp_path / "index.npz")
    for number, path in enumerate(paths[1:], 1):
        with pytest.raises((SourceError, FileNotFoundError), match=path.name):
            data.at(number, 0.0)
    with DataLoader(data, 2, on_error="skip", num_workers=1) as loader:
        assert sum(len(batch) for batch in loader) == 1
        assert [Path(bad.what.partition(" from")[0]).name for bad in loader.errors()] == list(damaged)
    # It is repaired, and found without making the dataset again.
    (tmp_path / "sound.mp4").write_bytes((folder / "b-frames.mp4").read_bytes())
    assert data.at(4, 0.0).shape == (50, 48, 64, 3)
    assert whole


@pytest.mark.parametrize(
    ("matrix", "upright"),
    [
        ((0, 1, -1, 0), lambda picture: np.rot90(picture, -1)),  # as a telephone that is held upright writes it
        ((-1, 0, 0, -1), lambda picture: np.rot90(picture, 2)),
        ((0, -1, 1, 0), np.rot90),
        ((-1, 0, 0, 1), np.fliplr),
        ((0, 1, 1, 0), lambda picture: picture.swapaxes(0, 1)),
        ((1, 0, 0, 1), np.array),
    ],
)
def test_pictures_are_upright(folder: Path, films: dict[str, Any], matrix: Any, upright: Any) -> None:
    film = turned((folder / "b-frames.mp4").read_bytes(), matrix)
    clip, sized = VideoClip(2), VideoClip(1, size=(32, 16))
    expected = np.stack([upright(picture) for picture in films["b-frames.mp4"][1][30:32]])
    start = films["b-frames.mp4"][0][30] + 1e-4
    assert plain(clip.read(film, clip.index(film), start=start)) == plain(np.ascontiguousarray(expected))
    assert sized.read(film, sized.index(film), start=start).shape == (1, 32, 16, 3)


@pytest.mark.parametrize("matrix", [(0.7, 0.7, -0.7, 0.7), (2, 0, 0, 1), (1, 0, 1, 0)])
def test_films_that_are_turned_otherwise_are_refused(folder: Path, matrix: Any) -> None:
    film = turned((folder / "b-frames.mp4").read_bytes(), matrix)
    clip = VideoClip(2)
    with pytest.raises(SourceError, match="its header turns pictures in a way that is no multiple of 90°"):
        clip.read(film, clip.index(film), start=0.0)


def test_clips_of_a_damaged_avi_are_what_the_whole_film_shows_or_errors(folder: Path, tmp_path: Path) -> None:
    """FFmpeg counts the times of an AVI if it is read on, and looks them up if it is read from somewhere."""
    whole, random, clip = (folder / "old.avi").read_bytes(), np.random.default_rng(3), VideoClip(2)
    chunks, same, path = [found.start() for found in re.finditer(b"00dc", whole)], 0, tmp_path / "a.avi"
    for _ in range(few(100)):
        at = chunks[random.integers(10, 30)] + random.integers(-40, 8)
        path.write_bytes(whole[:at] + random.bytes(50) + whole[at + 50 :])
        try:
            index, (times, pictures) = clip.index(str(path)), decoded(path)
        except (SourceError, av.FFmpegError):
            continue
        for number in range(20, len(index.times) - 1, 9):
            start = float(index.times[number] - index.times[0]) * index.unit
            try:
                got = clip.read(str(path), index, start=start)
            except SourceError:
                continue
            first = int(np.argmin(np.abs(np.array(times) - start)))
            assert np.array_equal(got, pictures[first : first + 2])
            same += 1
    assert same >= 20


def test_a_broadcast_that_lacks_packets_is_an_error_there(folder: Path, films: dict[str, Any], tmp_path: Path) -> None:
    """FFmpeg would conceal it."""
    whole, (times, pictures) = (folder / "broadcast.ts").read_bytes(), films["broadcast.ts"]
    at = len(whole) // 376 * 188
    (tmp_path / "a.ts").write_bytes(whole[:at] + whole[at + 2 * 188 :])
    data = VideoDataset([tmp_path / "a.ts"], frames=2)
    assert np.array_equal(data.at(0, 0.0), pictures[:2])
    with pytest.raises(SourceError, match=r"a\.ts: is damaged or has changed: no frame can be decoded 1\S* seconds"):
        [data.at(0, time + 1e-4) for time in times[20:40]]
    assert np.array_equal(data.at(0, times[50] + 1e-4), pictures[50:52])


def test_a_film_that_has_changed_since(folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.mp4"
    path.write_bytes((folder / "b-frames.mp4").read_bytes())
    data = VideoDataset([path], frames=4)
    film(path, "mpeg4", 20)
    with pytest.raises(SourceError, match=r"a\.mp4: is damaged or has changed: no frame can be decoded 1\."):
        data.at(0, 1.5)


def test_short_films_are_errors_or_filled_up(folder: Path, films: dict[str, Any]) -> None:
    path = folder / "b-frames.mp4"
    for options in ({"frames": 61}, {"frames": 61, "every": 1.0}, {"frames": 25, "fps": 10}):
        data = VideoDataset([path], **options)
        assert len(data) == 1
        with pytest.raises(SourceError, match=r"has 60 frames in 2\.4 seconds"):
            data[0]
    padded = VideoDataset([path], frames=70, every=5.0, pad=True)[0]
    pixels = films["b-frames.mp4"][1]
    assert np.array_equal(padded[:60], pixels)
    assert (padded[60:] == pixels[-1]).all()


@pytest.mark.parametrize(
    ("wrong", "error", "told"),
    [
        ({"frames": 0}, OptionError, "frames must be at least 1"),
        ({"fps": 0}, OptionError, "fps must be more than 0"),
        ({"fps": True}, OptionTypeError, "fps must be a number"),
        ({"every": -1}, OptionError, "every must be more than 0"),
        ({"size": 3}, OptionTypeError, "size must be"),
        ({"paths": ["a.jpg"]}, OptionError, r"no decoder is known for 'a\.jpg'"),
        ({"index": 3}, TypeError, "PathLike"),
    ],
)
def test_wrong_options(wrong: dict[str, Any], error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        VideoDataset(**{"paths": ["a.mp4"], "frames": 2, **wrong})


def test_limits_and_packages(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = VideoDataset([folder / "old.avi"], frames=2, max_pixels=100)
    with pytest.raises(SourceError, match=r"old\.avi: its header says 64 × 48 pixels, more than max_pixels=100"):
        data[0]
    import sys

    monkeypatch.setitem(sys.modules, "av", None)
    with pytest.raises(MissingPackage, match=r"pip install 'feedline\[video\]'"):
        VideoDataset([folder / "old.avi"], frames=2)
