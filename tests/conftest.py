"""One torch thread and no hypothesis deadline, so that tests run the same on a busy machine."""

import torch
from hypothesis import settings

torch.set_num_threads(1)
settings.register_profile("csst", deadline=None)
settings.load_profile("csst")
