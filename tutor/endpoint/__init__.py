"""The tutor's engine behind HTTP: OpenAI's, llama.cpp's and Ollama's ways of asking, one engine process."""
