"""Finding memories for a question, by words and by meaning. Readers don't write."""
