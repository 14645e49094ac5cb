__global__ void windows(const float* x, float* out, int n) {
  int i = blockIdx.x * 256 + threadIdx.x;
  float sum = 0;
  #pragma unroll 13
  for (int k = 0; k < 65; ++k)
    sum += x[i + k];  // here
  if (i < n) out[i] = sum;
}

void run(Tensor x, Tensor out) {
  windows<<<out.numel() / 256, 256, 0, stream(out)>>>(data<const float>(x), data<float>(out), out.numel());
}
