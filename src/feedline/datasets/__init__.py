"""Datasets: collections of samples, and the ways to join, split and align them.

Takes: arrays, or the user's own datasets (anything with `__getitem__` and `__len__`, or with `__iter__`).
Gives: torch's `Dataset` family on NumPy: one sample, a list of samples, or a whole collated batch.
Promises: all ways to read a dataset give the same samples; everything here can be pickled.
Not its job: choosing indices (order/sampler), calling these methods (reading/fetch), stacking samples
    (collate/default).

A map-style dataset can be read in three ways; the last two are optional and faster:

    __getitem__(index)            one sample
    __getitems__(indices)         a list of samples, in the order asked for
    __getbatch__(indices, empty)  what default collation would make of those samples, or NotImplemented

The first two may be coroutines (`async def`): a worker awaits many samples at a time, on its own event loop.

It may also have `describe(index)`, which says in a few words what that sample is (a path, a key, a row): an error in
that sample then names it. And it may have a `fingerprint`, a short text that changes whenever its content changes: it
goes into a loader's state, which is then not continued with other data.

Within this package, each file imports only files to its left: reading, merging, joining, selecting, splitting (with
apportioning, per_sample, labels and stable_hash); joining, mixture, mapping; checksum, apportioning, stretches,
mixture_options, mixed_source, mixture_stream; mapped_file, arrays.
"""

from feedline.datasets.apportioning import apportion, weights_of
from feedline.datasets.arrays import ArrayDataset, TensorDataset
from feedline.datasets.checksum import seen
from feedline.datasets.joining import (
    ChainDataset,
    ConcatDataset,
    Dataset,
    IterableDataset,
    StackDataset,
    gives_shards,
    length_of,
)
from feedline.datasets.labels import Classes, classes_of
from feedline.datasets.mapping import MappedDataset
from feedline.datasets.mixture import Mixture
from feedline.datasets.mixture_stream import MixtureReading, MixtureStream
from feedline.datasets.per_sample import array_of, as_numbers
from feedline.datasets.reading import (
    SMALL_LEAF,
    Array,
    Empty,
    Indexable,
    IntArray,
    awaits,
    described,
    fingerprint_of,
    is_ordinary,
    read_samples,
    reads_batches,
    reads_many,
    reads_one,
)
from feedline.datasets.selecting import Subset, random_split
from feedline.datasets.splitting import split, split_indices
from feedline.datasets.stretches import Stretches

__all__ = [
    "SMALL_LEAF",
    "Array",
    "ArrayDataset",
    "ChainDataset",
    "Classes",
    "ConcatDataset",
    "Dataset",
    "Empty",
    "Indexable",
    "IntArray",
    "IterableDataset",
    "MappedDataset",
    "Mixture",
    "MixtureReading",
    "MixtureStream",
    "StackDataset",
    "Stretches",
    "Subset",
    "TensorDataset",
    "apportion",
    "array_of",
    "as_numbers",
    "awaits",
    "classes_of",
    "described",
    "fingerprint_of",
    "gives_shards",
    "is_ordinary",
    "length_of",
    "random_split",
    "read_samples",
    "reads_batches",
    "reads_many",
    "reads_one",
    "seen",
    "split",
    "split_indices",
    "weights_of",
]
