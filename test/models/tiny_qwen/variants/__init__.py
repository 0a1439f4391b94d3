"""Variants of the trained checkpoint: odd ones to serve, broken ones to refuse.

    from tiny_qwen.variants import VARIANTS
    VARIANTS["moe"].build(source, out)

Parametrise over `VARIANTS.values()`; `valid`, `twin` and `error_names` say what to
expect. Importing this package fills the registry.
"""

from tiny_qwen.variants import architectures, broken, layouts
from tiny_qwen.variants.registry import VARIANTS, Variant

__all__ = ["VARIANTS", "Variant", "architectures", "broken", "layouts"]
