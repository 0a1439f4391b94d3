"""The default pools of the CPU hold what requests can use, not all of the memory."""

from patches.engine.edits import Insert, ReplaceExpression
from patches.engine.patch import Patch
from patches.engine.place import Find

FILE = "srt/mem_cache/kv_cache_configurator.py"
CLASS = "KVCacheConfigurator"

BOUNDS = '''
def _bound_tokens_on_cpu(self, token_capacity: int) -> int:
    """Bound the default KV pool: host memory is shared with the whole machine."""
    if self.device != "cpu":
        return token_capacity
    limit = self._num_reqs_to_hold_on_cpu() * self.model_config.context_len
    if limit < token_capacity:
        logger.info(
            f"KV cache bounded to {limit} of {token_capacity} possible tokens on CPU. "
            "Use --max-total-tokens or --max-running-requests to set another size."
        )
    return min(limit, token_capacity)

def _bound_mamba_slots_on_cpu(self, num_slots: int) -> int:
    """Bound the default mamba pool likewise."""
    if self.device != "cpu":
        return num_slots
    limit = self._num_reqs_to_hold_on_cpu() * self._calculate_mamba_ratio()
    return min(limit, num_slots)

def _num_reqs_to_hold_on_cpu(self) -> int:
    max_running_requests = get_schedule().max_running_requests
    if max_running_requests is None:
        return CPU_DEFAULT_NUM_REQS
    return max(1, max_running_requests // self.attn_dp_size)
'''

PATCH = Patch(
    number=915,
    title="[CPU] Bound the default KV cache by what requests can use",
    message="""\
## Motivation

Without `--max-total-tokens`, the pools take `--mem-fraction-static` of the machine's
free memory and zero it. For a small model on a laptop that is millions of KV slots and
thousands of mamba states that no request can ever use, half a minute of start-up, and
memory that other programs need.

## Modifications

On the CPU, stop at the pools that hold `--max-running-requests` requests (64 if unset)
of full context length. Models for which memory is short do not notice. A size that the
user gives is taken as it is.

## Benchmark and Profiling

No measurement beyond the start-up time named above.
""",
    edits=(
        Insert(
            file=FILE,
            before="KVCacheConfigResult",
            code="""
            # Requests of full context length that the default pools of the CPU hold.
            CPU_DEFAULT_NUM_REQS = 64
            """,
        ),
        Insert(
            file=FILE,
            scope=f"{CLASS}._apply_token_constraints",
            after=Find("assign", "user_limit"),
            code="""
            if user_limit is None:
                token_capacity = self._bound_tokens_on_cpu(token_capacity)
            """,
        ),
        ReplaceExpression(
            file=FILE,
            scope=f"{CLASS}._handle_max_mamba_cache",
            at=Find(
                "keyword", "max_mamba_cache_size", mentions=("mamba_budget_bytes",)
            ),
            code="self._bound_mamba_slots_on_cpu(__original__)",
            sites=2,
        ),
        Insert(file=FILE, scope=CLASS, before="_apply_token_constraints", code=BOUNDS),
    ),
    tests=("unit/mem_cache/test_cpu_pool_size.py",),
)
