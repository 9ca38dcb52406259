"""What the tests share with those of the library."""

from tests.conftest import torch  # its settings: one thread, no deadlines

torch.set_num_threads(1)
