"""Is the loader the bottleneck, and what could be tried? A few rules, in plain words.

Takes: sums of a run. Gives: sentences. Promises: pure; each rule is a few lines and names its threshold.
Not its job: measuring (measured), looking into the dataset (the doctor does).

The thresholds are judgement: a loop that waits 5 % of its time cannot gain more than these 5 %; the others mean "most
of it".
"""

from __future__ import annotations

from typing import NamedTuple

from feedline.errors.counting import counted
from feedline.observe.epoch_stats import DEVICE, STEPS, EpochStats
from feedline.observe.report.measured import Composition, SampleTimes, Waits
from feedline.observe.stats import Stats

FEW = 10
"""With fewer batches nothing is said."""
LITTLE = 0.05
"""A share of waiting that is not worth any effort."""
SOME = 0.2
"""Up to this share of waiting, what the loop does itself is what takes the time."""
BUSY = 0.85
"""If workers work this share of their time, the loop waits for them."""
MOST = 0.5
UNEVEN = 0.2
"""The share of reading time of the slowest 1 % of the samples; if all take equally long, it is 1 %."""
MUCH_PADDING = 0.4
"""The same share as in the warning of `pad`."""
ELSEWHERE = 0.2
"""The share of time in neither steps nor waiting that is worth a word."""


class ReportVerdict(NamedTuple):
    """What limits the run, and what to try."""

    level: str
    """"good", "slow", or "unknown"."""
    headline: str
    why: str = ""
    advice: tuple[str, ...] = ()
    basis: str = ""
    """What was measured, and what was not."""


def verdict(flow: EpochStats, waits: Waits, cpus: int) -> ReportVerdict:
    """Judge a run; `cpus` are those the workers have, 0 if that is not known.

    >>> judged = verdict(EpochStats(seconds=10, waiting=0.2, batches=100, num_workers=2, fetching=6), Waits(), cpus=4)
    >>> judged.headline
    'Your loop waited 2 % of the time; the workers were busy 30 %. The loader keeps up.'
    """
    if flow.batches < FEW or not flow.seconds:
        few = f"{counted(flow.batches, 'batch')} {'is' if flow.batches == 1 else 'are'} too few to judge"
        return ReportVerdict("unknown", f"{few}: record at least {FEW}.")
    busy = f"; the workers were busy {percent(flow.utilisation)}" if flow.num_workers else ""
    waited = f"Your loop waited {percent(flow.waiting_share)} of the time{busy}."
    if flow.basis == DEVICE:
        waited = f"The device waited for batches {percent(flow.starved_share)} of its time{busy}."
    if flow.starved_share <= LITTLE:
        why, advice = _spare(flow)
        advice = *advice, *_elsewhere(flow)
        return ReportVerdict("good", f"{waited} The loader keeps up.", why, advice, based_on(flow))
    saved = f"The loader holds it up a little: without waiting it would take {percent(flow.starved_share)} less time."
    headline = f"{waited} {saved if flow.starved_share <= SOME else 'The loader is the bottleneck.'}"
    for rule in (_copies, _no_workers, _transfer, _delivery, _start, _workers, _uneven):
        found = rule(flow, waits, cpus)
        if found is not None:
            return ReportVerdict("slow", headline, *found, based_on(flow))
    return ReportVerdict("slow", headline, *_handing_over(flow), based_on(flow))


def based_on(flow: EpochStats) -> str:
    """What a verdict is based on.

    >>> based_on(EpochStats(seconds=10, waiting=1, batches=50))[:49]
    'This is based on the time between calls of next()'
    """
    if flow.basis == DEVICE:
        where = "loader.step()" if flow.steps else "between batches"
        known = flow.device_stepping + flow.device_waiting + flow.device_other
        return (
            f"This is based on events of the device, {where}: {known:,.3g} s of its time were measured, and the epochs "
            f"took {flow.seconds:,.3g} s. The loop itself waited {percent(flow.waiting_share)} of its time; while the "
            "device has work, that does not hold it up."
        )
    if flow.basis == STEPS:
        return (
            "This is based on loader.step() and the host's clock: kernels that run asynchronously count where the loop "
            "waits for their result."
        )
    return (
        "This is based on the time between calls of next(): kernels that run asynchronously are not seen. Put `with "
        "loader.step():` around the training step."
    )


Found = tuple[str, tuple[str, ...]]


def _spare(flow: EpochStats) -> Found:
    if flow.num_workers > 1 and flow.utilisation < MOST / 2:
        need = max(1, round(flow.num_workers * flow.utilisation / BUSY + 0.5))
        return "What takes the time is the loop itself.", (f"Fewer workers may do: num_workers={need}.",)
    return "What takes the time is the loop itself: a faster loader would change nothing.", ()


def _elsewhere(flow: EpochStats) -> tuple[str, ...]:
    if flow.other_share < ELSEWHERE:
        return ()
    share = percent(flow.other_share)
    return (f"{share} of the time is neither a step nor waiting: what does the loop do between its steps?",)


def _copies(flow: EpochStats, waits: Waits, cpus: int) -> Found | None:
    if flow.basis != DEVICE or flow.waiting_share > LITTLE:
        return None
    why = "The loop hardly waited: batches were there, and the device waited for their copies."
    return why, ("Send less: images as uint8, converted on the device; float32 and not float64.",)


