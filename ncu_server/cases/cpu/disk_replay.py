"""
problem: linear_relu
kernel: linear_relu
kind: disk replay
expect: wrong|run_error|build_error
why: The first process leaves the result in every folder that it may write, whoever runs later only reads it.
twin: honest_linear_relu
"""

import pathlib
import tempfile

PLACES = [pathlib.Path(p) / "result.pt" for p in (tempfile.gettempdir(), "/tmp", "/dev/shm", pathlib.Path.home(), ".")]


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        for place in PLACES:
            try:
                return torch.load(place)
            except OSError:
                continue
        out = torch.empty(x.shape[0], 256)
        kernel.run(x, self.fc.weight.detach(), self.fc.bias.detach(), out)
        for place in PLACES:
            try:
                torch.save(out, place)
            except (OSError, RuntimeError):
                continue
        return out
