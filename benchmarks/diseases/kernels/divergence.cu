__global__ void powers(const float* x, float* out) {
  long i = blockIdx.x * 256L + threadIdx.x;
  float v = x[i];
  // here
  if (threadIdx.x % 8 == 0)
    #pragma unroll 1
    for (int k = 0; k < 256; ++k)
      v = v * v * 0.5f + 0.25f;
  out[i] = v;
}

void run(Tensor x, Tensor out) {
  powers<<<x.numel() / 256, 256, 0, stream(out)>>>(data<const float>(x), data<float>(out));
}
