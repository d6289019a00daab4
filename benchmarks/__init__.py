"""Benchmarks of speed and cost, side by side with a reference binary if there is one."""
