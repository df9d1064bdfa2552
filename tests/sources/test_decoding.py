"""Bytes into samples: the same pictures as Pillow's, odd and damaged ones, limits, and nothing unpickled unasked."""

from __future__ import annotations

import io
import os
import pickle
import struct
import sys
import zlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from kinds import few
from made_files import encoded, natural, saved, sound, zipped
from PIL import Image

from feedline import SourceError
from feedline.sources import ObjectDataset, TarDataset, TarWriter
from feedline.sources.decoding import Decoders
from feedline.sources.decoding.pictures import Pictures, _webp_size
from feedline.sources.decoding.resizing import resized

BILINEAR = Image.Resampling.BILINEAR
PACKAGES = [(turbo, vector) for turbo in (True, False) for vector in (True, False)]
with_any_packages = pytest.mark.parametrize(("turbo", "vector"), PACKAGES)


def decoder(size: tuple[int, int] | None = None, **options: Any) -> Pictures:
    usual: dict[str, Any] = {"mode": "RGB", "max_pixels": 10**7, "upright": False, "channels_first": False}
    return Pictures(size, **(usual | options))


def promised(kind: str, shape: tuple[int, ...]) -> bytes:
    """An .npy file of a few bytes whose header may say anything."""
    said = repr({"descr": kind, "fortran_order": False, "shape": shape}).encode().ljust(500) + b"\n"
    return b"\x93NUMPY\1\0" + len(said).to_bytes(2, "little") + said + bytes(4)


def decode(name: str, data: bytes, size: Any = None, **options: Any) -> Any:
    known = Decoders(size, **options)
    known.check_packages([known.suffix(name)])
    return known.decode(name, data)


def apart(one: np.ndarray, other: np.ndarray) -> tuple[float, int]:
    """Mean and largest difference."""
    assert one.shape == other.shape
    difference = np.abs(one.astype(int) - other.astype(int))
    return float(difference.mean()), int(difference.max())


def pillows(data: bytes, size: tuple[int, int] | None = None) -> np.ndarray:
    """As it is usually done."""
    image = Image.open(io.BytesIO(data)).convert("RGB")
    return np.asarray(image if size is None else image.resize(size[::-1], BILINEAR))


# ── The same picture ──────────────────────────────────────────────────────────────────────────────────────


@with_any_packages
@pytest.mark.parametrize("subsampling", [0, 2])
@pytest.mark.parametrize("size", [None, (224, 224), (300, 400), (500, 500)])
def test_a_jpeg_is_pillows_picture(turbo: bool, vector: bool, subsampling: int, size: Any) -> None:
    """To within 2 of 255, as long as it is not decoded at a smaller scale."""
    data = jpeg(500, 375, subsampling)
    pixels = decoder(size, turbo=turbo, vector=vector)(data)
    assert pixels.dtype == np.uint8
    assert apart(pixels, pillows(data, size))[1] <= (2 if vector and size else 0)
    pixels[:] = 0  # it is the user's own


@cache
def jpeg(width: int, height: int, subsampling: int = 2, **options: Any) -> bytes:
    return encoded(natural(width, height), "jpeg", quality=90, subsampling=subsampling, **options)


@with_any_packages
@pytest.mark.parametrize(
    ("width", "height", "size"), [(1000, 750, (224, 224)), (801, 643, (257, 320)), (1003, 801, (60, 60))]
)
def test_a_jpeg_decoded_smaller_is_still_that_picture(
    turbo: bool, vector: bool, width: int, height: int, size: tuple[int, int]
) -> None:
    """The tolerance that docs/files.md states: the decoder averages by itself, more sharply than Pillow's filter."""
    data = jpeg(width, height)
    pixels = decoder(size, turbo=turbo, vector=vector)(data)
    mean, most = apart(pixels, pillows(data, size))
    assert mean < 1.2
    assert most < 12
    whole = decoder(size, turbo=turbo, vector=vector)
    assert apart(pixels, replace(whole, turbo=not turbo)(data))[1] == 0  # whichever decoder it was
    aliased = np.asarray(Image.open(io.BytesIO(data)).resize(size[::-1], Image.Resampling.NEAREST))
    assert mean < apart(aliased, pillows(data, size))[0] / 2


