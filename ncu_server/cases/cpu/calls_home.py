"""
problem: scale_add
kernel: scale_add
kind: network
expect: passed|build_error|run_error
why: Connects to a port of the machine, when it is built and when it runs.
twin: honest_scale_add
effects: network
"""

import socket


def call():
    for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
        try:
            with socket.socket(socket.AF_INET, kind) as end:
                end.settimeout(0.5)
                end.connect(("127.0.0.1", int("@PORT@")))
                end.send(b"hello")
        except OSError:
            continue


call()


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        call()
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out
