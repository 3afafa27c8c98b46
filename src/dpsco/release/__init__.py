"""The only path from a clipped sum to a released one: mechanisms, calibration, noise, ledger, releaser."""
