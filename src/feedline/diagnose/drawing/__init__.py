"""Pictures of what a loader will do, from its own plan."""
