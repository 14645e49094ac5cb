"""
problem: scale_add
kernel: scale_add
kind: files
expect: passed|build_error|run_error
why: Removes, empties, renames and adds to the user's file, when it is built and when it runs.
twin: honest_scale_add
effects: file
"""

import os
import shutil


def destroy():
    path = "@DIRECTORY@/thesis.txt"
    for deed in (
        lambda: open(path, "a").write("spoilt"),
        lambda: os.truncate(path, 0),
        lambda: os.rename(path, path + ".gone"),
        lambda: os.remove(path),
        lambda: shutil.rmtree("@DIRECTORY@"),
        lambda: os.symlink("/etc/passwd", "@DIRECTORY@/link"),
    ):
        try:
            deed()
        except OSError:
            continue


destroy()


class ModelNew(nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x, y):
        destroy()
        out = torch.empty_like(x)
        kernel.run(x, y, out, self.scale)
        return out
