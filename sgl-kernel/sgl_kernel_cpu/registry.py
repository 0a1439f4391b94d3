"""Registration of PyTorch functions as `torch.ops.sgl_kernel.*`."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

Kernel = TypeVar("Kernel", bound=Callable[..., Any])

_library = torch.library.Library("sgl_kernel", "FRAGMENT")


def kernel(
    schema: str,
    *,
    fake: Callable[..., Any] | None = None,
    dispatch_key: str = "CPU",
) -> Callable[[Kernel], Kernel]:
    """Register the decorated function under `schema` and return it unchanged.

    Python callers keep the plain function; SGLang reaches it through the dispatcher,
    where keyword arguments, defaults, fake tensors and `torch.compile` work.

    Args:
        schema: the operator's schema, its name first. Written arguments are marked
            `Tensor(a!)`.
        fake: the function for fake tensors, with the signature of the decorated one.
            May be left out where the operator returns nothing.
        dispatch_key: "CPU", or "CompositeExplicitAutograd" for an operator that takes
            no tensor.
    """
    name = schema.partition("(")[0]
    returns_nothing = schema.endswith("-> ()")
    if fake is None and dispatch_key == "CPU" and not returns_nothing:
        raise ValueError(f"sgl_kernel::{name} returns tensors and needs a fake.")

    def register(function: Kernel) -> Kernel:
        _library.define(schema, tags=(torch.Tag.pt2_compliant_tag,))
        _library.impl(name, function, dispatch_key)
        if fake is not None or returns_nothing:
            torch.library.register_fake(
                f"sgl_kernel::{name}", fake or _nothing, lib=_library
            )
        return function

    return register


def like_first(first: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """Fake of an operator whose result is shaped and typed like its first argument."""
    return torch.empty_like(first, memory_format=torch.contiguous_format)


def _nothing(*args: Any, **kwargs: Any) -> None:
    return None
