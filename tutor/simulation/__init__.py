"""A model that is priced instead of run: the same scheduler on a virtual clock."""
