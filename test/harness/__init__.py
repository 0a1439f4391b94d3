"""What the server tests share: servers, a client, prompts and the reference."""
