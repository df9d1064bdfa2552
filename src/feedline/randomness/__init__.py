"""Randomness that follows from (seed, epoch, place): `rng()` of a sample, and the global generators around a task."""
