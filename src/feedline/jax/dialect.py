"""What workers of this front are told: make NumPy batches, and leave the accelerators alone.

Gives: `JAX`, the core's own dialect with other workers. Promises: JAX is not imported by it; if the user's dataset
imports JAX in a worker, that worker finds a CPU only, even while the user's script is being imported there. The script,
which usually imports JAX, is not imported in workers if it can be avoided.
Not its job: device arrays (placing), which are made in the main process.
"""

from __future__ import annotations

from dataclasses import replace

from feedline.workers.dialect import NUMPY

PLATFORM = {"JAX_PLATFORMS": "cpu"}
JAX = replace(
    NUMPY,
    preload=(*NUMPY.preload, "feedline.jax.server_platform"),
    hides_main=True,
    environment=PLATFORM,
)
