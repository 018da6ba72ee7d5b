"""Scripts behind the pages; README.md says what each does."""
