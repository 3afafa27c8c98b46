"""Budget, noise, the one way from Clipped to Released, the accounts, the report."""
