"""Watching over workers: the lifeline that ends them with their parent, what a death means, and orderly shutdown."""
