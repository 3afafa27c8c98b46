"""What is promised and what it costs: budget, exact Gaussian DP, Poisson accountant, account."""
