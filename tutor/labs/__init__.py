"""Labs: what runs (in a child process), which knobs it has and which panels show it."""
