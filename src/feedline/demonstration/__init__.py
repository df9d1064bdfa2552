"""`feedline demo`: images with rare classes and damaged files, a training that is stopped and goes on, and a report."""
