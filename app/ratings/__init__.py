"""Ratings of models from judged battles: views, intervals and rank sets."""
