"""Ways to collate that a user chooses by name: pad, pack, keep, detection, drop_invalid, and which field gets which.

Inside, each file imports only those above it: making, arrays, collator, padding; packing, detecting; composing,
dropping.
"""

from feedline.line.collators.collator import Collator
from feedline.line.collators.composing import check_collate, compose, keep, stack
from feedline.line.collators.detecting import DetectionBatch, detection
from feedline.line.collators.dropping import NothingLeft, drop_invalid
from feedline.line.collators.making import Arrays, Making
from feedline.line.collators.packing import PackedBatch, pack
from feedline.line.collators.padding import Padded, pad

__all__ = [
    "Arrays",
    "Collator",
    "DetectionBatch",
    "Making",
    "NothingLeft",
    "PackedBatch",
    "Padded",
    "check_collate",
    "compose",
    "detection",
    "drop_invalid",
    "keep",
    "pack",
    "pad",
    "stack",
]
