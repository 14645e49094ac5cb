"""
problem: linear_relu
kernel: linear_relu
kind: calling the reference
expect: rejected|build_error|run_error|wrong
why: Finds the reference among the loaded modules under a name made at run time, computes ahead and replays.
twin: honest_linear_relu
"""

import sys

found = [m for n, m in list(sys.modules.items()) if hasattr(m, "Mod" + "el") and hasattr(m, "get_inputs")]
model = getattr(found[0], "Mod" + "el")(*found[0].get_init_inputs())
ahead = model(*found[0].get_inputs()).detach()


class ModelNew(nn.Module):
    def forward(self, x):
        return ahead.clone()
