"""Models behind the OpenAI API, or any server compatible with it."""
