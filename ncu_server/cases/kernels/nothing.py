import torch
import torch.nn as nn
import tvm_ffi.cpp

SOURCE = r"""
void run(tvm::ffi::TensorView out) { ((float*)out.data_ptr())[0] += 0; }
"""
kernel = tvm_ffi.cpp.load_inline("nothing", cpp_sources=SOURCE, functions=["run"], extra_cflags=["-O3"])
