"""The contracts between Banyan's domain and the world, one a file. Docstrings are the contract; adapters implement them."""
