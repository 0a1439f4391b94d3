"""Both ways to write --config read the file."""

import tempfile
import unittest
from pathlib import Path
from unittest.mock import patch

from sglang.srt.server_args import prepare_server_args
from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase

register_cpu_ci(est_time=5, suite="base-a-test-cpu")


class TestConfigWithEquals(CustomTestCase):
    def test_a_config_file_is_read_however_it_is_written_and_no_other_word_splits(
        self,
    ):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "serve.yaml"
            path.write_text("context-length: 321\n")
            for words in (["--config", str(path)], [f"--config={path}"]):
                with self.subTest(words=words), patch("logging.basicConfig"):
                    server_args = prepare_server_args(["--model-path", "m", *words])
                    self.assertEqual(server_args.context_length, 321)
        with patch("logging.basicConfig"):
            server_args = prepare_server_args(["--model-path=a=b"])
        self.assertEqual(server_args.model_path, "a=b")


if __name__ == "__main__":
    unittest.main()
