"""`loader.draw` and `feedline draw`: a picture of what a loader will do with the user's data.

Takes: a loader, the kind of picture, labels or lengths if the dataset does not tell them. Gives: a PNG or SVG file.
Promises: it is drawn from the loader's own plan; samples are read only for "batch" (one batch) and for "padding" if no
lengths are given; then they are read as in training, and the user's random generators stay as they are.
Not its job: how pictures look (pictures), the plan (coming_epoch).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from feedline.datasets import ArrayDataset, IntArray, Mixture, classes_of
from feedline.diagnose.doctor.patient import COLUMNS
from feedline.diagnose.drawing import pictures
from feedline.diagnose.drawing.coming_epoch import Coming, coming
from feedline.diagnose.plotting import encoded, looks
from feedline.diagnose.rendering import write_file
from feedline.diagnose.user_loader import front_for, seeded_loader
from feedline.errors import OptionError
from feedline.errors.checks import check_choice, check_file
from feedline.errors.foreign import ask
from feedline.order.lengths import lengths_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

KINDS = ("classes", "sources", "padding", "order", "batch")


@looks()
def draw(
    loader: Any,
    path: str | os.PathLike[str],
    kind: str | None = None,
    *,
    labels: Any = None,
    lengths: Any = None,
    epoch: int | None = None,
) -> str:
    """Draw, write the file, and return the kind that was drawn; without a kind, the one that the data suggests.

    >>> import tempfile
    >>> from feedline import DataLoader
    >>> loader = DataLoader(range(100), batch_size=8, shuffle=True)
    >>> draw(loader, os.path.join(tempfile.mkdtemp(), "order.svg"))
    'order'
    """
    file = check_file("path", path)
    if file is None or not file.lower().endswith((".png", ".svg")):
        raise OptionError(f"path must be a file whose name ends in .png or .svg; got {path!r}")
    found = coming(loader, epoch)
    if not found.batches:
        raise OptionError("the epoch has no batch, so there is nothing to draw")
    known = _column(found, labels, "labels")
    chosen = _suggested(found, known, lengths) if kind is None else check_choice("kind", kind, KINDS)
    drawn = _DRAWN[chosen](found, known, lengths)
    write_file(file, encoded(drawn, file))
    return chosen


def _suggested(coming: Coming, labels: Any, lengths: Any) -> str:
    if lengths is not None:
        return "padding"
    if labels is not None:
        return "classes"
    return "sources" if isinstance(coming.dataset, Mixture) else "order"


def _column(coming: Coming, given: Any, name: str) -> Any:
    """One value for each sample: given, or an attribute of the dataset; None if there is none."""
    size = len(coming.dataset)
    if given is not None:
        if len(given) != size:
            raise OptionError(f"{name} must have one value for each of the {size:,} samples; got {len(given):,}")
        return given
    for attribute in COLUMNS:
        found = ask(coming.dataset, attribute)
        try:
            if found is not None and not callable(found) and len(found) == size and len(np.shape(found)) == 1:
                return found
        except Exception:  # a foreign object's own len() or shape
            continue
    return None


def _classes(coming: Coming, labels: Any, lengths: Any) -> Figure:
    if labels is None:
        raise OptionError("the dataset does not say the label of each sample: give labels=, one for each sample")
    classes = classes_of(labels)
    return pictures.shares_in_batches(coming, classes.codes, classes.names, "Which class is in which batch")


def _sources(coming: Coming, labels: Any, lengths: Any) -> Figure:
    if not isinstance(coming.dataset, Mixture):
        raise OptionError(f"the dataset is no Mixture but a {type(coming.dataset).__name__}: it has no sources")
    sizes = coming.dataset.lengths
    codes = np.repeat(np.arange(len(sizes)), list(sizes.values()))
    return pictures.shares_in_batches(coming, codes, list(sizes), "Which source is in which batch")


def _padding(coming: Coming, labels: Any, lengths: Any) -> Figure:
    column = _lengths_read(coming.dataset) if lengths is None else _column(coming, lengths, "lengths")
    found: IntArray = np.asarray(column)
    if found.ndim != 1 or found.dtype.kind not in "iu" or (found < 0).any():
        raise OptionError("lengths must be whole numbers from 0, one for each sample")
    return pictures.padding_of_batches(coming, found)


def _lengths_read(dataset: Any) -> IntArray:
    """A column is asked for; else each sample is read by a loader of ours, which leaves the user's generators alone."""
    if isinstance(dataset, ArrayDataset):
        return lengths_of(dataset)
    with seeded_loader(front_for(dataset, False), dataset, 0, batch_size=1, collate_fn=_as_they_are) as reader:
        return lengths_of(_InTurn(iter(reader), len(dataset)))


