"""What the machine and its surroundings offer: CPUs, control groups, the GIL, and which rank this process is."""
