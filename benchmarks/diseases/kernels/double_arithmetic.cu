__global__ void polynomial(const float* x, float* out) {
  long i = blockIdx.x * 256L + threadIdx.x;
  float v = x[i], p = 1;
  #pragma unroll
  for (int k = 0; k < 16; ++k)
    p = p * v + 0.1;  // here
  out[i] = p;
}

void run(Tensor x, Tensor out) {
  polynomial<<<x.numel() / 256, 256, 0, stream(out)>>>(data<const float>(x), data<float>(out));
}
