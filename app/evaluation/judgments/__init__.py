"""Raw answers of a judge: asking for them, and keeping them in judgments.jsonl."""
