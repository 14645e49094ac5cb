"""The profiler: Nsight Compute, what is read off its reports, and what takes its place."""
