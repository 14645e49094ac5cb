// Faults for compute-sanitizer: `planted outside|race|uninitialised`. To record what the real tool saves on a GPU:
//   nvcc -lineinfo -o planted tests/support/nsight/planted.cu
//   compute-sanitizer --tool memcheck --xml --save memcheck.xml --error-exitcode 86 ./planted outside
#include <cstdio>
#include <cstring>

__global__ void outside(float* x, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  x[i + n] = 1.0f;  // every thread writes beyond the end
}

__global__ void race(float* x) {
  __shared__ float t[256];
  t[threadIdx.x] = x[threadIdx.x];
  x[threadIdx.x] = t[(threadIdx.x + 33) % 256];  // no barrier before
}

__global__ void uninitialised(const float* x, float* y) {
  y[threadIdx.x] = x[threadIdx.x] + 1.0f;  // nobody wrote x
}

int main(int count, char** words) {
  const char* which = count > 1 ? words[1] : "outside";
  float *x, *y;
  cudaMalloc(&x, 256 * sizeof(float));
  cudaMalloc(&y, 256 * sizeof(float));
  if (!strcmp(which, "race")) {
    cudaMemset(x, 0, 256 * sizeof(float));
    race<<<1, 256>>>(x);
  } else if (!strcmp(which, "uninitialised")) {
    uninitialised<<<1, 256>>>(x, y);
  } else {
    outside<<<1, 256>>>(x, 1 << 28);  // far from any other allocation
  }
  std::printf("%s: %s\n", which, cudaGetErrorString(cudaDeviceSynchronize()));
  return 0;
}
