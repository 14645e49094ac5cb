__global__ void sums(const float* x, float* out) {
  long i = blockIdx.x * 256L + threadIdx.x;
  float v = x[i];
  atomicAdd(out + threadIdx.x % 4, v);  // here
}

void run(Tensor x, Tensor out) {
  sums<<<x.numel() / 256, 256, 0, stream(out)>>>(data<const float>(x), data<float>(out));
}
