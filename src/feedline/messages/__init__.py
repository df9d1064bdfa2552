"""What travels along the line: tasks out, outcomes back, and where each worker is."""
