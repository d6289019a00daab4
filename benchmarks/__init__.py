"""What is fast and what it costs, side by side with a reference binary where there is one."""
