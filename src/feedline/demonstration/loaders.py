"""The loaders of the demo: what a user of feedline would write.

Takes: images and a number of workers. Gives: DataLoaders; a batch's fingerprint, and those of a whole epoch.
Promises: two loaders made alike give the same batches, whatever the number of workers.
Not its job: what is done with the batches (training).
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
import numpy.typing as npt

from feedline import DataLoader
from feedline.demonstration.balance import BATCH, SEED, balanced
from feedline.demonstration.images import Shapes


def training_loader(images: Shapes, workers: int) -> DataLoader:
    """Rare classes as often as the others; files that cannot be read are left out."""
    return _loader(images, workers, sampler=balanced(images.labels), on_error="skip")


def validation_loader(images: Shapes, workers: int) -> DataLoader:
    """One image after the other."""
    return _loader(images, workers)


def _loader(images: Shapes, workers: int, **options: Any) -> DataLoader:
    kept = workers > 0
    return DataLoader(images, batch_size=BATCH, num_workers=workers, persistent_workers=kept, seed=SEED, **options)


def fingerprint(images: npt.NDArray[np.float32], labels: npt.NDArray[np.int64]) -> str:
    """The same for the same batch, bit for bit, and for no other.

    >>> images, labels = np.zeros((2, 3), np.float32), np.array([0, 1])
    >>> one, same, other = (fingerprint(images + 0, each) for each in (labels, labels, labels[::-1]))
    >>> one == same, one == other
    (True, False)
    """
    digest = hashlib.blake2b(digest_size=16)
    for array in (images, labels):
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


def uninterrupted(images: Shapes, workers: int, epoch: int) -> list[str]:
    """The fingerprint of each batch of that epoch, from a loader that is never stopped."""
    with training_loader(images, workers) as loader:
        loader.set_epoch(epoch)
        return [fingerprint(*batch) for batch in loader]
