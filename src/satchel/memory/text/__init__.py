"""What is read out of a text without a database: words, days, secrets, statements, and the frame of a shown line."""
