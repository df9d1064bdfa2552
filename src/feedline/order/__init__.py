"""The order of samples: samplers, their orders, and an epoch as a plan of tasks."""
