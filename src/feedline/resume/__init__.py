"""Where a run stands, and how it goes on from there."""
