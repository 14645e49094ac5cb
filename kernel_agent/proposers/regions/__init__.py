"""Any module: its graph cut into regions, of which kernels of ours cover some and PyTorch keeps the rest."""
