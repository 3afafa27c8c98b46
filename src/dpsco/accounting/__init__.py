"""Privacy guarantees and their cost: budget, exact Gaussian DP, Poisson accountant, account."""
