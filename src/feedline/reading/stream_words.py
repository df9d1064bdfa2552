"""Messages about a stream that is read in a way its user may not have meant, or that cannot be continued.

Gives: sentences, each with the remedy. Not its job: when they are shown (stream_reader, engine.streams).
"""

from __future__ import annotations

from feedline.errors import StateError

READ_WHOLE = (
    "the IterableDataset neither asks for get_worker_info().num_workers nor has a method shard(index, count), so each "
    "of the {shards} workers reads the whole stream and keeps one batch in {shards}: it is read {shards} times. "
    "Define shard(index, count) on the dataset (or split by get_worker_info() in __iter__, or set the dataset's bounds "
    "in worker_init_fn) to share it."
)
NAMED_ONLY = (
    " It does look at get_worker_info().id: if it picks its share by that alone, knowing the number of workers from "
    "elsewhere, elements are lost. Then let it look at num_workers, too."
)
ASKED_LATE = (
    "the IterableDataset asks for get_worker_info().num_workers only after its first element, when it had already been "
    "taken for one that reads everything and its workers had shared out the batches so far. From here on elements "
    "would be lost, so it ends here: ask at the start of __iter__ (and use the answer where you need it), or define "
    "shard(index, count)"
)
DISAGREE = (
    "some workers read the whole IterableDataset and others a share of their own, so elements would be lost. Either it "
    "asks for get_worker_info().num_workers in some workers only, or worker_init_fn cannot be seen to share the data "
    "in all of them (it set an attribute to the value it had): let it look at get_worker_info().num_workers, or define "
    "shard(index, count)"
)
UNEQUAL = (
    "the IterableDataset was taken for one that every worker reads whole, but it has other elements in each worker: in "
    "one it has ended, and another has more. If workers read shares that they pick by get_worker_info().id alone, "
    "let it look at num_workers, too, or define shard(index, count)"
)
ENDED_BY = (
    "the IterableDataset, which every worker reads whole, has ended in one of them after an error that the others did "
    "not meet, so batches would be lost: {error}. Whatever makes it fail there alone is to be repaired, or caught in "
    "its __iter__"
)
ENDED_UNSEEN = (
    "the IterableDataset ended on this rank after an error in a batch of another worker or rank, which is reported "
    "there if it fails there, too: {error}"
)
GENERATOR_OVER = (
    "an element of the IterableDataset failed, and its __iter__ is a generator, which Python ends at its first error: "
    "whatever was to come after that element is lost. Catch the error inside __iter__, or have it return an object "
    "whose __next__ can be called again"
)
GIVEN_UP = "the IterableDataset failed {times} times in a row, so it was taken to have ended"
CHANGED_SHARING = (
    "the state cannot be continued here, because {then} then, and {now} now (one that shares itself out asks for "
    "get_worker_info().num_workers whenever it is opened): continue with the dataset and the worker_init_fn that saved "
    "it"
)
OTHER_ELEMENTS = (
    "part {part} of {parts} of the IterableDataset was read again up to batch {batch} of epoch {epoch} to go on there, "
    "and gave other elements than those that had been delivered: in this epoch some may be missing, and others come "
    "twice. Its order depends on something that a worker keeps (a generator, a count of epochs). Let it follow from a "
    "seed and the epoch (set_epoch), or give what __iter__ returns a state_dict() and a load_state_dict(state)"
)
FROM_STATE = (
    "part {part} of {parts} of the IterableDataset was read again up to batch {batch} of epoch {epoch}, and gave other "
    "elements than those that had been delivered. So it goes on from what its state_dict() said: if that is not all "
    "that its order depends on, elements are missing or come twice in this epoch"
)
STUCK = (
    "the IterableDataset begins this epoch in its middle, where a state was loaded into it for an earlier one, and it "
    "has no state from before to go back to: elements are missing. Tell it the epoch (set_epoch), or have its "
    "load_state_dict(state) act once only"
)
FEWER = (
    "the IterableDataset has given {now} elements in epoch {epoch}, and {then} in the one before it, whose state was "
    "loaded: if it should have given as many, its load_state_dict(state) has not put it to the beginning of an epoch, "
    "and elements are missing, perhaps in later epochs, too"
)


def changed_sharing(then_own: bool) -> StateError:
    """The state belongs to a stream that was shared out in another way."""
    how = {True: "each worker read its own share", False: "each worker read the whole stream"}
    return StateError(CHANGED_SHARING.format(then=how[then_own], now=how[not then_own]))
