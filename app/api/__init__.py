"""HTTP: the only package that knows requests, responses and status codes.

A request passes `server`, `middleware.Observation`, `access`, `middleware.Gate`, `inputs` and its
route in `routes`.
"""
