__global__ void scale(const float4* x, float4* out, long n) {
  long i = blockIdx.x * (long)blockDim.x + threadIdx.x;
  if (i < n) { float4 v = x[i]; out[i] = make_float4(v.x * 2 + 1, v.y * 2 + 1, v.z * 2 + 1, v.w * 2 + 1); }
}

void run(Tensor x, Tensor out) {
  long n = x.numel() / 4;
  scale<<<(n + 255) / 256, 256, 0, stream(out)>>>(data<const float4>(x), data<float4>(out), n);
}
