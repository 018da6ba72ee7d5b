"""A transcript of what the halving of this project must not change; it goes when that ends."""
