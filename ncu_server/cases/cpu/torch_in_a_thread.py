"""
problem: linear_relu
kernel: linear_relu
kind: hidden torch
expect: rejected
why: torch computes in another thread with its dispatcher off, where a dispatch mode sees nothing.
twin: honest_linear_relu
"""

import threading


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(256, 256)

    def forward(self, x):
        found = []

        def work():
            with torch.no_grad(), torch._C._DisableTorchDispatch():
                found.append(torch.relu(self.fc(x)))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        kernel.run(x[:1], self.fc.weight.detach(), self.fc.bias.detach(), found[0][:1])
        return found[0]
