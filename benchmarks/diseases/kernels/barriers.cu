__global__ void __launch_bounds__(1024) leader(const float* x, float* out) {
  __shared__ float factor;
  long i = blockIdx.x * 1024L + threadIdx.x;
  float v = x[i];
  for (int turn = 0; turn < 16; ++turn) {
    if (threadIdx.x < 32) {
      float f = v;
      #pragma unroll 1
      for (int k = 0; k < 128; ++k) f = f * 0.75f + 0.125f;
      if (threadIdx.x == 0) factor = f;
    }
    __syncthreads();  // here
    v = v * factor + 0.5f;
  }
  out[i] = v;
}

void run(Tensor x, Tensor out) {
  leader<<<x.numel() / 1024, 1024, 0, stream(out)>>>(data<const float>(x), data<float>(out));
}
