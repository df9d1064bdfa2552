"""feedline for JAX: batches are global arrays, placed as a sharding says, from any number of processes.

    from feedline.jax import DataLoader

Datasets, samplers, collators and `rng()` are those of `feedline`. `DataLoader` imports JAX; importing this package does
not, because workers, which never need JAX, import a part of it.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from feedline.errors.missing_packages import extra

if TYPE_CHECKING:
    from feedline.jax.loader import DataLoader
    from feedline.jax.shapes import JaxStats

_HOMES = {"DataLoader": "feedline.jax.loader", "JaxStats": "feedline.jax.shapes"}

__all__ = ["DataLoader", "JaxStats"]


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        extra("jax", "jax", f"feedline.jax.{name}")
        return getattr(import_module(_HOMES[name]), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
