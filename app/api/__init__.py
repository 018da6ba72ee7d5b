"""HTTP: the only package that knows requests, responses and status codes.

A request passes `server`, `middleware.observation`, `auth.access`, `middleware.gate`, `bodies`
and its route in `routes`.
"""
