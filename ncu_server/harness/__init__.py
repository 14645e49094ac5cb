"""A process that calls candidates while a profiler watches."""
