"""Messages about a stream that is read in a way its user may not have meant, or that cannot be continued.

Gives: sentences, each with the remedy. Not its job: when they are shown (stream_reader, engine.streams).
"""

from __future__ import annotations

from feedline.errors import StateError

READ_WHOLE = (
    "the IterableDataset neither asks for get_worker_info().num_workers nor has a method shard(index, count), so each "
    "of the {shards} workers reads the whole stream and keeps one of every {shards} batches: the stream is read "
    "{shards} times. Define shard(index, count) on the dataset (or split by get_worker_info() in __iter__, or set the "
    "dataset's bounds in worker_init_fn) to divide the stream among the workers."
)
ID_ONLY = (
    " The dataset does read get_worker_info().id: if it picks its share by that alone, because it knows the number of "
    "workers from elsewhere, elements are lost. Then make it read num_workers, too."
)
ASKED_LATE = (
    "the IterableDataset asks for get_worker_info().num_workers only after its first element. Until then feedline "
    "took it for a dataset that every worker reads whole, and divided its batches among the workers. From here on "
    "elements would be lost, so the epoch ends here: ask at the start of __iter__ (and use the answer where you need "
    "it), or define shard(index, count)"
)
DISAGREE = (
    "some workers read the whole IterableDataset and others only a share of it, so elements would be lost. Either it "
    "asks for get_worker_info().num_workers in some workers only, or feedline cannot see in all of them that "
    "worker_init_fn divides the data (it set an attribute to the value that it already had): make the dataset read "
    "get_worker_info().num_workers, or define shard(index, count)"
)
UNEQUAL = (
    "feedline took the IterableDataset for one that every worker reads whole, but the workers get different elements: "
    "in one worker it has ended, and another worker has more. If workers pick their shares by get_worker_info().id "
    "alone, make them read num_workers, too, or define shard(index, count)"
)
ENDED_BY = (
    "the IterableDataset, which every worker reads whole, has ended in one worker after an error that the other "
    "workers did not have, so batches would be lost: {error}. Repair what makes it fail in that worker alone, or "
    "catch the error in __iter__"
)
ENDED_UNSEEN = (
    "the IterableDataset ended on this rank after an error in a batch of another worker or rank; that one reports the "
    "error if it has it, too: {error}"
)
GENERATOR_OVER = (
    "an element of the IterableDataset failed, and its __iter__ is a generator, which Python ends at its first error: "
    "all elements after that one are lost. Catch the error inside __iter__, or make __iter__ return an object whose "
    "__next__ can be called again"
)
GIVEN_UP = "the IterableDataset failed {times} times in a row, so feedline treats it as ended"
CHANGED_SHARING = (
    "the state cannot be continued here: when it was saved, each worker read {then}, and now each reads {now} (a "
    "dataset that picks its own share must ask for get_worker_info().num_workers every time it is opened). Continue "
    "with the dataset and the worker_init_fn that saved the state"
)
OTHER_ELEMENTS = (
    "part {part} of {parts} of the IterableDataset was read again up to batch {batch} of epoch {epoch} to continue "
    "there, and gave other elements than those that had been delivered: in this epoch some elements may be missing, "
    "and others come twice. Its order depends on something that a worker keeps (a generator, a count of epochs). Make "
    "the order depend only on a seed and the epoch (set_epoch), or give the object that __iter__ returns a "
    "state_dict() and a load_state_dict(state)"
)
FROM_STATE = (
    "part {part} of {parts} of the IterableDataset was read again up to batch {batch} of epoch {epoch}, and gave other "
    "elements than those that had been delivered. So it continues from its state_dict(): if its order depends on "
    "anything that is not in that state, elements are missing or come twice in this epoch"
)
STUCK = (
    "the IterableDataset begins this epoch in the middle: it is still at the state that was loaded into it for an "
    "earlier epoch, and there is no earlier state to go back to, so elements are missing. Tell it the epoch (define "
    "set_epoch), or let load_state_dict(state) have an effect on one epoch only"
)
FEWER = (
    "the IterableDataset gave {now} elements in epoch {epoch}, and {then} in the epoch before it, for which a state "
    "was loaded. If both epochs should have the same number, its load_state_dict(state) did not set it to the "
    "beginning of an epoch, and elements are missing, perhaps in later epochs, too"
)


def changed_sharing(then_own: bool) -> StateError:
    """The state belongs to a stream that was shared out in another way."""
    how = {True: "its own share", False: "the whole stream"}
    return StateError(CHANGED_SHARING.format(then=how[then_own], now=how[not then_own]))
