"""`feedline demo`: images with rare classes and damaged files, a training that is stopped and resumed, and a report."""
