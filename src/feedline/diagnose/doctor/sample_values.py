"""Values: not finite, of another shape, type or structure than the others, or larger than necessary.

Takes: evidence. Gives: findings "not-finite", "none-samples", "varying-fields", "odd-shapes", "varying-shapes",
"varying-dtypes", "float64", "float-images".
Not its job: labels (label_checks), what collating makes of them (failures).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from feedline.diagnose.doctor.evidence import ARRAY, LIST, NOTHING, NUMBER, Evidence, Field, Reading
from feedline.diagnose.doctor.wording import agree, field_name, indices, some
from feedline.diagnose.findings import NOTE, PROBLEM, WARNING, Finding

RARE = 0.1
"""Up to this share, samples that differ are exceptions; above it, the kind varies."""
LISTED = 20
SMALLEST = 32
"""The smallest field in bytes whose type is worth a remark: four numbers, as in a row of a small table."""


def check_finite(seen: Evidence) -> Iterator[Finding]:
    """NaN and infinity."""
    for path in seen.paths:
        bad = [(reading, field) for reading, field in seen.column_of(path) if field.nans or field.infs]
        if bad:
            nans, infs = sum(field.nans for _, field in bad), sum(field.infs for _, field in bad)
            what = " and ".join(word for word, count in (("NaN", nans), ("infinity", infs)) if count)
            places = indices(reading for reading, _ in bad)
            yield Finding(
                "not-finite",
                PROBLEM,
                f"{field_name(path)} holds {what} in {len(bad):,} of {len(seen.good):,} samples: {some(places)}",
                {"field": path, "indices": places, "nan": nans, "inf": infs},
                "One such value makes the loss NaN, and with it every weight: training fails, mostly without an error.",
                "find where it comes from (a division by zero, a logarithm, a missing value), or leave them out.",
                f"finite = lambda sample: np.isfinite(sample{path}).all()\n"
                "loader = DataLoader(dataset, collate=feedline.collate.drop_invalid(valid=finite))",
            )


def check_structure(seen: Evidence) -> Iterator[Finding]:
    """None instead of a sample; fields that only some samples have."""
    good = seen.good
    nothing = [reading for reading in good if len(reading.fields) == 1 and reading.fields[0][:2] == ("", NOTHING)]
    if nothing:
        yield Finding(
            "none-samples",
            _severity(seen),
            f"{len(nothing):,} of {len(good):,} samples {agree(len(nothing), 'is', 'are')} None: "
            f"{some(indices(nothing))}",
            {"indices": indices(nothing)},
            "None often marks a sample that cannot be used, but a batch cannot be made of it.",
            "raise an error in __getitem__ and let the loader leave the sample out, or drop them when collating.",
            "loader = DataLoader(dataset, collate=feedline.collate.drop_invalid())",
        )
    there = [reading for reading in good if reading.fields[:1] != nothing[0].fields] if nothing else good
    kinds = Counter(map(_structure, there))
    if len(kinds) > 1:
        usual = kinds.most_common(1)[0][0]
        odd = [reading for reading in there if _structure(reading) != usual]
        missing = sorted(set(usual) ^ set(_structure(odd[0])))
        yield Finding(
            "varying-fields",
            _severity(seen),
            f"{len(odd):,} of {len(good):,} samples {agree(len(odd), 'has', 'have')} other fields than the rest: "
            f"{some(indices(odd))}",
            {"indices": indices(odd), "usual": list(usual), "differing": missing},
            f"Sample {odd[0].index} differs in {some(missing)}. A batch needs the same fields in all samples.",
            "give every sample all fields, with a placeholder where a value is missing.",
        )


def _severity(seen: Evidence) -> str:
    """The severity for samples that default collation refuses: is the loader known to use it?"""
    if seen.setting.collates != "default":
        return NOTE
    return PROBLEM if seen.setting.loader else WARNING


def _structure(reading: Reading) -> tuple[str, ...]:
    return tuple(field.path for field in reading.fields)


def check_shapes(seen: Evidence) -> Iterator[Finding]:
    """Arrays that are not all of one shape."""
    for path in seen.paths:
        found = [(reading, field) for reading, field in seen.column_of(path) if field.kind in (ARRAY, LIST)]
        shapes = Counter(field.shape for _, field in found)
        if len(shapes) < 2 or len(found) < len(seen.good) // 2:
            continue
        usual = shapes.most_common(1)[0][0]
        odd = [(reading, field) for reading, field in found if field.shape != usual]
        ranks = {len(shape) for shape in shapes}
        if len(ranks) == 1 and seen.setting.collates != "default":
            continue  # the user's own collate_fn takes care of them
        if len(odd) <= RARE * len(found) or len(ranks) > 1:
            yield _odd_shapes(seen, path, usual, odd, len(found))
        else:
            yield from _varying_shapes(seen, path, found, len(shapes))


def _odd_shapes(
    seen: Evidence, path: str, usual: tuple[int, ...], odd: list[tuple[Reading, Field]], count: int
) -> Finding:
    readings = [reading for reading, _ in odd]
    return Finding(
        "odd-shapes",
        _severity(seen),
        f"{field_name(path)} is {usual} in most samples, not in {len(odd):,} of {count:,}: {some(indices(readings))}",
        {
            "field": path,
            "usual": usual,
            "indices": indices(readings),
            "shapes": {reading.index: list(field.shape) for reading, field in odd[:LISTED]},
        },
        f"Sample {readings[0].index} is {odd[0][1].shape}. A batch that gets one of them fails: a grey image among "
        "coloured ones, a cut-off file, a sequence that was not cut to length.",
        "bring all samples to one shape in __getitem__ (for images: convert('RGB') and resize), or leave these out.",
    )


def _varying_shapes(seen: Evidence, path: str, found: list[tuple[Reading, Field]], count: int) -> Iterator[Finding]:
    sizes = [field.shape for _, field in found]
    axes = [axis for axis in range(len(sizes[0])) if len({size[axis] for size in sizes}) > 1]
    smallest, largest = min(sizes), max(sizes)
    axis = "" if axes == [0] else f", axis={axes[0] if len(axes) == 1 else tuple(axes)}"
    collate = f"feedline.collate.pad(0{axis})"
    key = path[1:-1] if path.startswith("[") and path.count("[") == 1 else None
    if key is not None:
        collate = f"{{{key}: {collate}}}"
    yield Finding(
        "varying-shapes",
        PROBLEM if seen.setting.loader else NOTE,
        f"{field_name(path)} has {count:,} different shapes, from {smallest} to {largest}",
        {"field": path, "shapes": count, "smallest": smallest, "largest": largest, "axes": axes},
        "Samples of different shapes do not fit into one array: the loader's default collation fails on them.",
        "pad sequences to the longest of their batch; bring images to one size in __getitem__.",
        f"loader = DataLoader(dataset, collate={collate})",
    )


def check_dtypes(seen: Evidence) -> Iterator[Finding]:
    """Fields whose type differs from sample to sample."""
    for path in seen.paths:
        found = [(reading, field) for reading, field in seen.column_of(path) if field.kind != NOTHING]
        kinds = Counter(_type(field) for _, field in found)
        if len(kinds) < 2 or len(found) < 2:
            continue
        usual = kinds.most_common(1)[0][0]
        odd = [reading for reading, field in found if _type(field) != usual]
        yield Finding(
            "varying-dtypes",
            WARNING,
            f"{field_name(path)} is {usual} in most samples, but {some(sorted(set(kinds) - {usual}))} in "
            f"{len(odd):,} of {len(found):,}: {some(indices(odd))}",
            {"field": path, "dtypes": dict(kinds), "indices": indices(odd)},
            "Which type a batch has then depends on which samples are in it; values may be scaled differently, too "
            "(0–255 and 0–1).",
            "convert to one type in __getitem__.",
        )


def _type(field: Field) -> str:
    return field.dtype if field.kind in (ARRAY, NUMBER) else f"{field.dtype} ({field.kind})"


def check_float64(seen: Evidence) -> Iterator[Finding]:
    """Twice the bytes that a model uses."""
    for path in _everywhere(
        seen, lambda field: field.kind == ARRAY and field.dtype == "float64" and field.nbytes >= SMALLEST
    ):
        size = max(field.nbytes for _, field in seen.column_of(path))
        yield Finding(
            "float64",
            WARNING,
            f"{field_name(path)} is float64",
            {"field": path, "bytes_per_sample": size},
            "Models compute in float32 or less: half of every batch's memory is wasted, and torch refuses to mix "
            "the two. NumPy makes float64 of whatever is divided, averaged or drawn at random.",
            "convert it to float32 where it is made.",
            "array = array.astype(np.float32)        # or: rng.random(shape, dtype=np.float32)",
        )


def check_images(seen: Evidence) -> Iterator[Finding]:
    """Images of bytes that are sent as floats."""
    for path in _everywhere(seen, lambda field: field.eight_bit):
        field = next(field for _, field in seen.column_of(path))
        yield Finding(
            "float-images",
            NOTE,
            f"{field_name(path)} is an image as {field.dtype} with no more than 256 values per channel",
            {"field": path, "shape": field.shape, "bytes_per_sample": field.nbytes, "as_uint8": _elements(field)},
            f"It was uint8 once, and takes {field.nbytes // max(1, _elements(field))} times the memory and the time to "
            "collate and copy.",
            "leave it uint8 in the dataset and convert the whole batch where it is used, on the GPU if there is one.",
            "images = images.to(device, non_blocking=True).float().div_(255)      # in the training loop",
        )


def _elements(field: Field) -> int:
    count = 1
    for size in field.shape:
        count *= size
    return count


def _everywhere(seen: Evidence, holds: Any) -> Iterator[str]:
    """Paths of fields for which `holds` is true in all samples."""
    for path in seen.paths:
        found = [field for _, field in seen.column_of(path)]
        if found and all(holds(field) for field in found):
            yield path


CHECKS = (check_finite, check_structure, check_shapes, check_dtypes, check_float64, check_images)
