"""What all tests share."""

import gc
import importlib
import os
import sys
import tempfile
from collections.abc import Generator, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import Phase, settings
from hypothesis.internal.conjecture import providers

from tests.browser import Browser, NoBrowser
from tests.guard import FIXTURES, guard
from tests.programs import SMALLER
from tests.slow import EVERYTHING, LEFT_OUT, beyond

# jsonschema, of which nbformat makes use, does without these grammars, which take three seconds to be made.
sys.modules.setdefault("rfc3987_syntax", None)  # type: ignore[arg-type]
# What is computed with numbers here is tiny: one thread is faster than several, all the more beside other tests.
os.environ.setdefault("OMP_NUM_THREADS", "1")
# No test of ours depends on how fast the machine is or on chance, so neither do the generated ones.
examples = 100 if EVERYTHING else 40
settings.register_profile("project", deadline=None, derandomize=True, database=None, max_examples=examples)
settings.register_profile("mutants", settings.get_profile("project"), phases=[Phase.explicit, Phase.generate])
settings.load_profile("project")
# Hypothesis would also try numbers from the source of those modules of ours that a worker has loaded by then.
providers._get_local_constants = lambda: providers._local_constants

HERE = Path(__file__).parent


@pytest.hookimpl(wrapper=True)
def pytest_collection(session: pytest.Session) -> Generator[None, object, object]:
    """Nothing that is collected becomes garbage, and to look for some took a fifth of the time. Later the collector
    seldom looks through all of it, which took a quarter of the time of some files."""
    gc.disable()
    try:
        _rewrite_from_the_end(session.config)
        return (yield)
    finally:
        gc.freeze()
        gc.unfreeze()  # now it is old
        gc.set_threshold(700, 10, 1000)
        gc.enable()


def _rewrite_from_the_end(config: pytest.Config) -> None:
    """Every other worker imports the files of tests backwards: pytest rewrites each once, and workers meet halfway."""
    if int(os.environ.get("PYTEST_XDIST_WORKER", "gw0")[2:]) % 2:
        for path in sorted(HERE.rglob("test_*.py"), reverse=True):
            if not pytest_ignore_collect(path, config):
                with suppress(Exception, pytest.skip.Exception):  # what fails here is told when it is collected
                    importlib.import_module(".".join(path.relative_to(HERE.parent).with_suffix("").parts))


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """A browser for all tests that look; where there is none they are skipped, and say so."""
    try:
        opened = Browser()
    except NoBrowser as why:
        pytest.skip(f"NOBODY LOOKED IN A BROWSER: {why}. To have a browser: make browser")
    with opened:
        yield opened


ELSEWHERE = tempfile.TemporaryDirectory(prefix="progress-of-tests-")
"""Where progress is kept that no test asks about, and not beside the code of this project."""


def pytest_runtest_setup() -> None:
    """No test is in a notebook because another imported ipykernel, or finds solved what another has solved."""
    sys.modules.pop("ipykernel", None)
    os.environ["LLM_TRAINING_PUZZLES_PROGRESS"] = tempfile.mkdtemp(dir=ELSEWHERE.name)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """From its fixtures to their end, a test that is not marked ``process`` starts none."""
    guard.begin(item)
    try:
        return (yield)
    finally:
        guard.end()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call() -> Generator[None, None, None]:
    """A test that has swallowed the refusal fails, too."""
    yield
    guard.check()


