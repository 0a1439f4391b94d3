"""An error that users can put right ends the command with its message alone."""

import unittest
from unittest.mock import patch

from sglang.test.ci.ci_register import register_cpu_ci
from sglang.test.test_utils import CustomTestCase, maybe_stub_sgl_kernel

maybe_stub_sgl_kernel()

import sglang.launch_server
import sglang.srt.server_args
from sglang.cli import serve
from sglang.srt.arg_groups.launch_error import (
    LaunchError,
    exit_on_launch_error,
    message_or,
)

register_cpu_ci(est_time=5, suite="base-a-test-cpu")


def serve_and_raise(error: Exception) -> None:
    """Run `sglang serve` with a server that raises ``error`` when it is started."""
    request = serve.ServeRequest(argv=("--model-path", "m"), model_path="m")
    with (
        patch.object(sglang.srt.server_args, "prepare_server_args"),
        patch.object(sglang.launch_server, "run_server", side_effect=error),
    ):
        serve._run_llm(request)


class TestLaunchError(CustomTestCase):
    def test_sglang_serve_ends_with_the_message_and_status_1(self):
        with self.assertRaises(SystemExit) as ended:
            serve_and_raise(LaunchError("Do this."))
        # Python prints a string to stderr and ends with status 1.
        self.assertEqual(ended.exception.code, "Do this.")

    def test_a_bug_keeps_its_traceback(self):
        with self.assertRaises(ZeroDivisionError):
            serve_and_raise(ZeroDivisionError())
        with self.assertRaises(ValueError), exit_on_launch_error():
            raise ValueError("a bug")

    def test_a_scheduler_logs_the_message_instead_of_its_traceback(self):
        for error, said in (
            (LaunchError("Do this."), "Do this."),
            (OSError(), "trace"),
        ):
            try:
                raise error
            except Exception:
                self.assertEqual(message_or(lambda: "trace"), said)

    def test_programs_may_catch_it_as_a_value_error(self):
        self.assertTrue(issubclass(LaunchError, ValueError))


if __name__ == "__main__":
    unittest.main()
