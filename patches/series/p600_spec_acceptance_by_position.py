"""Acceptance of each draft position: in the log, in metrics and in meta_info."""

from patches.engine.edits import AddArgument, AddImport, Insert
from patches.engine.patch import Patch
from patches.engine.place import Find

REPORTER = "srt/managers/scheduler_components/metrics_reporter.py"
PROCESSOR = "srt/managers/scheduler_components/batch_result_processor.py"
STATE = "srt/managers/scheduler_components/internal_state.py"
COLLECTOR = "srt/observability/metrics_collector.py"
TOKENIZER = "srt/managers/tokenizer_manager.py"
COUNTS = "sglang.srt.observability.spec_acceptance"

SCHEDULER = (
    AddImport(
        file=REPORTER,
        module=COUNTS,
        names=("SpecAcceptance",),
        after="sglang.srt.observability.metrics_collector",
    ),
    Insert(
        file=REPORTER,
        scope="SchedulerMetricsReporter._init_metrics",
        after=Find("assign", "self.spec_num_cap_tokens"),
        code="self.spec_acceptance = SpecAcceptance()",
    ),
    Insert(
        file=REPORTER,
        scope="SchedulerMetricsReporter.reset_metrics",
        after=Find("assign", "self.spec_num_cap_tokens"),
        code="self.spec_acceptance = SpecAcceptance()",
    ),
    AddArgument(
        file=REPORTER,
        scope="SchedulerMetricsReporter",
        at="update_spec_metrics",
        code="""
        num_correct_drafts_per_req: Optional[List[int]] = None,
        num_drafts: int = 0
        """,
    ),
    Insert(
        file=REPORTER,
        scope="SchedulerMetricsReporter.update_spec_metrics",
        after=Find("assign", "self.spec_num_cap_tokens"),
        code="self.spec_acceptance.add(num_correct_drafts_per_req or (), num_drafts)",
    ),
    AddArgument(
        file=PROCESSOR,
        scope="SchedulerBatchResultProcessor.process_batch_result_decode",
        at=Find("call", "self.metrics_reporter.update_spec_metrics"),
        code="""
        num_correct_drafts_per_req=result.num_correct_drafts_per_req_cpu,
        num_drafts=(result.speculative_num_draft_tokens or 1) - 1
        """,
    ),
    Insert(
        file=REPORTER,
        scope="SchedulerMetricsReporter.report_decode_stats",
        before=Find("if", mentions=("spec_cap_length",)),
        code="""
        if accept_by_position := self.spec_acceptance.close_window():
            msg += f"accept by position: {accept_by_position}, "
        """,
    ),
    Insert(
        file=REPORTER,
        scope="SchedulerMetricsReporter.report_decode_stats",
        after=Find("assign", "self.stats.spec_accept_rate"),
        code="""
        self.stats.spec_accept_rate_per_position = self.spec_acceptance.window_rates
        self.stats.spec_total_accept_rate_per_position = (
            self.spec_acceptance.total.conditional_rates
        )
        """,
    ),
    Insert(
        file=STATE,
        scope="SchedulerInternalStateController._add_speculative",
        before=Find("if", mentions=("is_dspark",)),
        code="""
        lifetime = scheduler.metrics_reporter.spec_acceptance.lifetime
        state["spec_proposed_drafts_per_position"] = lifetime.proposed
        state["spec_correct_drafts_per_position"] = lifetime.accepted
        state["spec_accept_rate_per_position"] = lifetime.conditional_rates
        """,
    ),
)

GAUGES = (
    Insert(
        file=COLLECTOR,
        scope="SchedulerStats",
        after=Find("assign", "spec_accept_rate"),
        code="""
        spec_accept_rate_per_position: List[float] = field(default_factory=list)
        spec_total_accept_rate_per_position: List[float] = field(default_factory=list)
        """,
    ),
    Insert(
        file=COLLECTOR,
        scope="SchedulerMetricsCollector.__init__",
        after=Find("assign", "self.spec_accept_rate"),
        code="""
        self.spec_accept_rate_per_position = Gauge(
            name="sglang:spec_accept_rate_per_position",
            documentation="Accepted drafts at each position, of those whose predecessors were accepted, since the last report.",
            labelnames=[*labels.keys(), "position"],
            multiprocess_mode="mostrecent",
        )
        self.spec_total_accept_rate_per_position = Gauge(
            name="sglang:spec_total_accept_rate_per_position",
            documentation="Accepted drafts at each position, of those whose predecessors were accepted, since the server started.",
            labelnames=[*labels.keys(), "position"],
            multiprocess_mode="mostrecent",
        )
        """,  # noqa: E501
    ),
    Insert(
        file=COLLECTOR,
        scope="SchedulerMetricsCollector.log_stats",
        after=Find(
            "call statement",
            "self._log_gauge",
            mentions=("spec_accept_rate",),
        ),
        code="""
        for gauge, rates in (
            (self.spec_accept_rate_per_position, stats.spec_accept_rate_per_position),
            (
                self.spec_total_accept_rate_per_position,
                stats.spec_total_accept_rate_per_position,
            ),
        ):
            for position, rate in enumerate(rates):
                gauge.labels(**self.labels, position=position).set(rate)
        """,
    ),
)

