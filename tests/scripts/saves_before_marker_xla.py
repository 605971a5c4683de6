"""A PyTorch/XLA loop that saves between an optimizer's step and its marker; prints how long writing was slowed down."""

from __future__ import annotations

import time
from typing import Any

import torch
import torch_xla
import torch_xla.core.xla_model as xm


class Slow:
    """State that takes its time to be written."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __reduce__(self) -> Any:
        time.sleep(self.seconds)
        return Slow, (0.0,)


device = torch_xla.device()
model = torch.nn.Linear(8, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(30):
    optimizer.zero_grad()
    model(torch.randn(4, 8).to(device)).sum().backward()
    optimizer.step()
    if step == 15:  # what it needs of the device is compiled here, and the rest in the marker
        xm.save({"model": model.state_dict(), "slow": Slow(0.6)}, "xm.pt")
    if step in (20, 25):
        torch.save({"model": model.state_dict(), "slow": Slow(0.5)}, f"{step}.pt")
    torch_xla.sync()
torch_xla.sync(wait=True)
print(1.6)
