"""Runs the real SGLang server as a child process on a loopback port of this machine."""

from local_server.config import ServerConfig
from local_server.plugin import plugin_environment
from local_server.process import LocalServer, ServerError

__all__ = ["LocalServer", "ServerConfig", "ServerError", "plugin_environment"]
