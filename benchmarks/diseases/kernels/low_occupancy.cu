__global__ void chase(const float* x, float* out, long n) {
  __shared__ float room[12000];
  long i = blockIdx.x * 64L + threadIdx.x;
  room[threadIdx.x * 100] = x[i];
  __syncthreads();
  float v = room[(threadIdx.x * 100 + 100) % 6400];
  for (int hop = 0; hop < 16; ++hop) v = x[(long)(v * (n - 1))];
  out[i] = v;
}

void run(Tensor x, Tensor out) {
  chase<<<x.numel() / 64, 64, 0, stream(out)>>>(data<const float>(x), data<float>(out), x.numel());
}
