__global__ void sums(const float* x, float* out, long n) {
  __shared__ float part[4];
  if (threadIdx.x < 4) part[threadIdx.x] = 0;
  __syncthreads();
  for (long i = blockIdx.x * 256L + threadIdx.x; i < n; i += gridDim.x * 256L)
    atomicAdd(part + threadIdx.x % 4, x[i]);  // here
  __syncthreads();
  if (threadIdx.x < 4) atomicAdd(out + threadIdx.x, part[threadIdx.x]);
}

void run(Tensor x, Tensor out) {
  sums<<<1056, 256, 0, stream(out)>>>(data<const float>(x), data<float>(out), x.numel());
}
