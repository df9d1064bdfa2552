"""Runs epochs: which batches are out, which worker makes them, and what to do when that fails."""
