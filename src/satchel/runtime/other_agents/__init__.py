"""Other agents: what their hooks send and want to hear, what is captured of them, and how they are set up."""
