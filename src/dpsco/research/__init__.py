"""Commands for researchers: is it better (compare), is the paper right (paper). Nothing imports this package."""
