"""Tools that the agent made: the catalogue, their folders and versions, what they may reach, and running them."""
