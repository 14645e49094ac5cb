"""The workers: the only processes of ours that import torch."""
