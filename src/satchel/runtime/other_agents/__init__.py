"""Other agents: their hooks' payloads and answers, the capture of their conversations, and their set-up."""