LONGEST = """test_build test_engine_processes test_plan test_corpus test_schedules test_installed test_orders
test_explain test_lab test_represent test_notebooks test_passes test_tasks test_engine_numbers test_colab test_fuzz
test_shell test_nothing_lost test_target test_docs test_papers test_schedule_search test_repairs test_board
test_drawing_picture test_bounds test_drawing_rows test_grading test_drawing_player test_engine_local test_referee
test_chain test_browser_player test_whole_gradient test_browser"""
"""Files that take longest begin first, so that none is the last; those that only compute and others take turns."""
LONG = """test_corpus test_passes test_fuzz test_bounds test_chain test_represent test_plain_machine test_papers
test_recording_floods test_page_figures test_recording test_whole_gradient test_drawing_picture test_drawing_compare
test_colab test_closed_forms test_lives test_priced test_repairs test_drawing_strikes test_palette test_board"""
"""Files that go through all programs, all sizes or hundreds of random programs, or build all notebooks."""
LONG_TESTS = """test_where_more_time_is_lost_to_communication_than_to_waiting_rows_say_how_much_they_compute
test_each_change_is_made_to_some_call_of_the_solutions_and_every_program_is_another_one test_sizes_that_nothing_divides
test_a_picture_that_would_be_crowded_folds_ranks_that_do_the_same_from_eight_on test_a_task_has_the_files_of_its_layout
test_a_right_program_may_hold_a_tensor_more_as_long_as_it_meets_the_target test_who_is_too_slow_is_told_what_to_look_at
test_a_limit_that_strikes_inside_our_code_leaves_a_log_that_can_be_read test_the_names_of_operations_stand_in_few_files
test_it_shows_no_word_of_later_puzzles_and_each_of_them_one_click_away test_each_change_is_what_comes_out_if_it_is_made
test_a_table_that_a_function_changes_is_named_instead_of_a_verdict test_adapters_are_planned_and_take_what_a_run_takes
test_the_reference_trains_low_rank_factors_and_leaves_the_weight test_long_sequences_and_experts_have_axes_of_their_own
test_every_process_finds_the_same_log_and_nobody_waits_for_ever test_an_error_of_a_rule_has_the_facts_of_its_sentence
test_what_unpacks_to_far_more_than_it_is_is_not_read_to_its_end test_asynchronous_traffic_has_a_lane_with_its_meaning
test_a_program_that_takes_all_of_the_target_passes_at_all_sizes test_the_changed_line_or_the_verb_left_out_is_named
test_every_solution_is_in_it_with_its_figures_and_its_sentence test_the_verdict_at_a_shell_has_the_same_list_with_lines
test_the_same_seed_gives_the_same_variants_and_another_others test_everything_that_is_said_is_what_the_recordings_show
test_a_variant_is_another_machine_with_figures_that_were_run test_every_mutant_that_changes_nothing_is_one_that_is_made
test_a_solution_that_is_wrong_at_one_kind_of_size_is_refused test_finer_pieces_make_up_coarser_ones_whatever_the_size
test_many_narrow_operations_are_shares_of_a_column test_an_error_about_tensors_is_never_without_words
test_a_file_with_a_wrong_value_is_read_or_refused test_explanations_as_data_are_those_that_are_kept
test_every_statement_has_a_sentence_with_no_gap test_where_there_is_one_bound_only_one_is_told test_a_verdict_is_short
test_an_agent_gets_neither_solutions_nor_hints test_many_ranks_that_are_alike_share_one_strip
test_numbers_agree_with_training_as_a_whole test_with_little_memory_backwards_are_whole test_the_code_of_a_page_runs
test_schedules_of_torch_are_right_by_value test_a_star_is_shown_wherever_a_verdict_is test_what_lies_between_is_a_front
test_states_on_hosts_take_what_a_run_takes test_nothing_is_advised_that_was_not_tried test_what_is_told_is_written_down
test_what_a_refusal_advises_gives_a_plan test_a_task_of_a_variant_has_its_figures test_bounds_are_below_what_runs_give
test_the_table_in_the_docs_is_true test_what_meets_the_bound_hears_so test_each_alone_rejects_a_program
test_the_place_is_told_in_fields test_few_lines_are_named_besides test_the_best_so_far_is_kept"""
"""Tests that take a second or more of processor time by themselves, in files that are quick."""


AT_ONCE = {"at_a_shell", "cheats", "executed", "truth"}
"""Fixtures that make at once what all cases of a test look at, and choose themselves what they make: all are run."""


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """``make quick`` need not import a file of which it runs nothing."""
    return ("not long" in config.option.markexpr and collection_path.stem in LONG.split()) or None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Put the longest files first. Mark what looks in a browser, what starts processes by its fixtures, and what takes
    long: ``make quick`` leaves them out. Leave out what `make test` does not run."""
    first, long = {name: place for place, name in enumerate(LONGEST.split())}, {*LONG.split(), *LONG_TESTS.split()}
    items.sort(key=lambda item: first.get(item.path.stem, len(first)))
    for item in items:
        names = set(getattr(item, "fixturenames", ()))
        if "browser" in names:
            item.add_marker("browser")
        if names & FIXTURES:
            item.add_marker("process")
        if {item.path.stem, item.name.partition("[")[0]} & long or any(name in item.name for name in SMALLER):
            item.add_marker("long")
    if EVERYTHING:
        return
    here = [item for item in items if not item.get_closest_marker("slow")]
    own_work = [item.nodeid for item in here if not AT_ONCE & {*getattr(item, "fixturenames", ())}]
    left_out = beyond(own_work)
    here = [item for item in here if item.nodeid not in left_out]
    kept = {*here}
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = here


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say that what takes long was left out."""
    if not EVERYTHING:
        terminalreporter.write_line(LEFT_OUT, yellow=True, bold=True)
