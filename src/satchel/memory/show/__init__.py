"""What is put before a model: what a message needs, and what stands there always."""
