"""HTTP: the only package that knows requests, responses and status codes.

A request passes `server`, `middleware.Observation`, `access`, `middleware.Gate` and `routing` on
its way to its route in `routes`.
"""
