__global__ void transpose(const float* x, float* out) {
  unsigned i = blockIdx.x * 256 + threadIdx.x, row = i >> 13, column = i & 8191;
  float value = x[i];
  out[column << 13 | row] = value;  // here
}

void run(Tensor x, Tensor out) {
  transpose<<<x.numel() / 256, 256, 0, stream(out)>>>(data<const float>(x), data<float>(out));
}
