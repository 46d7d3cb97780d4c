"""Clients of a decision server. Needs neither torch nor a model."""

from quaver.client.clients import AsyncClient, Client

__all__ = ["AsyncClient", "Client"]
