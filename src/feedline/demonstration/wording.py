"""What the demo says: short lines, each with the call of feedline that does it.

Takes: facts. Gives: lines. Promises: nothing is said that was not found out.
Not its job: when it is said (command, training), where (screen, cli).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from feedline.counting import counted
from feedline.demonstration.facts import Epoch, Facts, Images, Rarity, Resumption
from feedline.diagnose.rendering import Line

_CALLS = 46
"""The column in which calls stand."""


def opening(folder: Path, count: int, drawn: bool) -> Iterator[Line]:
    """What this is; what takes time first."""
    yield Line("feedline demo: image files, their labels in SQLite, a small classifier in NumPy", "bold")
    yield Line()
    yield _heading(1, "Images, some classes rare")
    verb = "Found" if drawn else "Drawing"
    yield _line(f"{verb} {count:,} images in {folder}.")


def drawing(ready: int, count: int) -> str:
    """How far it is."""
    return f"  {ready:,} of {count:,}"


def images(found: Images, rarity: Rarity) -> Iterator[Line]:
    """What there is, and how often a rare class comes."""
    rare = " and ".join(found.rare)
    yield _line(f"{found.training:,} to train on, {found.validation:,} to validate, {len(found.classes)} classes;")
    yield _line(f"{rare} are {rarity.times_rarer} times rarer than the others in training.")
    yield _line(f"Of {rarity.batch_size} images in a batch, this many are {rarity.name}, on average:")
    yield _line(f"  {rarity.shuffled:4.1f} shuffled{_none(rarity.shuffled_none)}", "shuffle=True")
    weighted = f"  {rarity.weighted:4.1f} drawn by weight{_none(rarity.weighted_none)}"
    yield _line(weighted, "sampler=WeightedRandomSampler(…)")
    yield _line("The weight is one over the class's size.", "weights_from_labels(labels)")
    yield Line()
    yield _heading(2, "Damaged files")
    yield _line(f"{len(found.damaged)} training files are cut short: left out.", 'DataLoader(…, on_error="skip")')
    yield Line()
    yield _heading(3, "Training, with a stop in the middle")
    yield _line("waited: the share of its time that training waited for images.")


def epoch_so_far(epoch: Epoch) -> str:
    """How the epoch goes; on a terminal it is refreshed while it runs."""
    return (
        f"  epoch {epoch.number:2}  {epoch.images_per_second:6,.0f} images/s  "
        f"waited {epoch.waited:4.0%}  loss {epoch.loss:.3f}  right {epoch.accuracy:4.0%}"
    )


def epoch_ended(epoch: Epoch) -> Iterator[Line]:
    """How it went."""
    yield Line(f"{epoch_so_far(epoch)}  validation {epoch.validation:4.0%}")


def stopped(before: int, batches: int, epoch: int, state: Path) -> Iterator[Line]:
    """What was done when it was stopped."""
    yield _line(f"Stopped after {before} of the {batches} batches of epoch {epoch}.")
    yield _line(f"Saved: {state}", "loader.state_dict()")


def going_on(workers_before: int, workers: int) -> Iterator[Line]:
    """What follows."""
    yield _line(f"Thrown away, with its {_workers(workers_before)}.", "loader.close()")
    yield _line(f"A new loader with {_workers(workers)} goes on.", "loader.load_state_dict(state)")


def comparing() -> str:
    """What takes a moment."""
    return "  comparing with a loader that is never stopped …"


def compared(resumption: Resumption) -> Iterator[Line]:
    """Whether it went on exactly."""
    if resumption.exact:
        after = resumption.batches - resumption.before
        yield _line(f"Checked: the {counted(after, 'batch')} after the stop, and the {resumption.before} before it,")
        yield _line("are bit for bit those of a loader that was never stopped.")
    else:
        yield Line(f"  {not_exact(resumption)}", "bold red")


def not_exact(resumption: Resumption) -> str:
    """The worst that can be said."""
    return (
        f"After the stop it went on with other batches than a loader that was never stopped: in epoch "
        f"{resumption.epoch}, {len(resumption.different)} of {resumption.batches} differ, from batch "
        f"{resumption.different[0]} on"
    )


def not_just_the_damaged(met: set[int], to_be_met: set[int]) -> str:
    """Errors that are missing, or too many."""
    return (
        f"loader.errors should list just the damaged files that came up: missing are {sorted(to_be_met - met)}, "
        f"and not damaged are {sorted(met - to_be_met)}"
    )


def nothing_learned(accuracy: float, chance: float) -> str:
    """A model that might as well guess."""
    return f"An accuracy of {accuracy:.0%} is worse than twice chance ({2 * chance:.0%}): something is wrong"


def ending(facts: Facts) -> Iterator[Line]:
    """What is said in the end."""
    trained = facts.trained
    yield Line()
    yield _heading(4, "How it went")
    yield _line(f"{trained.images:,} images in {trained.seconds:.1f} s: {trained.images_per_second:,.0f} images/s.")
    yield _line(f"Training waited {trained.waited:.0%} of its time for them.", "loader.stats()")
    times = sum(file.times for file in trained.unreadable)
    yield _line(
        f"{counted(len(trained.unreadable), 'damaged file')} came up {counted(times, 'time')}:", "loader.errors"
    )
    for file in trained.unreadable:
        yield Line(f"    index {file.index:5}  {file.path}  {file.error}")
    accuracy = f"{trained.accuracy:.1%} of the validation images are told right"
    yield _line(f"{accuracy}; of the rare classes {trained.rare_accuracy:.1%}.")
    yield Line()
    yield _heading(5, "Where the time went: open this in a browser")
    yield _line(facts.report, "loader.report(path)")
    yield _line(f"{facts.seconds:.0f} s in all.")
    for problem in facts.problems:
        yield Line(problem, "", "problem  ", "bold red")


def _heading(number: int, text: str) -> Line:
    return Line(f"{number}  {text}", "bold")


def _line(text: str, call: str = "") -> Line:
    return Line(call, "cyan", f"  {text}".ljust(_CALLS) + "  " if call else f"  {text}")


def _none(share: float) -> str:
    return f" ({share:.0%} of batches: none)" if share else ""


def _workers(count: int) -> str:
    return f"{count} worker{'' if count == 1 else 's'}" if count else "no workers"
