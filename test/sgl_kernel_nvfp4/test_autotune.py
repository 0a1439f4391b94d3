"""The tuner, with a clock that is not a GPU's."""

import json

import pytest

from sgl_kernel_nvfp4 import autotune
from sgl_kernel_nvfp4.measure import copies_beyond_cache
from sgl_kernel_nvfp4.policy import choose_gemm
from sgl_kernel_nvfp4.policy.device import GB10, RTX_PRO_6000
from sgl_kernel_nvfp4.policy.table import Table, load_table, read_table


@pytest.mark.parametrize("kernel", autotune.KERNELS)
@pytest.mark.parametrize("m", [1, 32, 64])
def test_candidates_fit_the_device_and_differ(kernel, m):
    configs = list(autotune.candidates(kernel, m, 5120, RTX_PRO_6000))
    assert len(configs) == len(set(configs)) >= 3
    for config in configs:
        assert config.shared_bytes(kernel) <= RTX_PRO_6000.shared_per_block


def test_the_fastest_config_is_kept_and_failures_are_passed_over(capsys):
    def time_of(config):
        if config.num_stages == 2:
            raise RuntimeError("out of resource")
        return config.num_stages + config.split_k / 10

    config, time = autotune.fastest("w4a4_gemm", 1, 5120, RTX_PRO_6000, time_of)
    assert (config.num_stages, config.split_k, time) == (3, 1, 3.1)
    assert "out of resource" in capsys.readouterr().err


def test_the_written_table_is_read_back_and_used(tmp_path):
    def timer(kernel, m, n, k):
        return lambda config: -config.split_k - config.num_stages / 10

    shapes = [("w4a4_gemm", 8, 5120, 5120)]
    path = tmp_path / "tuned.json"
    path.write_text(json.dumps(autotune.tuned_table(shapes, GB10, timer)))
    tuned = read_table(path).tuned
    table = Table(load_table().devices, tuned)
    chosen = choose_gemm("w4a4_gemm", 5, 5120, 5120, GB10, table)
    assert chosen == tuned[0].config
    assert chosen.split_k == 8


def test_tuning_without_a_gpu_is_an_error_that_says_why(tmp_path, capsys):
    import torch

    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    with pytest.raises(SystemExit):
        autotune.main(["--output", str(tmp_path / "t.json")])
    assert "needs the GPU" in capsys.readouterr().err


def test_copies_of_a_weight_exceed_the_cache():
    assert copies_beyond_cache(10, 100) == 30
    assert copies_beyond_cache(10**9, 100) == 2
