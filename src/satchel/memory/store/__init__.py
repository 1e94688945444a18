"""What is kept: tables and rows, and everything that changes them - capture, editing, forgetting."""
