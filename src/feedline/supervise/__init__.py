"""Watches workers: ends them with their parent, decides what a death means, and shuts them down."""
