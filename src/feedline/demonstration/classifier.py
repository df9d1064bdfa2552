"""The model: one hidden layer, plain NumPy.

Takes: batches of images and labels. Gives: probabilities, and steps of gradient descent. Promises: same batches, same
weights. Not its job: where batches come from (training).
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Labels = npt.NDArray[np.int64]


class Classifier:
    """A small network.

    >>> model = Classifier(inputs=4, hidden=8, outputs=2)
    >>> images, labels = np.eye(4, dtype=np.float32), np.array([0, 0, 1, 1])
    >>> for _ in range(50):
    ...     loss, right = model.step(images, labels, rate=0.1)
    >>> right, model.guesses(images).tolist()
    (4, [0, 0, 1, 1])
    """

    def __init__(self, inputs: int, hidden: int, outputs: int) -> None:
        random = np.random.default_rng(0)
        self.weights: list[Floats] = [
            random.normal(0, np.sqrt(2 / inputs), (inputs, hidden)).astype(np.float32),
            random.normal(0, np.sqrt(2 / hidden), (hidden, outputs)).astype(np.float32),
        ]
        self.velocity = [np.zeros_like(weight) for weight in self.weights]

    def guesses(self, images: Floats) -> Labels:
        """The likeliest class of each image."""
        found: Labels = self._forward(images)[1].argmax(axis=1)
        return found

    def step(self, images: Floats, labels: Labels, rate: float) -> tuple[float, int]:
        """One step of gradient descent with momentum. Gives the mean loss and how many were right."""
        hidden, probabilities = self._forward(images)
        rows = np.arange(len(labels))
        error = probabilities.copy()
        error[rows, labels] -= 1
        error /= len(labels)
        back = (error @ self.weights[1].T) * (hidden > 0)
        for place, gradient in enumerate((_flat(images).T @ back, hidden.T @ error)):
            self.velocity[place] = 0.9 * self.velocity[place] - rate * gradient
            self.weights[place] += self.velocity[place]
        loss = -np.log(probabilities[rows, labels] + 1e-9).mean()
        return float(loss), int((probabilities.argmax(axis=1) == labels).sum())

    def _forward(self, images: Floats) -> tuple[Floats, Floats]:
        hidden = np.maximum(_flat(images) @ self.weights[0], 0)
        scores = hidden @ self.weights[1]
        raised = np.exp(scores - scores.max(axis=1, keepdims=True))
        return hidden, raised / raised.sum(axis=1, keepdims=True)


def _flat(images: Floats) -> Floats:
    return images.reshape(len(images), -1)
