"""Indexes over pages: lexical, dense, of the corpus and of a user's own documents."""
