"""Uvicorn with bounds on connections and bytes, and an orderly stop."""
