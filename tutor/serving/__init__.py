"""The serving engine in pure Python: requests, KV blocks, scheduler. No clock, thread or I/O of its own."""