REQUESTS = (
    AddImport(
        file=COLLECTOR,
        module=COUNTS,
        names=("AcceptanceCounts",),
        after="sglang.srt.observability.scheduler_stage_metrics",
    ),
    Insert(
        file=COLLECTOR,
        scope="TokenizerMetricsCollector.__init__",
        after=Find("assign", "self.spec_verify_calls_total"),
        code="""
        self.spec_proposed_drafts_total = Counter(
            name="sglang:spec_proposed_drafts_total",
            documentation="Number of draft tokens proposed at each position.",
            labelnames=[*labels.keys(), "position"],
        )
        self.spec_correct_drafts_total = Counter(
            name="sglang:spec_correct_drafts_total",
            documentation="Number of draft tokens accepted at each position.",
            labelnames=[*labels.keys(), "position"],
        )
        """,
    ),
    AddArgument(
        file=COLLECTOR,
        scope="TokenizerMetricsCollector",
        at="observe_one_finished_request",
        code="spec_acceptance: Optional[AcceptanceCounts] = None",
    ),
    Insert(
        file=COLLECTOR,
        scope="TokenizerMetricsCollector.observe_one_finished_request",
        after=Find("if", mentions=("spec_verify_ct",)),
        code="""
        if spec_acceptance is not None:
            for counter, counts in (
                (self.spec_proposed_drafts_total, spec_acceptance.proposed),
                (self.spec_correct_drafts_total, spec_acceptance.accepted),
            ):
                for position, count in enumerate(counts):
                    counter.labels(**labels, position=position).inc(count)
        """,
    ),
    AddImport(
        file=TOKENIZER,
        module=COUNTS,
        names=("AcceptanceCounts",),
        after="sglang.srt.observability.metrics_collector",
    ),
    Insert(
        file=TOKENIZER,
        scope="TokenizerManager",
        before="_calculate_spec_decoding_metrics",
        code='''
        @staticmethod
        def _spec_acceptance_of(recv_obj, i: int) -> Optional[AcceptanceCounts]:
            """Acceptance by position of one request's verify steps so far."""
            histograms = getattr(recv_obj, "spec_correct_drafts_histogram", None)
            if not histograms or len(histograms) <= i or not histograms[i]:
                return None
            num_drafts = (get_spec().speculative_num_draft_tokens or 1) - 1
            return AcceptanceCounts.of_histogram(histograms[i], num_drafts)
        ''',
    ),
    Insert(
        file=TOKENIZER,
        scope="TokenizerManager._calculate_spec_decoding_metrics",
        after=Find("assign", mentions=("meta_info", "spec_correct_drafts_histogram")),
        code="""
        acceptance = self._spec_acceptance_of(recv_obj, i)
        meta_info["spec_accept_rate_per_position"] = acceptance.conditional_rates
        """,
    ),
    AddArgument(
        file=TOKENIZER,
        scope="TokenizerManager.collect_metrics",
        at=Find("call", "self.metrics_collector.observe_one_finished_request"),
        code="spec_acceptance=self._spec_acceptance_of(recv_obj, i)",
    ),
)

PATCH = Patch(
    number=600,
    title="[Spec] Count accepted drafts by position",
    message="""\
## Motivation

The accept length is one number: it does not say whether the first draft is usually
right and the third one useless, which is what decides `--speculative-num-steps`.

## Modifications

- The decode log line, `/get_server_info` and `meta_info` say how often the draft at
  each position is accepted.
- Gauges `sglang:spec_accept_rate_per_position` and
  `sglang:spec_total_accept_rate_per_position` have the names of the open proposal for
  them; a rate is of those drafts whose predecessors were accepted.
- Counters `sglang:spec_proposed_drafts_total` and `sglang:spec_correct_drafts_total`
  add up with `meta_info` over finished requests.
- All is counted from lists that are on the host already: no device sync is added.
""",
    edits=(*SCHEDULER, *GAUGES, *REQUESTS),
    overlay=("srt/observability/spec_acceptance.py",),
    tests=("unit/observability/test_spec_acceptance.py",),
)
