"""Pieces of a batch of tensors are joined again.

Takes: collated pieces. Gives: the batch that torch's default_collate would have made from all samples.
Promises: plain, contiguous tensors only; for anything else there is a `Misfit`, and one worker makes the batch.
Not its job: NumPy's arrays and the containers (collate.pieces).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from feedline.collate.pieces import Joining, Misfit, Pieces, Whole, never_whole
from feedline.datasets import Empty
from feedline.torch.collation import collate_into, is_all_stock
from feedline.torch.tensors import empty_tensor, is_plain


class _Tensors(Joining):
    def leaf(self, parts: Sequence[Any]) -> Any:
        first = parts[0]
        if not all(isinstance(part, torch.Tensor) and is_plain(part) and part.is_contiguous() for part in parts):
            raise Misfit("no plain tensors")
        if first.dim() == 0 or any(
            part.dtype is not first.dtype or part.shape[1:] != first.shape[1:] for part in parts
        ):
            raise Misfit("several types or shapes")
        shape = (sum(map(len, parts)), *first.shape[1:])
        if (raw := self.whole([(part.data_ptr(), part.nbytes) for part in parts])) is not None:
            return torch.frombuffer(raw, dtype=torch.uint8).view(first.dtype).view(shape)
        out = empty_tensor(shape, first.dtype, self.empty)
        start = 0
        for part in parts:
            out[start : start + len(part)] = part
            start += len(part)
        return out


def join(pieces: Sequence[Any], empty: Empty, whole: Whole = never_whole) -> Any:
    """The batch that was made in these pieces."""
    return _Tensors(empty, whole).tree(pieces)


PIECES = Pieces(collate_into, join, is_all_stock)
