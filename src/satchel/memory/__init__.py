"""What Satchel remembers: usable alone, with no loop and no server."""
