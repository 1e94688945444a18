"""The terminal: how text and Markdown look on one, and the conversation on a full screen."""
