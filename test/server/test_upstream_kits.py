"""Upstream's own test kits for speculative servers, on a server with NEXTN.

The kits are in ``sglang.test``, which the wheel ships. Left out are those that ask the
model what it knows, which a model of a few megabytes does not, and those of speed.
"""

from __future__ import annotations

import pytest
from openai import OpenAI

from harness.pool import ServerPool
from local_server import ServerConfig
from sglang.test.kits import (
    abort_timeout_kit,
    basic_api_contract_kit,
    ebnf_constrained_kit,
    json_constrained_kit,
    json_mode_kit,
    regex_constrained_kit,
    spec_server_kits,
)
from sglang.test.server_fixtures import spec_eagle_fixture


class OnSharedServer(spec_eagle_fixture.SpecEagleServerBase):
    """Upstream's fixture with its helpers, without the server that it would start."""

    __test__ = False

    @classmethod
    def setUpClass(cls) -> None:
        pass

    @classmethod
    def tearDownClass(cls) -> None:
        pass

    @pytest.fixture(autouse=True, scope="class")
    def shared_server(
        self,
        request: pytest.FixtureRequest,
        server_pool: ServerPool,
        configs: dict[str, ServerConfig],
        dense_model: str,
    ) -> None:
        config = configs["dense_nextn"]
        (client,) = server_pool.get(config)
        request.cls.base_url = client.url
        request.cls.model = dense_model
        request.cls.process = server_pool.process_of(config)
        request.cls.client = OpenAI(base_url=f"{client.url}/v1", api_key="none")
        request.cls._tokenizer = None


class TestSpeculation(
    OnSharedServer,
    spec_server_kits.SpecLogprobKit,
    spec_server_kits.SpecPenaltyKit,
    spec_server_kits.SpecGrammarKit,
):
    __test__ = True

    # Asks for token ids up to 2,000 of a vocabulary of 1,024.
    test_logprob_mixed = None
    test_constrained_decoding = (
        spec_server_kits.SpecFeatureKit.test_constrained_decoding
    )
    test_batch_generation = spec_server_kits.SpecCorrectnessKit.test_batch_generation
    test_first_token_finish = (
        spec_server_kits.SpecCorrectnessKit.test_first_token_finish
    )
    batch_accept_len_thres = spec_server_kits.SpecCorrectnessKit.batch_accept_len_thres


class TestServer(
    OnSharedServer,
    abort_timeout_kit.AbortAllMixin,
    basic_api_contract_kit.BasicAPIContractMixin,
    ebnf_constrained_kit.EBNFConstrainedMixin,
    json_constrained_kit.JSONConstrainedMixin,
    json_mode_kit.JSONModeMixin,
    regex_constrained_kit.RegexConstrainedMixin,
):
    __test__ = True

    # Its pattern has no room for the white space that its grammar allows.
    test_ebnf_generate_complex_json = None
    abort_all_num_requests = 8
    abort_all_max_new_tokens = 1500
    abort_all_sleep = 0.5
