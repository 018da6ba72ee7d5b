"""Uvicorn with limits on connections, bytes and time, and with a graceful shutdown."""
