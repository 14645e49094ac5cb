
import torch, torch.nn as nn, torch.nn.functional as F

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.full((64, 1), 0.5))

    def forward(self, x):
        return torch.from_numpy(x.numpy().astype('float32')) @ self.w

def get_inputs():
    return [torch.rand(8, 64)]

def get_init_inputs():
    return []
