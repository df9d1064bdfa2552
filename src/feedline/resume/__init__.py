"""Where a run is, and how it continues from there."""
