"""The evaluation report: one HTML page with tables and figures."""
