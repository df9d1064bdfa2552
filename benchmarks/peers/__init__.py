"""feedline beside other loaders, each set up as its own documentation says. `make bench-peers`; docs/peers.md."""
