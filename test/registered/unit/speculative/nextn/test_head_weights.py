"""Reading the head: which files are opened, and what comes out of them."""

import json
import tempfile
import unittest
from pathlib import Path
from unittest.mock import patch

import torch
from head_files import dense_head, trunk
from safetensors import safe_open
from safetensors.torch import save_file

from sglang.srt.speculative.nextn import weights
from sglang.srt.speculative.nextn.checkpoint import read_head_checkpoint
from sglang.srt.speculative.nextn.weights import iterate_head_weights
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, enter_scope

register_cpu_ci(est_time=5, suite="base-a-test-cpu")


class CountingFile:
    """A file that adds what is read from it to a list."""

    def __init__(self, file, sizes):
        self.file = file
        self.sizes = sizes

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def seek(self, offset):
        return self.file.seek(offset)

    def read(self, size):
        self.sizes.append(size)
        return self.file.read(size)


class TestHeadWeights(CustomTestCase):
    def setUp(self):
        """A checkpoint of random values whose second shard is the head."""
        super().setUp()
        self.folder = Path(enter_scope(self, tempfile.TemporaryDirectory()))
        torch.manual_seed(0)
        weight_map = {}
        for shard, tensors in (
            ("1.safetensors", trunk()),
            ("2.safetensors", dense_head()),
        ):
            values = {
                name: torch.randn(shape).bfloat16()
                for name, (_, shape) in tensors.items()
            }
            save_file(values, self.folder / shard)
            weight_map.update(dict.fromkeys(tensors, shard))
        index = {"metadata": {}, "weight_map": weight_map}
        (self.folder / "model.safetensors.index.json").write_text(json.dumps(index))
        self.checkpoint = read_head_checkpoint(self.folder)

    def test_every_tensor_of_the_head_is_read_once_and_nothing_else(self):
        for disable_mmap in (False, True):
            read = iterate_head_weights(self.checkpoint, disable_mmap=disable_mmap)
            self.assertEqual(sorted(name for name, _ in read), sorted(dense_head()))

    def test_the_values_are_those_of_the_file(self):
        for disable_mmap in (False, True):
            read = iterate_head_weights(self.checkpoint, disable_mmap=disable_mmap)
            for name, tensor in read:
                shard = self.folder / self.checkpoint.tensors[name].shard
                with safe_open(shard, framework="pt") as file:
                    expected = file.get_tensor(name)
                self.assertEqual(tensor.dtype, expected.dtype)
                self.assertTrue(torch.equal(tensor, expected))

    def test_only_shards_with_the_head_are_opened_and_each_of_them_once(self):
        opened = []

        def counting_open(path, **arguments):
            opened.append(path.name)
            return safe_open(path, **arguments)

        with patch.object(weights, "safe_open", counting_open):
            list(iterate_head_weights(self.checkpoint))
        self.assertEqual(sorted(opened), sorted(self.checkpoint.head_shards))
        self.assertLess(len(opened), len(self.checkpoint.shards))

    def test_without_mmap_the_bytes_read_are_the_heads(self):
        sizes, original = [], Path.open

        def counting_open(path, mode):
            return CountingFile(original(path, mode), sizes)

        with patch.object(Path, "open", counting_open):
            list(iterate_head_weights(self.checkpoint, disable_mmap=True))
        headers = 8 * len(self.checkpoint.head_shards) + 4096
        self.assertLessEqual(sum(sizes), self.checkpoint.num_bytes + headers)


if __name__ == "__main__":
    unittest.main()
