"""What the engine and the workers exchange: tasks out, outcomes back, and what each worker is doing."""
