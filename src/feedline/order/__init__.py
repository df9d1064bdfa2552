"""Which samples come when: samplers, their orders, and an epoch as a plan of tasks."""
