"""feedline's functions for torch, as the one value that is sent to workers."""

from __future__ import annotations

from feedline.torch.collate import TENSORS
from feedline.torch.collation import collate_into, convert, own
from feedline.torch.pieces import PIECES
from feedline.torch.reading import batch_reader, reads_many
from feedline.torch.tensors import REDUCERS
from feedline.torch.worker import acting, enter_thread, enter_worker, leave_thread
from feedline.workers.dialect import Dialect

TORCH = Dialect(
    collate=collate_into,
    own=own,
    convert=convert,
    batch_reader=batch_reader,
    arrays=TENSORS,
    pieces=PIECES,
    reads_many=reads_many,
    reducers=REDUCERS,
    preload=("feedline.workers.process_main", "feedline.torch.dialect"),
    enter_worker=enter_worker,
    enter_thread=enter_thread,
    leave_thread=leave_thread,
    acting=acting,
)
