"""Object detection: all images in one array, the boxes of each image separate.

Takes: samples (image, target). Gives: the images, padded to the largest where sizes differ, and a list of targets.
Promises: padding is added at the right and at the bottom, so boxes stay valid.
Not its job: samples of another shape (composing: pad for the image, keep for the boxes).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, NamedTuple

from feedline.collate.collator import Collator
from feedline.collate.making import Making
from feedline.collate.padding import pad
from feedline.errors import CollateError, OptionTypeError


class DetectionBatch(NamedTuple):
    """The batch that `detection` makes.

    >>> import numpy as np
    >>> from feedline.collate import detection
    >>> batch = detection()([(np.ones((3, 4, 5)), {"boxes": np.ones((2, 4))})])
    >>> batch.images.shape, batch.sizes.tolist(), len(batch.targets)
    ((1, 3, 4, 5), [[4, 5]], 1)
    """

    images: Any
    targets: list[Any]
    """The targets as the dataset gave them, one for each image."""
    sizes: Any
    """Height and width of each image before padding, int64, of shape (images, 2)."""
    mask: Any
    """True for pixels of the image, False for padding; of shape (images, height, width). None unless `mask=True`."""

    @property
    def samples_first(self) -> bool:
        """Are its first axes those of samples? `accumulate` asks."""
        return True


class Images(pad):
    """Padding whose varying axes are known to be height and width."""

    def _remedy(self, axes: tuple[int, ...]) -> str:
        return (
            f", and axes {self.axis} are taken to be height and width. Give all images the same number of channels in "
            "__getitem__ (convert grey to RGB), or say which axes are height and width: axis=(0, 1) if channels are "
            "last."
        )


@dataclass(frozen=True)
class detection(Collator):
    """Stack the images of samples (image, target), padded with `value` where sizes differ; keep targets as a list.

    `axis` says which axes of an image are height and width: the last two, or `axis=(0, 1)` for channels last.
    `multiple` rounds the size up (networks that halve it five times want 32). `mask=True` adds a mask of pixels.

    >>> import numpy as np
    >>> images = np.ones((3, 2, 4)), np.ones((3, 5, 2))
    >>> batch = detection()([(images[0], {"boxes": [[0, 0, 1, 1]]}), (images[1], {"boxes": []})])
    >>> batch.images.shape, batch.sizes.tolist(), batch.targets
    ((2, 3, 5, 4), [[2, 4], [5, 2]], [{'boxes': [[0, 0, 1, 1]]}, {'boxes': []}])
    """

    _: KW_ONLY
    value: Any = 0
    axis: tuple[int, int] = (-2, -1)
    multiple: int | None = None
    mask: bool = False
    _pad: pad = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.axis, (tuple, list)) or len(self.axis) != 2:
            raise OptionTypeError(f"axis must be two axes, that of height and that of width; got {self.axis!r}")
        padding = Images(self.value, axis=tuple(self.axis), multiple=self.multiple, mask=self.mask)
        object.__setattr__(self, "_pad", padding)

    def into(self, values: Sequence[Any], making: Making, path: str) -> Any:
        """The batch, images in the slot."""
        for position, value in enumerate(values):
            if not isinstance(value, (tuple, list)) or len(value) != 2:
                raise CollateError(
                    f"{making.where(path, position)} is not a pair (image, target), but detection() collates only "
                    "such pairs. For other samples say how to collate each field: "
                    "collate={'image': pad(axis=(1, 2)), 'boxes': keep}."
                )
        padded = self._pad.into([image for image, _ in values], making, f"{path}[0]")
        targets = making.own([target for _, target in values])
        return DetectionBatch(padded.data, targets, padded.lengths, padded.mask)
