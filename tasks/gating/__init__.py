"""What `tasks.gates` is made of: the policy and its checks, and what candidate and champion cost."""
