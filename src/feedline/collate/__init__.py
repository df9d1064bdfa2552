"""From samples to a batch: default collation, and other ways that a user chooses by name.

    from feedline import collate
    loader = DataLoader(data, collate={"tokens": collate.pad(0), "boxes": collate.keep})

Within this package, each file imports only files to its left: making, array_kinds, collator, padding; packing_rows,
detecting; composing, dropping.
"""

from feedline.collate.composing import compose, keep, stack
from feedline.collate.default import default_collate, register_collate
from feedline.collate.detecting import DetectionBatch, detection
from feedline.collate.dropping import drop_invalid
from feedline.collate.packing_rows import PackedBatch, pack
from feedline.collate.padding import Padded, pad

__all__ = [
    "DetectionBatch",
    "PackedBatch",
    "Padded",
    "compose",
    "default_collate",
    "detection",
    "drop_invalid",
    "keep",
    "pack",
    "pad",
    "register_collate",
    "stack",
]
