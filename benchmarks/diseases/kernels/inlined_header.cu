#include <cuda_fp16.h>

__global__ void waves(const __half* x, __half* out) {
  long i = blockIdx.x * 256L + threadIdx.x;
  __half v = x[i];
  for (int k = 0; k < 16; ++k)
    v = hsin(v);  // here
  out[i] = v;
}

void run(Tensor x, Tensor out) {
  waves<<<x.numel() / 256, 256, 0, stream(out)>>>(data<const __half>(x), data<__half>(out));
}