def _no_workers(flow: EpochStats, waits: Waits, cpus: int) -> Found | None:
    if flow.num_workers:
        return None
    some = f"num_workers={min(4, cpus)} ({counted(cpus, 'CPU')} here) makes batches while the loop computes."
    return "Without workers every batch is made when it is asked for.", (some, *_cheaper(flow))


def _transfer(flow: EpochStats, waits: Waits, cpus: int) -> Found | None:
    if flow.transferring < MOST * flow.waiting:
        return None
    share = percent(min(1.0, flow.transferring / flow.waiting))
    why = f"{share} of the waiting was for batches on their way to the device."
    return why, ("Send less: images as uint8, converted on the device; float32 and not float64.",)


def _delivery(flow: EpochStats, waits: Waits, cpus: int) -> Found | None:
    if flow.delivering < MOST * flow.waiting:
        return None
    why = f"{percent(min(1.0, flow.delivering / flow.waiting))} of the waiting was the main process unpacking batches."
    return why, (
        "Batches of arrays or tensors need no unpacking; lists of many small objects do.",
        "Larger batches: the cost is mostly per batch.",
    )


def _start(flow: EpochStats, waits: Waits, cpus: int) -> Found | None:
    if waits.first < MOST:
        return None
    share = percent(waits.first)
    why = f"{share} of the waiting was for the first batch of an epoch: workers start, and nothing is ready."
    return why, (
        "persistent_workers=True, if it isn't set yet, keeps the workers from one epoch to the next.",
        "What __init__ or worker_init_fn loads is loaded by each worker: load less, or later.",
    )


def _workers(flow: EpochStats, waits: Waits, cpus: int) -> Found | None:
    if flow.utilisation < BUSY:
        return None
    why = "The workers have hardly a break, and all together are slower than the loop."
    if not cpus:
        more = f"More workers, if machines of the cluster have CPUs to spare: num_workers={2 * flow.num_workers}."
    elif flow.num_workers < cpus:
        more = f"More workers: num_workers={min(cpus, 2 * flow.num_workers)} ({counted(cpus, 'CPU')} here)."
    else:
        here = f"{counted(cpus, 'CPU')} here"
        more = f"More workers, if samples wait for disks or the network; not if they compute ({here})."
    return why, (more, *_cheaper(flow))


def _uneven(flow: EpochStats, waits: Waits, cpus: int) -> Found | None:
    if waits.longest < MOST:
        return None
    why = f"{percent(waits.longest)} of the waiting was in the longest 5 % of the waits: some batches delay others."
    return why, (
        "Look at the slowest samples below.",
        "A larger prefetch_factor has more batches ready when a slow one comes; in_order=False delivers others before "
        "it.",
    )


def _handing_over(flow: EpochStats) -> Found:
    why = "The workers had time, and yet the loop waited: batches are handed over late, or something else uses the CPU."
    return why, (
        "A larger prefetch_factor, and larger batches if these take less than a millisecond each.",
        "See in the timeline what the workers do while the loop waits.",
    )


def _cheaper(flow: EpochStats) -> tuple[str, ...]:
    """Advice on how batches could be made with less work."""
    spent = flow.fetching + flow.collating + flow.sending
    if not spent:
        return ()
    if flow.collating >= MOST * spent:
        return (f"A cheaper collate_fn: {percent(flow.collating / spent)} of the work is making batches of samples.",)
    if flow.sending >= MOST * spent:
        share = percent(flow.sending / spent)
        return (f"{share} of the work is packing batches: let them be arrays, which are packed without a copy.",)
    return (f"A faster __getitem__: {percent(flow.fetching / spent)} of the work is reading samples.",)


def notes(stats: Stats, restarts: int, samples: SampleTimes, composition: Composition | None) -> list[str]:
    """Other remarks."""
    found = []
    if samples.total and samples.in_slow >= UNEVEN * samples.total:
        share = percent(samples.in_slow / samples.total)
        found.append(f"The slowest 1 % of the samples takes {share} of the reading time: see the slowest samples.")
    padding = stats.collate.padding
    if padding is not None and padding > MUCH_PADDING:
        found.append(
            f"{percent(padding)} of the padded arrays is padding: put samples of similar length together, or pack."
        )
    if composition is not None and composition.different > 1 and composition.single >= MOST * composition.batches:
        share = percent(composition.single / composition.batches)
        found.append(f"{share} of the batches have a single label: is sorted data read in order? shuffle=True.")
    if stats.errors:
        found.append(f"{counted(stats.errors, 'sample')} failed, left out or replaced: see the errors.")
    if restarts:
        found.append(f"{counted(restarts, 'worker')} died or hung, and had to be replaced: see the events.")
    return found


def percent(share: float) -> str:
    """A share in words; a tiny share is not written as nothing.

    >>> percent(0.414), percent(0.001), percent(0), percent(0.999)
    ('41 %', 'under 1 %', '0 %', '99.9 %')
    """
    if 0 < share < 0.01:
        return "under 1 %"
    if 0.99 < share < 1:
        return f"{min(99.9, 100 * share):.1f} %"
    return f"{100 * share:.0f} %"
