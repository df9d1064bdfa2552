"""largest_batch, with a real step of torch's that is refused memory."""

from __future__ import annotations

from limited import run_limited


def test_torch_is_refused_memory_and_the_answer_is_what_fits() -> None:
    # A real step of training: the activations are what grows with the batch.
    body = (
        "    model = torch.nn.Sequential(torch.nn.Linear(4, 65536), torch.nn.ReLU(), torch.nn.Linear(65536, 1))\n"
        "    model(torch.ones(batch_size, 4)).sum().backward()"
    )
    imports = "import torch; torch.set_num_threads(1)"
    found, tried = run_limited(body, "feedline.torch", imports, '{"start": 64, "multiple_of": 16}')
    activations = 200 / (65536 * 4 / (1 << 20))  # of one layer that fit: 800
    assert activations / 4 < found < activations / 2  # two layers', and one or two for the gradients
    assert found % 16 == 0
    assert {found, found + 16} <= set(tried)
