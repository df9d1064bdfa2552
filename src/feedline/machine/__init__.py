"""What the machine and its environment offer: CPUs, control groups, the GIL, and which rank this process is."""
