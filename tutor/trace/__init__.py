"""What happened: events, their JSONL codec, the store, the fold over them and playback."""