class _InTurn:
    """The samples of batches of one, for who asks for one after the other."""

    def __init__(self, batches: Iterator[list[Any]], length: int) -> None:
        self._batches, self._length = batches, length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> Any:
        return next(self._batches)[0]


def _order(coming: Coming, labels: Any, lengths: Any) -> Figure:
    return pictures.order_of_epoch(coming)


def _batch(coming: Coming, labels: Any, lengths: Any) -> Figure:
    """The samples are read by a loader of ours, which seeds them and leaves the user's generators as they were."""
    indices = coming.batches[0][: pictures.THUMBNAILS].tolist()
    reader = seeded_loader(
        front_for(coming.dataset, False), coming.dataset, 0, batch_sampler=[indices], collate_fn=_as_they_are
    )
    with reader:
        samples = next(iter(reader))
    seen = [_image_and_label(sample) for sample in samples]
    if any(image is None for image, _ in seen):
        raise OptionError("a sample has no image: an array of two axes, or of three with 1, 3 or 4 channels")
    if labels is not None:
        seen = [(image, labels[index]) for (image, _), index in zip(seen, indices, strict=True)]
    return pictures.thumbnails(coming, seen)


def _as_they_are(samples: list[Any]) -> list[Any]:
    return list(samples)


def _image_and_label(sample: Any) -> tuple[Any, Any]:
    """The first field that is an image, and the first after it that is a single value."""
    fields = list(sample.values()) if isinstance(sample, dict) else sample
    fields = list(fields) if isinstance(fields, (tuple, list)) else [fields]
    arrays = [as_image(field) for field in fields]
    image = next((array for array in arrays if array is not None), None)
    others = (field for field, array in zip(fields, arrays, strict=True) if array is None)
    return image, next((_plain(field) for field in others if np.ndim(field) == 0), None)


def _plain(value: Any) -> Any:
    return value.item() if hasattr(value, "item") else value


def as_image(value: Any) -> Any:
    """As matplotlib shows it: height, width and channels, from 0 to 1 or 0 to 255; None if it is no image.

    >>> as_image(np.zeros((3, 8, 9), np.float32)).shape, as_image(np.zeros((1, 8, 9), np.uint8)).shape, as_image(5)
    ((8, 9, 3), (8, 9), None)
    """
    try:
        array = np.asarray(value)
    except Exception:  # a foreign object
        return None
    if array.dtype.kind not in "buif" or array.ndim not in (2, 3) or 0 in array.shape:
        return None
    if array.ndim == 3 and array.shape[0] in (1, 3, 4) and array.shape[2] not in (1, 3, 4):
        array = np.moveaxis(array, 0, 2)
    if array.ndim == 3:
        if array.shape[2] not in (1, 3, 4):
            return None
        array = array[:, :, 0] if array.shape[2] == 1 else array
    if array.dtype.kind == "f":  # normalised images are shown between their own extremes
        low, high = float(np.nanmin(array)), float(np.nanmax(array))
        array = array if low >= 0 and high <= 1 else (array - low) / ((high - low) or 1.0)
    return array


_DRAWN: dict[str, Callable[[Coming, Any, Any], Figure]] = {
    "classes": _classes,
    "sources": _sources,
    "padding": _padding,
    "order": _order,
    "batch": _batch,
}