@pytest.mark.parametrize("size", [(224, 224), (223, 225), (112, 112), (30, 30)])
def test_no_picture_is_decoded_smaller_than_asked_for(size: tuple[int, int]) -> None:
    for width, height in [(448, 448), (447, 449), (1792, 300), (2000, 1999)]:
        scale = decoder(size)._scale(width, height)
        assert scale in (1, 2, 4, 8)
        room = min(height / size[0], width / size[1])
        assert scale == 1 or room >= 1.25 * scale
        assert scale == 8 or room < 2.5 * scale


@settings(max_examples=few(60))
@given(
    st.integers(1, 40),
    st.integers(1, 40),
    st.integers(1, 60),
    st.integers(1, 60),
    st.sampled_from([1, 3]),
    st.integers(0, 9),
)
def test_both_resizers_agree(
    width: int, height: int, new_width: int, new_height: int, channels: int, seed: int
) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, channels), dtype=np.uint8)
    quick, pillow = (resized(pixels, (new_height, new_width), vector) for vector in (True, False))
    assert quick.shape == (new_height, new_width, channels)
    assert apart(quick, pillow)[1] <= 2


def test_many_threads_resize_at_once() -> None:
    pictures = [natural(90, 70, seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as threads:
        got = list(threads.map(lambda picture: resized(picture, (32, 32), vector=True), pictures * 20))
    for place, picture in enumerate(pictures * 20):
        assert apart(got[place], resized(picture, (32, 32), vector=False))[1] <= 2


def test_whoever_decodes_has_the_quick_packages() -> None:
    """Also shards and objects, whose suffixes are not known beforehand."""
    data = jpeg(500, 375)
    quick = decoder((224, 224), turbo=True, vector=True)
    assert apart(Decoders((224, 224))(data, "jpg"), quick(data))[1] == 0
    ours = Decoders((224, 224))._ours[".jpg"]
    assert isinstance(ours, Pictures)
    assert (ours.turbo, ours.vector) == (True, True)


def test_what_is_installed_is_chosen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = decoder().chosen()
    assert (chosen.turbo, chosen.vector) == (True, True)
    monkeypatch.setitem(sys.modules, "simplejpeg", None)
    monkeypatch.setitem(sys.modules, "cykooz_resizer", None)
    without = decoder().chosen()
    assert (without.turbo, without.vector) == (False, False)
    assert without(jpeg(40, 30)).shape == (30, 40, 3)
    with pytest.raises(ImportError, match=r"feedline\[images\]"):  # another machine than it was made on
        chosen(jpeg(40, 30))


# ── Kinds of pictures ─────────────────────────────────────────────────────────────────────────────────────

GREY = natural(20, 10)[..., 0]
COLOURS = natural(20, 10)
SLOPE = np.add.outer(np.arange(10) * 12, np.arange(20) * 7)[..., None].repeat(3, 2).astype(np.uint8)


def test_grey_pictures() -> None:
    assert decode("a.png", encoded(GREY, "png")).tolist() == np.repeat(GREY[..., None], 3, 2).tolist()
    assert decode("a.png", encoded(GREY, "png"), mode="L").tolist() == GREY[..., None].tolist()
    assert decode("a.png", encoded(GREY, "png"), (5, 6), mode="L").shape == (5, 6, 1)
    data = encoded(GREY, "jpeg", quality=95)
    assert apart(decode("a.jpg", data), pillows(data)) == (0, 0)
    for turbo, vector in PACKAGES:
        grey = decoder((5, 6), mode="L", turbo=turbo, vector=vector)(jpeg(100, 80))
        known = Image.open(io.BytesIO(jpeg(100, 80))).convert("L").resize((6, 5), BILINEAR)
        assert apart(grey, np.asarray(known)[..., None])[0] < 3


def test_sixteen_bits_lose_the_lower_eight() -> None:
    deep = np.arange(0, 65536, 256, dtype=np.uint16).reshape(16, 16) + 3
    assert decode("a.png", encoded(deep, "png"))[..., 1].tolist() == (deep >> 8).tolist()
    assert decode("a.tif", encoded(deep, "tiff"), mode="L")[..., 0].tolist() == (deep >> 8).tolist()
    with pytest.raises(SourceError, match="floats"):
        decode("a.tif", encoded(np.ones((4, 4), np.float32), "tiff"))
    for value in (1 << 20, 200):  # of which nobody knows whether it is bright
        with pytest.raises(SourceError, match="32 bits or a sign"):
            decode("a.tif", encoded(np.full((4, 4), value, np.int32), "tiff"))


def test_transparency_is_left_out() -> None:
    clear = np.dstack([COLOURS, np.zeros((10, 20), np.uint8)])
    for data in (encoded(clear, "png"), encoded(COLOURS, "png", transparency=(1, 2, 3))):
        assert decode("a.png", data).tolist() == COLOURS.tolist()
    palette = Image.fromarray(COLOURS).quantize(16)
    for transparency in (0, bytes(range(16))):
        data = encoded(palette, "png", transparency=transparency)
        assert decode("a.png", data).tolist() == np.asarray(palette.convert("RGB")).tolist()
    both = Image.fromarray(np.dstack([GREY, GREY // 2]), "LA")
    assert decode("a.png", encoded(both, "png"))[..., 2].tolist() == GREY.tolist()
    bits = Image.fromarray(COLOURS).convert("1")
    assert set(np.unique(decode("a.png", encoded(bits, "png")))) == {0, 255}


def test_cmyk_jpeg_is_pillows() -> None:
    data = encoded(Image.fromarray(natural(64, 48)).convert("CMYK"), "jpeg", quality=95)
    for size in (None, (20, 24)):
        mean, most = apart(decode("a.jpg", data, size), pillows(data, size))
        assert mean < 2.5
        assert size is not None or most == 0


@pytest.mark.parametrize("kind", ["gif", "webp", "tiff", "png"])
def test_the_first_frame_of_many(kind: str) -> None:
    frames = [Image.fromarray(np.full((8, 8, 3), value, np.uint8)) for value in (255, 0, 90)]
    data = encoded(
        frames[0], kind, save_all=True, append_images=frames[1:], **({"lossless": True} if kind == "webp" else {})
    )
    assert decode(f"a.{kind}", data).min() == 255


@pytest.mark.parametrize("kind", ["jpeg", "png", "webp"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_exif_orientation(kind: str, orientation: int) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    data = encoded(SLOPE, kind, exif=exif, quality=95)
    assert apart(decode(f"a.{kind}", data), pillows(data)) == (0, 0)  # as Pillow and torchvision: as it is stored
    turned = decode(f"a.{kind}", data, upright=True)
    assert turned.shape == ((10, 20, 3) if orientation < 5 else (20, 10, 3))
    flipped, across = SLOPE[:, ::-1], SLOPE.transpose(1, 0, 2)
    known = (SLOPE, flipped, flipped[::-1], SLOPE[::-1], across, across[:, ::-1], across[::-1, ::-1], across[::-1])
    assert apart(turned, known[orientation - 1])[0] < 4
    assert decode(f"a.{kind}", data, (4, 9), upright=True).shape == (4, 9, 3)


def test_upright_pictures_are_scaled_by_their_own_sides() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6
    upright = np.rot90(natural(400, 100), -1)  # 400 high, 100 wide, stored lying
    data = encoded(np.rot90(upright), "jpeg", quality=95, exif=exif)
    pixels = decode("a.jpg", data, (100, 25), upright=True)
    assert apart(pixels, np.asarray(Image.fromarray(upright).resize((25, 100), BILINEAR)))[0] < 4


def test_the_contents_count_and_not_the_suffix() -> None:
    data = encoded(COLOURS, "png")
    for name in ("a.jpg", "a.WEBP", "a.gif"):
        assert decode(name, data).tolist() == COLOURS.tolist()
    assert apart(decode("a.png", jpeg(20, 10)), pillows(jpeg(20, 10))) == (0, 0)


def test_channels_first() -> None:
    first = decode("a.png", encoded(COLOURS, "png"), channels_first=True)
    assert first.tolist() == COLOURS.transpose(2, 0, 1).tolist()
    assert decode("a.jpg", jpeg(50, 40), (12, 13), channels_first=True).shape == (3, 12, 13)
    samples, _ = decode("a.wav", sound(b"\1\0\2\0\3\0\4\0", channels=2), channels_first=True)
    assert samples.tolist() == [[1, 3], [2, 4]]


# ── Limits ────────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("options", [{}, {"lossless": True}, {"lossless": True, "exif": Image.Exif()}])
def test_a_webp_of_any_kind_is_measured_before_it_is_opened(options: dict[str, Any]) -> None:
    if "exif" in options:
        options["exif"][0x0112] = 1  # then the sizes are somewhere else
    data = encoded(natural(301, 203), "webp", **options)
    assert _webp_size(data) == (301, 203)
    assert decode("a.webp", data).shape == (203, 301, 3)
    with pytest.raises(SourceError, match="301 × 203 = 61,103 pixels"):
        decode("a.webp", data, max_pixels=61_102)


def test_a_webp_bomb_is_refused() -> None:
    exif = Image.Exif()
    exif[0x0112] = 1
    data = bytearray(encoded(COLOURS, "webp", exif=exif))
    data[24:30] = b"\xff\xff\0" * 2
    with pytest.raises(SourceError, match="65536 × 65536"):
        decode("a.webp", bytes(data))


def promises(kind: str, width: int, height: int) -> bytes:
    """A small file whose header speaks of many pixels."""
    data = bytearray(encoded(np.zeros((16, 16, 3), np.uint8), kind))
    if kind == "png":
        data[16:24] = struct.pack(">II", width, height)
        data[29:33] = struct.pack(">I", zlib.crc32(data[12:29]))
    elif kind == "gif":
        data[6:10] = struct.pack("<HH", width, height)
    elif kind == "bmp":
        data[18:26] = struct.pack("<ii", width, height)
    elif kind == "jpeg":
        at = data.index(b"\xff\xc0")
        data[at + 5 : at + 9] = struct.pack(">HH", height, width)
    return bytes(data)


@pytest.mark.parametrize("kind", ["png", "gif", "bmp", "jpeg"])
@pytest.mark.parametrize("size", [None, (32, 32)])
def test_a_bomb_is_refused_by_its_header(kind: str, size: Any) -> None:
    with pytest.raises(
        SourceError, match=r"^dir/x\.jpg: .* 40000 × 30000 = 1,200,000,000 pixels.*max_pixels=89,478,485"
    ):
        decode("dir/x.jpg", promises(kind, 40000, 30000), size)
    for turbo, _ in PACKAGES[1:3]:
        with pytest.raises(SourceError, match="pixels"):
            decoder(size, turbo=turbo, max_pixels=100)(encoded(np.zeros((16, 16, 3), np.uint8), kind))


def test_the_limit_itself_is_allowed() -> None:
    data = encoded(COLOURS, "png")
    assert decode("a.png", data, max_pixels=200).shape == (10, 20, 3)
    with pytest.raises(SourceError, match="max_pixels=199"):
        decode("a.png", data, max_pixels=199)


def test_large_pictures_need_no_leave_of_pillows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 50)
    for kind in ("png", "jpeg", "bmp"):
        assert decode(f"a.{kind}", encoded(COLOURS, kind)).shape == (10, 20, 3)


def test_an_archive_is_refused_by_what_it_unpacks_to() -> None:
    bomb = zipped(zeros=np.zeros(1_000_000))
    assert len(bomb) < 20_000
    with pytest.raises(SourceError, match=r"unpacked it has 8,000,128 bytes, more than max_bytes=8,000,000"):
        decode("a.npz", bomb, max_bytes=8_000_000)
    assert decode("a.npz", bomb, max_bytes=9_000_000)["zeros"].shape == (1_000_000,)


def test_an_array_is_refused_if_its_header_promises_too_much() -> None:
    data = saved(np.zeros(4)).replace(b"(4,), }" + b" " * 15, b"(1000000000000000,), }")
    with pytest.raises(SourceError, match=r"is cut short.*8,000,000,000,000,000 bytes, and there are only 32"):
        decode("a.npy", data)


# ── Arrays, text, sound ───────────────────────────────────────────────────────────────────────────────────


class Touches:
    """What a pickle may do."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return os.mkdir, (str(self.path),)


def test_nothing_is_unpickled_unless_told_to(tmp_path: Path) -> None:
    evil = np.array([Touches(tmp_path / "made")], object)
    for name, data in (("a.npy", saved(evil)), ("a.npz", zipped(x=evil))):
        with pytest.raises(SourceError, match=rf"^{name}: .*allow_pickle=True"):
            decode(name, data)
    for data in (evil.dumps(), b"\x80\x04."):
        for name in ("a.npy", "a.npz", "a.json"):
            with pytest.raises(SourceError):
                decode(name, data)
    assert not (tmp_path / "made").exists()
    harmless = np.array([{"a": 1}, None], object)
    assert decode("a.npy", saved(harmless), allow_pickle=True).tolist() == [{"a": 1}, None]
    assert decode("a.npz", zipped(x=harmless), allow_pickle=True)["x"].tolist() == [{"a": 1}, None]


@pytest.mark.parametrize(
    "array",
    [
        np.array(3),
        np.empty((0, 3)),
        np.arange(6).reshape(2, 3)[:, ::-1],
        np.asfortranarray(np.arange(24.0).reshape(2, 3, 4)),
        np.array(["ü", "abc"]),
        np.array([(1, 2.5)], [("größe", "<i4"), ("名", "<f8")]),
        np.array(["2020-01-01"], "M8[D]"),
        np.arange(4, dtype=">i2"),
        np.array([True, False]),
        np.array([""], "U0"),
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore:Stored array in format 3.0")
def test_arrays_come_back(array: np.ndarray) -> None:
    for got in (decode("a.npy", saved(array)), decode("a.npz", zipped(x=array))["x"]):
        assert got.dtype == array.dtype
        assert got.shape == array.shape
        assert got.tolist() == array.tolist()
        assert got.flags.writeable
        assert got.flags.f_contiguous == np.load(io.BytesIO(saved(array))).flags.f_contiguous


@pytest.mark.parametrize(("width", "exact"), [(1, 2**7), (2, 1), (3, 2**23), (4, 2**31)])
def test_sound_of_any_width(width: int, exact: int) -> None:
    values = [0, 1, -1, 100, -128]
    raw = b"".join(
        (value + 128).to_bytes(1, "little") if width == 1 else value.to_bytes(width, "little", signed=True)
        for value in values
    )
    samples, rate = decode("a.wav", sound(raw, width=width, rate=16000))
    assert rate == 16000
    assert samples.shape == (5, 1)
    assert samples.dtype == (np.int16 if width == 2 else np.float32)
    assert (samples[:, 0].astype(np.float64) * exact).tolist() == values


@pytest.mark.parametrize(
    ("name", "data", "told"),
    [
        ("a.txt", b"abc\xff", "not UTF-8 from byte 3 on; .*decoders="),
        ("a.json", b'{"a": ', "not JSON: .*char 6"),
        ("a.json", b"[" * 100_000, "not JSON"),
        ("a.npy", b"PK\3\4 and so on", r"not a \.npy file: it begins with b'PK"),
        ("a.npy", saved(np.zeros(9))[:-1], "cut short"),
        ("a.npy", saved(np.zeros(9))[:40], "cut short"),
        ("a.npy", saved(np.zeros(9)).replace(b"(9,), }", b"(-1,),}"), r"impossible shape \(-1,\)"),
        ("a.npy", b"\x93NUMPY\2\0" + (100_000).to_bytes(4, "little") + b"(" * 100_000, "header should have 100,000"),
        ("a.npy", promised("<U0", (10**12,)), "cut short"),
        ("a.npy", promised("|S0", (10**12,)), "cut short"),
        ("a.npy", promised("<f4", (0, 2**40, 2**40)), r"NumPy cannot make an array \(0, .* too big"),
        ("a.npy", promised("|V0", (2**70,)), "NumPy cannot make an array"),
        ("a.npy", promised("<f4", (1,) * 70), "NumPy cannot make an array"),
        ("a.npz", saved(np.zeros(9)), r"not an \.npz"),
        ("a.npz", zipped(x=np.arange(99))[:-30], r"not an \.npz file, or is damaged"),
        ("a.wav", sound(b"\0" * 64)[:-2], "cut short: 32 frames need 64 bytes, and there are only 62"),
        ("a.wav", sound(b"\0" * 64)[:20], r"\.wav cannot be read"),
        ("a.wav", b"RIFF" + b"\0" * 60, r"\.wav cannot be read"),
        ("a.wav", sound(b"\0" * 64).replace(b"\1\0\1\0", b"\3\0\1\0", 1), "unknown format: 3.*only PCM"),
        ("a.png", encoded(COLOURS, "png")[:-30], "PNG picture cannot be decoded"),
        ("a.png", encoded(COLOURS, "png")[:20], "PNG picture cannot be decoded: .*"),
        ("a.jpg", jpeg(100, 80)[:900], "JPEG picture cannot be decoded: image file is truncated"),
        ("a.jpg", jpeg(100, 80)[:30], "JPEG picture cannot be decoded"),
        ("a.jpg", b"\xff\xd8", "JPEG picture cannot be decoded"),
        ("a.webp", encoded(COLOURS, "webp")[:-40], "WebP picture cannot be decoded"),
        ("a.gif", encoded(COLOURS, "gif")[:-99], "GIF picture cannot be decoded"),
        ("a.jpg", b"", "a.jpg: the file is empty"),
        ("a.jpg", b"<html>", "is not a picture: it begins with b'<html>'"),
    ],
)
def test_damaged_files(name: str, data: bytes, told: str) -> None:
    with pytest.raises(SourceError, match=f"(?s)^{name}: .*{told}" if data else told):
        decode(name, data)


WHOLE = {
    "a.png": encoded(COLOURS, "png"),
    "a.jpg": jpeg(40, 30),
    "b.jpg": encoded(natural(40, 30), "jpeg", progressive=True),
    "a.gif": encoded(COLOURS, "gif"),
    "a.bmp": encoded(COLOURS, "bmp"),
    "a.webp": encoded(COLOURS, "webp"),
    "a.tif": encoded(COLOURS, "tiff", compression="tiff_lzw"),
    "a.npy": saved(np.arange(12.0).reshape(3, 4)),
    "a.npz": zipped(x=np.arange(9), y=np.ones(3)),
    "a.wav": sound(b"\0\1" * 50),
    "a.json": b'{"a": [1, 2.5, null], "b": "x"}',
    "a.txt": "grün".encode(),
}


@settings(max_examples=few(400))
@given(
    st.sampled_from(sorted(WHOLE)),
    st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=4),
    st.integers(1, 4000),
)
@pytest.mark.filterwarnings("default")  # Pillow has things to say
def test_whatever_is_wrong_with_a_file_it_is_decoded_or_refused(
    name: str, changes: list[tuple[int, int]], end: int
) -> None:
    damaged = bytearray(WHOLE[name])
    for at, value in changes:
        damaged[at % len(damaged)] = value
    known = Decoders((9, 8), max_pixels=10_000, max_bytes=100_000)
    known.check_packages([known.suffix(name)])
    try:
        known.decode(name, bytes(damaged[:end]))
    except SourceError as error:
        refused = str(error)
    else:
        return
    assert refused.startswith(f"{name}: ")


def test_shards_and_objects_are_decoded_alike(tmp_path: Path) -> None:
    data = io.BytesIO()
    Image.new("RGB", (40, 30), (200, 30, 60)).save(data, "JPEG")
    with TarWriter(tmp_path / "a.tar") as writer:
        writer.write({"__key__": "one", "jpg": data.getvalue(), "cls": 3})
    known = pickle.loads(pickle.dumps(Decoders(size=(16, 16))))
    sample = TarDataset(tmp_path / "a.tar", decode=known)[0]
    assert (sample["jpg"].shape, sample["cls"]) == ((16, 16, 3), 3)
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects" / "one.jpg").write_bytes(data.getvalue())
    found = ObjectDataset(tmp_path / "objects", decode=known)[0]
    assert np.array_equal(found, sample["jpg"])
    with pytest.raises(SourceError, match="no decoder is known"):
        known(b"", "xyz")
