"""torch's default generator as a source of randomness, in any process that has loaded torch.

Takes: seeds. Gives: nothing where torch is not loaded. Promises: torch is looked for, never imported: a dataset of the
core's loader may draw from `torch.rand`, and is then as reproducible as one that draws from `numpy.random`.
Not its job: worker threads, which share the generator; generators of other devices.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Any

from feedline.foreign import ask

_INT64 = 0x7FFFFFFFFFFFFFFF
"""63 bits, so that initial_seed() fits an int64, as torch's do."""


@dataclass(frozen=True)
class TorchGenerator:
    """Seeded before each task."""

    def seed(self, value: int) -> None:
        if (generator := _default()) is not None:
            # torch.manual_seed would seed every device's generator too and costs 270 µs.
            generator.manual_seed(value & _INT64)

    def save(self) -> Any:
        return None if (generator := _default()) is None else generator.get_state()

    def borrow(self, value: int, saved: list[Any]) -> None:
        saved.append(self.save())
        self.seed(value)

    def restore(self, state: Any) -> None:
        if state is not None:  # else it has been loaded meanwhile, and is as a batch has left it
            _default().set_state(state)

    def draw(self) -> Any:
        if (generator := _default()) is None:
            return 0
        torch = sys.modules["torch"]
        return torch.empty((), dtype=torch.int64, device="cpu").random_(generator=generator).item()


def _default() -> Any:
    return ask(sys.modules.get("torch"), "default_generator")  # None while another thread imports it, too
