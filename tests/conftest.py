"""One torch thread a test process: tiny tensors gain nothing from more, and rival pools only wait."""

import torch

torch.set_num_threads(1)
