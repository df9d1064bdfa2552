"""Randomness that depends on (seed, epoch, place): `rng()` for a sample, and the global generators during a task."""
