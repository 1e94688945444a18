"""Language and embedding models behind two ports."""
