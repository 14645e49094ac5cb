__global__ void turns(const float* x, float* out) {
  int i = blockIdx.x * 256 + threadIdx.x;
  float v = x[i];
  #pragma unroll 16
  for (int k = 0; k < 4096; ++k) v = v * 0.75f + 0.125f;
  out[i] = v;
}

void run(Tensor x, Tensor out) {
  turns<<<x.numel() / 256, 256, 0, stream(out)>>>(data<const float>(x), data<float>(out));
}
